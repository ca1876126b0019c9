"""What the bench reads out of strace's and Python's reports."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.bench.counts import Started, compare, is_allowed, read_trace
from tests.bench.profile import importtime

LAUNCHER = "/root/usr/local/bin/gpushim"
RUNC = [
    'execve("/usr/sbin/runc", ["runc", "create"], 0x7ffd /* 3 vars */) = 0\n'
    "clone3({flags=CLONE_VM|CLONE_THREAD, child_tid=0x7f}, 88) = 12\n"
    "clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD) = 13\n",
    'execve("/proc/self/exe", ["runc", "init"], 0xc0 /* 7 vars */) = 0\n'
    "clone(child_stack=0x7ffd, flags=CLONE_PARENT|SIGCHLD) = 14\n",
]
GPUSHIM = [
    f'execve("{LAUNCHER}", ["gpushim", "create"], 0x7ffd /* 3 vars */) = 0\n'
    "vfork()                                 = 9\n"
    'execve("/usr/bin/python3", ["python3", "-I"], 0x55 /* 5 vars */) = 0\n' + RUNC[0],
    'execve("/usr/local/bin/grep", ["grep"], 0x55) = -1 ENOENT (No such file or directory)\n'
    'execve("/usr/bin/grep", ["grep", ") = 0"], 0x55 /* 5 vars */) = 0\n',
    RUNC[1] + "clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD) = 8\n",
    'execve("/usr/bin/mount", ["mount", "-n"], 0xc0 /* 1 var */) = 0\n',
]


def test_reading_traces() -> None:
    """Threads are no processes, and what failed started nothing."""
    base, other = read_trace(RUNC, LAUNCHER), read_trace(GPUSHIM, LAUNCHER)
    assert base == Started(Counter(runc=1, exe=1), 3)
    assert other.processes == 5
    extra, nameless = compare(base, other)
    assert extra == Counter(sh=1, grep=1, python=1, mount=1)
    assert nameless == 0
    assert is_allowed(extra, nameless)


def test_a_process_that_never_becomes_a_program_is_seen() -> None:
    """As a subshell of the launcher would be."""
    subshell = [*GPUSHIM, "clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD) = 30\n"]
    extra, nameless = compare(read_trace(RUNC, LAUNCHER), read_trace(subshell, LAUNCHER))
    assert nameless == 1
    assert not is_allowed(extra, nameless)


@pytest.mark.parametrize(
    "line",
    [
        'execve("/usr/bin/python3.11", ["python3.11"], 0x55 /* 5 vars */) = 0\n',
        'execve("/usr/bin/bash", ["sh"], 0x55 /* 5 vars */) = 0\n',
        'execve("/usr/sbin/ldconfig", ["ldconfig"], 0x55 /* 5 vars */) = 0\n',
        'execve("/usr/bin/mount", ["mount"], 0x55 /* 5 vars */) = 0\n',
    ],
)
def test_a_program_too_many_is_seen(line: str) -> None:
    extra, nameless = compare(read_trace(RUNC, LAUNCHER), read_trace([*GPUSHIM, line], LAUNCHER))
    assert not is_allowed(extra, nameless)


def test_two_greps_are_allowed() -> None:
    assert is_allowed(Counter(sh=1, grep=2, python=1, mount=1), 0)
    assert not is_allowed(Counter(grep=3), 0)


def test_import_times() -> None:
    shown = importtime(
        "import time: self [us] | cumulative | imported package\n"
        "import time:       200 |        200 |   posix\n"
        "import time:      1500 |       1700 | gpushim.create\n"
        "something else\n"
    )
    assert "2 modules 1.7 ms, of them gpushim's 1 1.5 ms" in shown
    assert shown.splitlines()[1].split() == ["1.50", "gpushim.create"]
