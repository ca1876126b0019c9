"""Where the time of gpushim's own part of a create goes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from .bundle import Bundle
from .containers import Runtime, new_id
from .measure import ENVIRONMENT
from .rig import Installation, Rig
from .rows import GPUS, bundle, check_grant, gpushim
from .statistics import Sample

_SLOWEST = 12
# -X importtime: "import time: self [us] | cumulative | imported package"
_IMPORT = re.compile(r"^import time:\s+(\d+) \|\s+(\d+) \|(\s+)(\S+)$")


def text(rig: Rig, times: int) -> str:
    """The report: parts by wall time, steps by gpushim's own log, imports by Python's."""
    installation = rig.installation(GPUS, alone=True)
    runtime = gpushim(rig, installation)
    where = bundle(rig, "gpu")
    check_grant(rig, runtime, GPUS, where)
    parts = _parts(rig, installation, runtime, where, times)
    return "\n\n".join(
        (
            f"Wall and CPU time, medians of {times}, ms\n{_lines(parts)}",
            f"Steps of a create, as gpushim logs them, medians of {times}, ms\n"
            + _lines(steps(installation.log, times)),
            _imports(installation, runtime, where),
        )
    )


def _lines(figures: Mapping[str, Sequence[float]]) -> str:
    width = max(map(len, figures), default=0)
    return "\n".join(
        f"  {name.ljust(width)}  " + "  ".join(f"{value:7.2f}" for value in values)
        for name, values in figures.items()
    )


def _parts(
    rig: Rig, installation: Installation, runtime: Runtime, where: Bundle, times: int
) -> dict[str, tuple[float, float]]:
    noop, python = rig.programs["noop"], installation.python
    plain = bundle(rig, "plain")
    plain.renew(new_id())
    commands: dict[str, Callable[[], list[str]]] = {
        "a program that does nothing": lambda: [noop],
        "launcher, pass-through (state)": lambda: runtime.command(plain, "state", "c"),
        "launcher, create without a request": lambda: runtime.create_command(plain, new_id()),
        "python3 -I -S -c pass": lambda: [python, "-I", "-S", "-c", "pass"],
        "python3 -I -S, left without clearing up": lambda: [
            *(python, "-I", "-S", "-c", "import posix; posix._exit(0)")
        ],
        f"gpushim alone, {GPUS} GPUs": lambda: runtime.create_command(where, _renewed(where)),
    }
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for _ in range(times):
        for name, command in commands.items():
            samples[name].append(rig.caller.call(command()))
    return {
        name: (median(s.wall for s in found), median(s.cpu for s in found))
        for name, found in samples.items()
    }


def _renewed(where: Bundle) -> str:
    container = new_id()
    where.renew(container)
    return container


def steps(log: Path, times: int) -> dict[str, tuple[float, ...]]:
    """Each step's own time and the time at its end, from the last lines of gpushim's log."""
    lines = [json.loads(line)["steps_ms"] for line in log.read_text().splitlines()[-times:]]
    found: dict[str, tuple[float, ...]] = {}
    before: list[float] = [0.0] * len(lines)
    for name in lines[-1]:
        ends = [line[name] for line in lines]
        own = median(end - start for end, start in zip(ends, before, strict=True))
        found[name] = (own, median(ends))
        before = ends
    return found


def _imports(installation: Installation, runtime: Runtime, where: Bundle) -> str:
    """What Python says of its imports in one create, which a copy of the launcher asks it for."""
    launcher = Path(installation.launcher)
    text = launcher.read_text().replace(" -I -S ", " -I -S -X importtime ")
    copy = launcher.with_name("gpushim-importtime")
    copy.write_text(text)
    copy.chmod(0o755)
    command = runtime.create_command(where, _renewed(where))
    done = subprocess.run(
        [str(copy), *command[1:]], env=ENVIRONMENT, capture_output=True, text=True
    )
    return importtime(done.stderr)


def importtime(stderr: str) -> str:
    """The totals of -X importtime, and the slowest modules by their own time."""
    own: list[tuple[int, str]] = []
    for line in stderr.splitlines():
        if found := _IMPORT.match(line):
            own.append((int(found[1]), found[4]))
    ours = [item for item in own if item[1].split(".")[0] == "gpushim"]
    slowest = "\n".join(
        f"  {us / 1000:7.2f}  {name}" for us, name in sorted(own)[: -_SLOWEST - 1 : -1]
    )
    return (
        f"Imports of one create by -X importtime (which slows them): {len(own)} modules "
        f"{sum(us for us, _ in own) / 1000:.1f} ms, of them gpushim's {len(ours)} "
        f"{sum(us for us, _ in ours) / 1000:.1f} ms; the slowest by their own time\n{slowest}"
    )
