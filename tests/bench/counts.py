"""The rows that count rather than time: processes that a create starts, and its peak memory."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .bundle import Bundle
from .containers import Runtime, new_id, pid_of
from .measure import BenchError, reap
from .rig import Rig, run
from .rows import GPUS, bundle, gpushim, runc
from .statistics import memory_bar

# What a create with GPUs may start besides the low-level runtime's own, by program.
ALLOWED = {"sh": 1, "grep": 2, "python": 1, "mount": 1}
_LIVES = 5
_SECONDS = 60.0
_EXEC = re.compile(r'^execve\("([^"]*)".*\)\s+= 0$')
_CLONE = re.compile(r"^(?:clone3?|v?fork)\((.*)\)\s+= [1-9]")


@dataclass(frozen=True)
class Count:
    """One line of the table that has no times."""

    title: str
    base: str
    other: str
    bar: str
    held: bool


@dataclass(frozen=True)
class Started:
    """What one create started: programs by name, and processes, those of no program included."""

    programs: Counter[str]
    processes: int


def memory(rig: Rig) -> Count:
    """Peak memory of a create: of its largest process, in MB."""
    where = bundle(rig, "gpu")
    base = median([_peak(rig, runc(rig), where) for _ in range(_LIVES)])
    runtime = gpushim(rig, rig.installation(GPUS))
    other = median([_peak(rig, runtime, where) for _ in range(_LIVES)])
    bar = memory_bar(base)
    return Count(
        f"peak memory of a create, {GPUS} GPUs",
        f"{base / 1024:.1f} MB",
        f"{other / 1024:.1f} MB",
        f"{bar / 1024:.1f} MB",
        other <= bar,
    )


def _peak(rig: Rig, runtime: Runtime, where: Bundle) -> float:
    container = new_id()
    where.renew(container)
    result = where.path / "peak"
    command = [rig.programs["peak"], str(result), *runtime.create_command(where, container)]
    rig.caller.call(command)
    _end(runtime, where, container)
    return float(result.read_text())


def _end(runtime: Runtime, where: Bundle, container: str) -> None:
    init = pid_of(where)
    runtime.call(where, "delete", "--force", container)
    reap(init)


def processes(rig: Rig) -> Count:
    """The programs that a create starts besides the low-level runtime's own."""
    where = bundle(rig, "gpu")
    base = _trace(rig, runc(rig), where)
    other = _trace(rig, gpushim(rig, rig.installation(GPUS)), where)
    extra, nameless = compare(base, other)
    shown = ", ".join(f"{n} {name}" for name, n in sorted(extra.items()))
    return Count(
        f"processes of a create, {GPUS} GPUs",
        f"{base.processes}",
        shown + (f", {nameless} of no program" if nameless else ""),
        "1 sh, 2 grep, 1 python, 1 mount",
        is_allowed(extra, nameless),
    )


def compare(base: Started, other: Started) -> tuple[Counter[str], int]:
    """What `other` started beyond `base`: programs, and processes that never became a program.

    sh and python are one process, which ends as the low-level runtime, so neither is one more.
    """
    extra = other.programs - base.programs
    more = sum(n for name, n in extra.items() if name not in ("sh", "python"))
    return extra, other.processes - base.processes - more


def is_allowed(extra: Counter[str], nameless: int) -> bool:
    """Whether so much may be started."""
    return nameless <= 0 and all(n <= ALLOWED.get(name, 0) for name, n in extra.items())


def read_trace(threads: Iterable[str], launcher: str) -> Started:
    """What strace -ff saw, given its text for each thread.

    A script's execve names the script, so the launcher is counted as the sh that reads it.
    """
    programs: Counter[str] = Counter()
    started = 1
    for text in threads:
        for line in text.splitlines():
            if found := _EXEC.match(line):
                programs[_name(found[1], launcher)] += 1
            elif (found := _CLONE.match(line)) and "CLONE_THREAD" not in found[1]:
                started += 1
    return Started(programs, started)


def _name(path: str, launcher: str) -> str:
    name = "sh" if path == launcher else path.rpartition("/")[2]
    name = "sh" if name in ("dash", "bash") else name
    return "python" if name.startswith("python") else name


def _trace(rig: Rig, runtime: Runtime, where: Bundle) -> Started:
    """Create a container under strace, which ends only when the container has."""
    container = new_id()
    where.renew(container)
    traces = where.path / f"trace-{container[:8]}"
    traces.mkdir()
    calls = "trace=execve,clone,clone3,fork,vfork"
    command = [strace(), "-ff", "-qq", "-s", "4096", "-e", "signal=none", "-e", calls]
    command += ["-o", str(traces / "t"), *runtime.create_command(where, container)]
    pid = rig.caller.spawn(command)
    _wait_for(where.path / "init.pid", runtime, where, container)
    init = pid_of(where)
    runc(rig).call(where, "delete", "--force", container)
    reap(pid)
    reap(init)
    texts = [path.read_text(errors="replace") for path in traces.iterdir()]
    return read_trace(texts, rig.installation(GPUS).launcher)


def _wait_for(pid_file: Path, runtime: Runtime, where: Bundle, container: str) -> None:
    """Wait until a create that runs beside this process has made its container."""
    state = runtime.state / container / "state.json"
    deadline = time.monotonic() + _SECONDS
    # Both are written when hooks have run; the create ends at once behind them.
    while not (pid_file.exists() and pid_file.read_text() and state.exists()):
        if time.monotonic() > deadline:
            raise BenchError(f"A create under strace made no container in {_SECONDS:g} seconds.")
        time.sleep(0.05)
    time.sleep(0.2)


def strace() -> str:
    """The path of strace, which is installed where it is missing and apt can."""
    if shutil.which("strace") is None and shutil.which("apt-get"):
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", "strace")
    found = shutil.which("strace")
    if found is None:
        raise BenchError("strace is not installed.")
    return found
