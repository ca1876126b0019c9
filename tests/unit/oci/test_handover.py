"""What /proc/<pid>/stat tells, whatever the process calls itself (proc(5))."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpushim.oci.handover import Given
from gpushim.records import start_time

NAMES = ["sh", "a b", "a) R 1", "(", ")", "((x)", "1 (2) 3", "", "gpushim"]


def line(name: str, ignored: int, started: int) -> str:
    fields = ["S", *("0" for _ in range(49))]
    fields[33 - 3], fields[22 - 3] = str(ignored), str(started)
    return f"42 ({name}) {' '.join(fields)}"


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_process_may_be_anything(name: str) -> None:
    given = Given(line(name, 4096, 77), None)
    assert (given.ignored, given.start_time) == (4096, 77)


@pytest.mark.parametrize("stat", ["", "1", "1 (x", "1 (x) R 2 3"])
def test_a_line_that_breaks_off_says_nothing(stat: str) -> None:
    assert (Given(stat, None).ignored, Given(stat, None).start_time) == (0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_real_process(tmp_path: Path, name: str) -> None:
    program = f"""
import ctypes, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ctypes.CDLL(None).prctl(15, {name!r}.encode(), 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdin
    process.stdout.readline()
    given = Given(Path(f"/proc/{process.pid}/stat").read_text(), None)
    assert given.ignored >> (signal.SIGXFSZ - 1) & 1
    assert not given.ignored >> (signal.SIGPIPE - 1) & 1
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    age = uptime - given.start_time / os.sysconf("SC_CLK_TCK")
    assert 0 <= age + 1 < 120
    assert start_time(process.pid) == given.start_time
    process.stdin.close()
    process.wait()
    process.stdout.close()
    assert start_time(process.pid) == 0
