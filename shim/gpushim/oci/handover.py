"""The exec into the low-level runtime, with everything as the launcher was given it."""

from __future__ import annotations

import _signal  # signal itself imports enum
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Python ignores these at its start (signal(7); CPython, Python/pylifecycle.c).
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


class Given:
    """What the launcher knew of its caller before Python altered it.

    stat: the line of /proc/<pid>/stat, whose field 33 is the mask of ignored signals (proc(5));
    lc_ctype: None where the variable was not set. start_time: of this process, in clock ticks
    since boot.
    """

    __slots__ = ("ignored", "lc_ctype", "start_time")

    def __init__(self, stat: str, lc_ctype: str | None) -> None:
        fields = stat.rpartition(")")[2].split()
        # The first field behind the name in parentheses is the third of proc(5)'s list.
        self.ignored = int(fields[30]) if len(fields) > 30 else 0
        self.start_time = int(fields[19]) if len(fields) > 19 else 0
        self.lc_ctype = lc_ctype


def become(program: str, arguments: list[str], given: Given) -> NoReturn:
    """Replaces this process by `program`; raises OSError if the kernel refuses."""
    for name in _IGNORED_BY_PYTHON:
        number = getattr(_signal, name)
        if not given.ignored >> (number - 1) & 1:
            _signal.signal(number, _signal.SIG_DFL)
    if given.lc_ctype is None:
        posix.unsetenv(b"LC_CTYPE")
    else:
        posix.putenv(b"LC_CTYPE", given.lc_ctype.encode("utf-8", "surrogateescape"))
    # execv hands on the process's own environment, which nothing here has altered otherwise.
    posix.execv(program, [program, *arguments])
