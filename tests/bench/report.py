"""The table that is printed, the facts of the machine beside it, and the same as JSON."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import statistics
from .counts import Count
from .rig import Rig, run
from .rows import GPUS, Row
from .statistics import Summary

_HEAD = (
    "row", "base", "base ms", "ms", "diff ms", "ratio", "CPU diff", "CPU ratio", "init+hooks CPU",
    "bar", "",
)  # fmt: skip

_FIGURE = re.compile(r"[+-]?[0-9]")


@dataclass(frozen=True)
class Timed:
    """A row with its figures."""

    row: Row
    base: str
    summary: Summary

    @property
    def held(self) -> bool:
        return statistics.holds(self.summary.ratio, self.row.bar)


@dataclass(frozen=True)
class Results:
    """One run: what was timed, what was counted, and how the row that decides came out."""

    timed: list[Timed]
    counted: list[Count]

    @property
    def quiet(self) -> bool:
        return statistics.is_quiet(t.summary.ratio for t in self.timed if t.row.decides)

    @property
    def status(self) -> int:
        held = [*(t.held for t in self.timed), *(c.held for c in self.counted)]
        return statistics.status(self.quiet, held)


def facts(rig: Rig) -> dict[str, str]:
    """What a reader must know of the machine."""
    python = rig.installation(GPUS).python
    return {
        "CPU": f"{_cpu()}, {os.cpu_count()} of them",
        "kernel": platform.release(),
        "runc": f"{run(rig.runc, '--version').splitlines()[0]} ({rig.runc})",
        "python": f"{run(python, '-I', '-S', '--version').strip()} ({python})",
        "/bin/sh": os.path.realpath("/bin/sh"),
        "cgroups": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def table(results: Results) -> str:
    """All rows, aligned."""
    lines = [list(_HEAD), *(_timed(t) for t in results.timed)]
    text = _aligned(lines)
    if results.counted:
        counted = [["row", "runc", "gpushim", "bar", ""]]
        counted += [[c.title, c.base, c.other, c.bar, _verdict(c.held)] for c in results.counted]
        text += "\n\n" + _aligned(counted)
    return text


def _timed(timed: Timed) -> list[str]:
    s, row = timed.summary, timed.row
    later = f"{s.later_difference:+.1f}" if s.later_difference else ""
    if row.decides:
        low, high = statistics.QUIET
        bar, verdict = f"{low} to {high}", "quiet" if statistics.is_quiet([s.ratio]) else "NOISY"
    else:
        bar = "" if row.bar is None else f"{row.bar:g}"
        verdict = "" if row.bar is None else _verdict(timed.held)
    figures = [f"{s.base:.1f}", f"{s.other:.1f}", f"{s.difference:+.1f}", f"{s.ratio:.2f}"]
    cpu = [f"{s.cpu_difference:+.1f}", f"{s.cpu_ratio:.2f}"]
    return [row.title, timed.base, *figures, *cpu, later, bar, verdict]


def _verdict(held: bool) -> str:
    return "ok" if held else "MISSED"


def _aligned(lines: list[list[str]]) -> str:
    """Columns as wide as their widest cell; what begins with a figure is set to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [
            cell.rjust(width) if place and _FIGURE.match(cell) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def to_json(results: Results, machine: dict[str, str]) -> dict[str, Any]:
    """Everything, as plain data; times in milliseconds."""
    return {
        "format": 1,
        "machine": machine,
        "quiet": results.quiet,
        "status": results.status,
        "timed": [
            {
                "row": t.row.title,
                "base_is": t.base,
                "bar": t.row.bar,
                "held": t.held,
                **asdict(t.summary),
            }
            for t in results.timed
        ],
        "counted": [asdict(c) for c in results.counted],
    }
