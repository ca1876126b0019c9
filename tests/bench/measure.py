"""One call of a program as an engine makes it, with its wall and CPU time."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from .statistics import Sample

# What containerd's shim has when it calls a runtime.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "NAMESPACE": "moby",
    "TTRPC_ADDRESS": "/run/containerd/containerd.sock.ttrpc",
}
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# Python ignores these; engines do not, and a child would inherit that.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)


class BenchError(Exception):
    """The bench itself cannot go on; the text is for the person who started it."""


def become_subreaper() -> None:
    """From now on, init processes of containers are children of this process when runc has ended.

    That is what makes their CPU time known.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise BenchError(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}")


class Caller:
    """Calls programs with small environments and /dev/null, and tells what they took."""

    def __init__(self, directory: Path) -> None:
        self._errors = directory / "stderr"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._errors, flags, 0o600)

    def close(self) -> None:
        os.close(self._descriptor)

    def spawn(self, command: list[str]) -> int:
        """Start a program and return its pid."""
        return os.posix_spawn(
            command[0],
            command,
            ENVIRONMENT,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, self._descriptor, 2),
            ],
            setsigdef=_DEFAULT_SIGNALS,
        )

    def call(self, command: list[str]) -> Sample:
        """Run a program to its end. Raises BenchError, with what it said, if it fails."""
        began = time.perf_counter_ns()
        pid = self.spawn(command)
        _, status, used = os.wait4(pid, 0)
        ended = time.perf_counter_ns()
        if status != 0:
            self.fail(command, status)
        return Sample((ended - began) / 1e6, (used.ru_utime + used.ru_stime) * 1e3)

    def fail(self, command: list[str], status: int) -> None:
        """Raise BenchError for a call that ended with a wait status."""
        words = self._errors.read_text(errors="replace")[-2000:].strip()
        number = os.waitstatus_to_exitcode(status)
        raise BenchError(f"{' '.join(command)} ended with {number}: {words}")


def reap(pid: int) -> float:
    """Wait for a process that has become this one's child; return its CPU time in milliseconds."""
    try:
        _, _, used = os.wait4(pid, 0)
    except ChildProcessError:
        return 0.0  # it was reaped as one of many by `reap_all`
    return (used.ru_utime + used.ru_stime) * 1e3


def reap_all() -> None:
    """Reap every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
