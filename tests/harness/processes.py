"""Finding and ending the processes that a test started, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks; None if it is gone or a zombie."""
    try:
        # The name in parentheses may hold blanks, so count from its end.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _parents() -> dict[int, int]:
    """Return the parent of every process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return parents


def family(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    parents = _parents()
    members = {pid} & parents.keys()
    while True:
        children = {p for p, parent in parents.items() if parent in members} - members
        if not children:
            return members
        members |= children


def marked(name: str, value: str) -> set[int]:
    """Return the processes that were started with this variable in their environment."""
    entry = os.fsencode(f"{name}={value}")
    found = set()
    for pid in _parents():
        try:
            if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
        except OSError:
            continue  # it ended meanwhile
    return found


def end(pids: Iterable[int], patience: float = 10.0) -> None:
    """End these processes: politely at first, by SIGKILL when ``patience`` is over."""
    alive = {pid: started for pid in pids if (started := start_time(pid)) is not None}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, started in alive.items():
            # A pid that has another start time by now belongs to somebody else.
            if start_time(pid) == started:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        deadline = time.monotonic() + patience
        while alive and time.monotonic() < deadline:
            alive = {p: s for p, s in alive.items() if start_time(p) == s}
            time.sleep(0.02)
        if not alive:
            return


def mounts_below(path: Path) -> list[str]:
    """Return the mount points at or below a directory, innermost first."""
    prefix = os.path.realpath(path)
    points = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        point = line.split()[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        if point == prefix or point.startswith(prefix + "/"):
            points.append(point)
    return points[::-1]


def unmount_below(path: Path) -> None:
    """Unmount everything at or below a directory, so that removing it harms nobody."""
    for point in mounts_below(path):
        subprocess.run(["umount", "-n", "-l", point], capture_output=True)
