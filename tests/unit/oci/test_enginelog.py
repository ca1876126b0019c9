from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from gpushim.oci.enginelog import append_line, write_error
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(max_size=40))
def test_each_message_is_one_line_that_an_engine_reads(
    tmp_path_factory: pytest.TempPathFactory, message: str
) -> None:
    """B21."""
    path = tmp_path_factory.getbasetemp() / "engine.log"
    path.unlink(missing_ok=True)
    path.write_text('{"level":"warning","msg":"of before"}\n')
    assert write_error(str(path), "json", message)
    _, line = path.read_text().splitlines()
    entry = json.loads(line)
    assert entry["msg"] == message
    assert entry["level"] == "error"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["time"])
    for log_format in ("text", "", "unknown"):
        assert write_error(str(path), log_format, message)
        line = path.read_text().splitlines()[-1]
        found = re.fullmatch(r'time="[^"]+" level=error msg=(".*")', line)
        assert found
        assert json.loads(found.group(1)) == message


def test_a_log_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "no" / "log", tmp_path, tmp_path / "fifo", Path("/dev/full")):
        assert not append_line(str(path), "x")
