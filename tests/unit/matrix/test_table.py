"""The table that a run of the matrix writes: what was run, what failed, and what was not run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.matrix.checks import CHECKS
from tests.matrix.table import Outcome, write

FACTS = json.dumps({"docker": "28.5", "runc": "1.3", "kernel": "6.18", "cgroups": "v2, systemd"})
FIRST, SECOND, THIRD = list(CHECKS)[:3]


def outcome(check: str, way: str, result: str, **more: str) -> Outcome:
    return Outcome(
        result,
        {"check": check, "way": way, "suite": "forky", "place": "x", "facts": FACTS, **more},
    )


def test_it_says_what_was_run(tmp_path: Path) -> None:
    outcomes = [
        outcome(SECOND, "a", "failed"),
        outcome(FIRST, "a", "passed"),
        outcome(FIRST, "b", "skipped"),
        outcome(THIRD, "a", "passed", **{"not here": "no systemd"}),
    ]
    table, data = write(tmp_path, outcomes)
    rows = [line for line in table.read_text().splitlines() if line.startswith("|")]
    assert rows == [
        "| | a | b |",
        "|---|---|---|",
        f"| {FIRST} | yes |  |",
        f"| {SECOND} | NO |  |",
        f"| {THIRD} |  |  |",
    ]
    assert "## Docker 28.5, cgroup v2, systemd" in table.read_text()
    assert f"* {THIRD}: no systemd." in table.read_text()
    (machine,) = json.loads(data.read_text())["machines"]
    assert machine["runc"] == "1.3"
    assert machine["results"] == {
        "a": {SECOND: "NO", FIRST: "yes", THIRD: "not run: no systemd"},
        "b": {FIRST: "not run"},
    }
