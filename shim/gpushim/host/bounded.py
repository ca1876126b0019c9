"""Runs another program for a bounded time, with nothing of this process's environment.

A driver that is ill can leave a process that no signal ends. So nothing here waits without a
limit, for the end of the process no more than for its output.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from _signal import SIGKILL, SIGPIPE, SIGXFSZ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
}
_MAXIMUM_BYTES = 64 << 20
_TICK_SECONDS = 0.1
_REAP_SECONDS = 1.0


class Outcome:
    """How a run ended.

    status: exit status, negative the number of the signal that ended it, None if it did not end
    in time; lines: what it wrote to stdout and stderr, in order, without line ends.
    """

    __slots__ = ("lines", "status")

    def __init__(self, status: int | None, lines: list[str]) -> None:
        self.status = status
        self.lines = lines

    @property
    def last_words(self) -> str:
        """The last line that is not blank, shortened: what a program that failed says of it."""
        said = [line.strip() for line in self.lines if line.strip()]
        return said[-1][-300:] if said else ""


def run(
    arguments: list[str],
    limit: float,
    on_line: Callable[[str], float | None] | None = None,
    descriptor: int | None = None,
) -> Outcome:
    """Run arguments[0], an absolute path, for at most `limit` seconds; then it is killed.

    on_line is called with each line as it comes, and may return a new limit in seconds from now.
    descriptor: an open file that the program gets as its descriptor 3. Raises OSError if the
    program can't be started.
    """
    reading, writing = os.pipe()
    try:
        try:
            pid = _spawn(arguments, writing, descriptor)
        finally:
            os.close(writing)
        return _follow(pid, reading, time.monotonic() + limit, on_line)
    finally:
        os.close(reading)


def _spawn(arguments: list[str], writing: int, descriptor: int | None) -> int:
    # Copies out of the way of 0 to 3 first: with standard descriptors closed, the originals may
    # be among them. The copies close themselves when the program is executed.
    copies = [fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 10)]
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, copies[0], 1),
        (os.POSIX_SPAWN_DUP2, copies[0], 2),
    ]
    try:
        if descriptor is not None:
            copies.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10))
            actions.append((os.POSIX_SPAWN_DUP2, copies[1], 3))
        return os.posix_spawn(
            arguments[0],
            arguments,
            ENVIRONMENT,
            file_actions=actions,
            setsigmask=(),
            setsigdef=(SIGPIPE, SIGXFSZ),  # Python ignores these, and so would what it starts
        )
    finally:
        for copy in copies:
            os.close(copy)


def _follow(
    pid: int, reading: int, deadline: float, on_line: Callable[[str], float | None] | None
) -> Outcome:
    """Read what the process writes until it ends or its time is over.

    The end of the process counts, and not only that of its output: a daemon that it started may
    hold the pipe for good.
    """
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    lines: list[str] = []
    rest = b""
    size = 0
    status: int | None = None
    while size < _MAXIMUM_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        if not poll.poll(min(left, _TICK_SECONDS) * 1000):
            if status is not None:
                break
            status = _wait(pid, 0.0)
            continue
        part = os.read(reading, 1 << 16)
        size += len(part)
        *whole, rest = (rest + part).split(b"\n")
        if not part and rest:
            whole.append(rest)
        for line in (one.decode("utf-8", "replace") for one in whole):
            lines.append(line)
            more = on_line(line) if on_line else None
            if more is not None:
                deadline = time.monotonic() + more
        if not part:
            break
    if status is None:
        status = _wait(pid, deadline)
    if status is None:
        os.kill(pid, SIGKILL)
        _wait(pid, time.monotonic() + _REAP_SECONDS)
    return Outcome(status, lines)


def _wait(pid: int, deadline: float) -> int | None:
    """The exit status of a process once it has ended; None if it has not by the deadline.

    Where SIGCHLD is ignored the kernel keeps no status: it then counts as 0, and what the program
    was to do has to be looked at.
    """
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)
