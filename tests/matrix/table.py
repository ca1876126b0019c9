"""The table of a run of the matrix, as Markdown for people and as JSON."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.matrix.checks import CHECKS

_INTRODUCTION = """# What was run on which engine

Written by `make matrix` from its own results; nothing here is filled in by hand. `yes` was run and
holds, `NO` was run and failed, and an empty cell was not run. The notes say why something could
not be.
"""


@dataclass(frozen=True)
class Outcome:
    """A test's end: "passed", "failed" or "skipped", and what it recorded."""

    outcome: str
    properties: dict[str, Any]

    @property
    def mark(self) -> str:
        if "not here" in self.properties:
            return ""
        return {"passed": "yes", "failed": "NO"}.get(self.outcome, "")


def write(directory: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """matrix.md and matrix.json in a directory."""
    commit = subprocess.run(
        ["git", "-C", directory, "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    table, data = directory / "matrix.md", directory / "matrix.json"
    table.write_text(f"{_INTRODUCTION}\nRun on {day}, commit {commit}.\n{_sections(outcomes)}")
    machines = [_machine(found) for _, found in sorted(_places(outcomes).items())]
    found = {"date": day, "commit": commit, "machines": machines}
    data.write_text(json.dumps(found, indent=1) + "\n")
    return [table, data]


def _facts(outcome: Outcome) -> dict[str, str]:
    facts: dict[str, str] = json.loads(outcome.properties["facts"])
    return facts


def _machine(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A machine's versions, and way -> check -> "yes", "NO" or why it was not run."""
    results: dict[str, dict[str, str]] = {}
    for each in outcomes:
        of_way = results.setdefault(each.properties["way"], {})
        reason = each.properties.get("not here", "")
        of_way[each.properties["check"]] = each.mark or f"not run{reason and f': {reason}'}"
    return {"suite": outcomes[0].properties["suite"], **_facts(outcomes[0]), "results": results}


def _places(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """What was seen on each machine."""
    places: dict[tuple[str, str], list[Outcome]] = {}
    for each in outcomes:
        key = (each.properties["suite"], each.properties["place"])
        places.setdefault(key, []).append(each)
    return places


def _sections(outcomes: Sequence[Outcome]) -> str:
    return "".join(_section(found) for _, found in sorted(_places(outcomes).items()))


def _section(outcomes: Sequence[Outcome]) -> str:
    facts = _facts(outcomes[0])
    title = f"\n## Docker {facts['docker']}, cgroup {facts['cgroups']}\n\n"
    names = ("containerd", "runc", "systemd", "python", "kernel")
    versions = ", ".join(f"{name} {facts[name]}" for name in names if facts.get(name))
    ways = list(dict.fromkeys(each.properties["way"] for each in outcomes))
    ran = {each.properties["check"] for each in outcomes}
    rows = [title for title in CHECKS if title in ran]
    marks = {(each.properties["check"], each.properties["way"]): each.mark for each in outcomes}
    lines = [f"| | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    lines += [
        f"| {row} | {' | '.join(marks.get((row, way), '') for way in ways)} |" for row in rows
    ]
    notes = sorted(
        {
            f"{each.properties['check']}: {each.properties['not here']}."
            for each in outcomes
            if "not here" in each.properties
        }
    )
    told = "".join(f"\n* {note}" for note in notes)
    return f"{title}{versions}.\n\n" + "\n".join(lines) + "\n" + (f"{told}\n" if told else "")
