"""Programs that are run for a bounded time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from gpushim.host import bounded, helpers


def shell(script: str, limit: float = 10.0, **more: object) -> bounded.Outcome:
    return bounded.run(["/bin/sh", "-c", script], limit, **more)  # type: ignore[arg-type]


def test_output_and_status() -> None:
    found = shell("echo one; echo two >&2; printf three; exit 7")
    assert (found.status, found.lines, found.last_words) == (7, ["one", "two", "three"], "three")


def test_a_signal() -> None:
    assert shell("kill -9 $$").status == -9


def test_the_limit() -> None:
    began = time.monotonic()
    found = shell("echo one; sleep 30", 0.3)
    assert (found.status, found.lines) == (None, ["one"])
    assert time.monotonic() - began < 3


def test_a_program_that_closes_its_output_is_limited_too() -> None:
    began = time.monotonic()
    assert shell("exec >&- 2>&-; sleep 30", 0.3).status is None
    assert time.monotonic() - began < 3


def test_a_daemon_that_keeps_the_output_is_not_waited_for() -> None:
    began = time.monotonic()
    assert shell("sleep 5 & exit 3").status == 3
    assert time.monotonic() - began < 3


def test_a_line_can_give_more_time() -> None:
    script = "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done"
    found = shell(script, 0.6, on_line=lambda line: 0.6)
    assert (found.status, found.lines) == (0, ["1", "2", "3", "4", "5"])


def test_nothing_is_inherited_but_what_is_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        found = shell(
            "tr '\\0' '\\n' < /proc/$$/environ | cut -d= -f1 | sort; readlink /proc/$$/fd/3;"
            "readlink /proc/$$/fd/0; grep SigIgn /proc/$$/status",
            descriptor=descriptor,
        )
    finally:
        os.close(descriptor)
    assert found.lines[:4] == ["LC_ALL", "PATH", str(path), "/dev/null"]
    ignored = int(found.lines[4].split()[1], 16)
    assert not ignored & (1 << 12), "SIGPIPE is ignored"


def test_it_works_without_standard_descriptors() -> None:
    """An engine may have closed them: then the pipe itself is among 0 to 3."""
    pid = os.fork()
    if pid == 0:
        os.closerange(0, 4)
        found = shell("echo one; readlink /proc/$$/fd/0")
        os._exit(0 if found.lines == ["one", "/dev/null"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_no_descriptor_is_left() -> None:
    before = os.listdir("/proc/self/fd")
    shell("echo one")
    with pytest.raises(OSError):
        bounded.run(["/nonexistent"], 1)
    assert os.listdir("/proc/self/fd") == before


def test_helpers_must_be_programs_with_an_absolute_path(tmp_path: Path) -> None:
    good, directory, plain = tmp_path / "good", tmp_path / "directory", tmp_path / "plain"
    for path in (good, directory, plain):
        path.mkdir()
    (directory / "modprobe").mkdir()
    (plain / "modprobe").touch()
    (good / "modprobe").touch()
    (good / "modprobe").chmod(0o755)
    places = ["/nonexistent", "relative", str(directory), str(plain), str(good)]
    assert helpers.find(places, "modprobe") == str(good / "modprobe")
    assert helpers.find(places[:4], "modprobe") == ""
