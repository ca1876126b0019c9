"""A part of the unified control group hierarchy that belongs to one rig."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from tests.images import ImageUnavailable

_PREFIX = "gpushim-rig-"


def _unified() -> Path:
    """Where the unified hierarchy is mounted: as the only one, or beside those of version 1."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point, kind = line.split()[1:3]
        if kind == "cgroup2":
            return Path(point)
    raise ImageUnavailable("there is no unified cgroup hierarchy")


def _remove(directory: Path, patience: float) -> None:
    """Remove a group and all below it, as soon as no process is left in them."""
    deadline = time.monotonic() + patience
    while directory.is_dir():
        for path, _, _ in os.walk(directory, topdown=False):
            try:
                os.rmdir(path)
            except OSError:
                pass  # somebody is still in it
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


class UnifiedPart:
    """A group of its own; whoever starts in it sees it as the root in a new cgroup namespace."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._within = ""

    @property
    def procs(self) -> Path:
        """The file that takes the pids of processes that shall be in it."""
        assert self._path is not None
        return self._path / self._within / "cgroup.procs"

    def use(self, within: str) -> None:
        """Have processes be put into a group within it from now on."""
        assert self._path is not None
        (self._path / within).mkdir(exist_ok=True)
        self._within = within

    def make(self) -> None:
        """Make the group, and collect those that killed sessions have left.

        Raises ImageUnavailable if this machine has no unified hierarchy that can be written.
        """
        unified = _unified()
        for path in unified.glob(f"{_PREFIX}*"):
            owner = re.fullmatch(r"(\d+)-\d+", path.name.removeprefix(_PREFIX))
            if owner and not Path(f"/proc/{owner[1]}").exists():
                _remove(path, 0)
        path = unified / f"{_PREFIX}{os.getpid()}-{id(self)}"
        try:
            path.mkdir()
        except OSError as error:
            raise ImageUnavailable(f"no control group can be made: {error.strerror}") from error
        self._path = path

    def remove(self) -> None:
        if self._path is not None:
            _remove(self._path, 10)
