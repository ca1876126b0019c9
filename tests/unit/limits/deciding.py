"""A host's cgroups as values, and a decision about a spec on it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpushim.host.model import Gpu
from gpushim.limits.cgroups import Cgroups
from gpushim.limits.limits import Limits, limits_for
from gpushim.limits.present import Present, present_in
from gpushim.limits.settings import settings_of
from gpushim.oci.bundle import load
from gpushim.request.request import Request

GIB = 1 << 30
ALL = ("cpu", "cpuset", "memory", "pids", "io")
# Two sockets with two GPUs each; processors are counted across them, as Intel's are.
CPUS = {"0": "0-3,8-11", "1": "4-7,12-15"}
GPUS = [
    Gpu(index, f"GPU-{index}", index, f"0000:0{index}:00.0", "A100", numa_node=index // 2)
    for index in range(4)
]


class Host(Cgroups):
    """Cgroups that are told what they can do."""

    def __init__(
        self,
        version: int = 2,
        controllers: Collection[str] = ALL,
        without: Collection[str] = (),
        processors: Collection[int] = range(16),
        memory: Collection[int] = (0, 1),
        allowed: float = 0.0,
    ) -> None:
        self.version = version
        self.controllers = controllers
        self.without = without
        self.online = set(processors)
        self.memory = set(memory)
        self.allowed = allowed

    def has(self, controller: str) -> bool:
        return controller in self.controllers

    def has_file(self, name: str) -> bool:
        return name not in self.without

    def processors(self) -> set[int]:
        return self.online

    def memory_nodes(self) -> set[int]:
        return self.memory

    def processors_allowed(self) -> float:
        return self.allowed


def spec_with(directory: Path, spec: Any) -> Present:
    (directory / "config.json").write_text(json.dumps(spec))
    return present_in(load(str(directory), "config.json"))


def decided(
    resources: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    shares: Sequence[tuple[Gpu, float]] = ((GPUS[0], 1.0),),
    keys: Mapping[str, Any] | None = None,
    cpus: Mapping[str, str] | None = None,
    modes: Sequence[str] = (),
    host: Cgroups | None = None,
    present: Present | None = None,
) -> Limits:
    """What becomes of a spec with these linux.resources under this configuration."""
    request = Request([], [], {})
    for key, value in (keys or {}).items():
        request.keys[key] = value
        request.sources[key] = f"label gpushim.{key}={value}"
    return limits_for(
        present or Present(dict(resources or {})),
        shares,
        request,
        settings_of({"limits.numa": "off", **(values or {})}),
        CPUS if cpus is None else cpus,
        modes,
        host or Host(),
    )
