"""gpushim's own log: whole lines, bounded, and never in the way."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from gpushim.log import Log
from gpushim.oci.enginelog import append_line
from gpushim.oci.jsontext import dumps


def opened(path: Path, level: str = "info", max_size: int = 0) -> Log:
    log = Log(append_line)
    log.path, log.level, log.max_size = str(path), level, max_size
    return log


def test_one_line_holds_all(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    log.fields["id"] = "c1\n\ud800"
    log.step("a")
    log.warn("careful")
    log.write("info", "granted", dumps)
    (line,) = (tmp_path / "log").read_text().splitlines()
    entry = json.loads(line)
    assert list(entry)[:3] == ["time", "level", "msg"]
    assert entry["id"] == "c1\n\ud800"
    assert entry["warnings"] == ["careful"]
    assert entry["steps_ms"].keys() == {"a"}


def test_levels(tmp_path: Path) -> None:
    for level, lines in (("debug", 4), ("info", 3), ("warning", 2), ("error", 1)):
        path = tmp_path / level
        for of_line in ("debug", "info", "warning", "error"):
            opened(path, level).write(of_line, "x", dumps)
        assert len(path.read_text().splitlines()) == lines


def test_it_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(200):
        opened(path, max_size=2000).write("info", "x" * 100, dumps)
    assert path.stat().st_size < 2300
    assert (tmp_path / "log.1").stat().st_size < 2300
    assert len(list(tmp_path.iterdir())) == 2
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_lines_of_several_writers_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def write() -> None:
        for _ in range(50):
            opened(path).write("info", "y" * 5000, dumps)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 200


def test_a_log_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "log", Path("/dev/full"), Path("/proc/version")):
        opened(path, max_size=1).write("error", "x", dumps)
    Log(append_line).write("error", "x", dumps)
