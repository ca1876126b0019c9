"""A look from inside a container of a rig: which GPUs it has, by name and by number."""

from __future__ import annotations

from tests.harness.bundle import PROBE
from tests.harness.seen import CONTROL, NODES, devices, outcomes, probe
from tests.rigs.rig import Rig

_NVIDIA_MAJOR = 195
_MINORS = range(8)
# A container may make any node (Docker leaves it that capability); opening it is another matter.
# In /dev that is possible where the root is read-only, too.
_MADE = [f"/dev/made{minor}" for minor in _MINORS]

LOOK = probe(
    ["open", *NODES],
    *(["mknod", path, str(_NVIDIA_MAJOR), str(minor)] for minor, path in enumerate(_MADE)),
    ["open", *_MADE],
    ["dlopen", "libcuda.so.1", "libnvidia-ml.so.1"],
    ["env"],
)
assert LOOK[0] == PROBE


class Seen:
    """What LOOK printed.

    ``nodes`` are the driver's nodes that are there, ``gpus`` the indices of the GPUs whose nodes
    can be opened, and ``allowed`` of those that could be, had the container the node (none where it
    may not make one).
    """

    def __init__(self, rig: Rig, text: str) -> None:
        found = outcomes(text)
        self.nodes = devices(text)
        minors = {rig.host.gpus[index].minor: index for index in range(len(rig.host.gpus))}
        self.gpus = sorted(
            minors[minor] for minor in _MINORS if self.nodes.get(f"nvidia{minor}") == "ENXIO"
        )
        opened = {minor: found[path] for minor, path in enumerate(_MADE)}
        assert set(opened.values()) <= {"ENXIO", "EPERM", "ENOENT"}, opened
        self.allowed = sorted(
            minors[minor] for minor, outcome in opened.items() if outcome == "ENXIO"
        )
        self.control = all(self.nodes.get(name) == "ENXIO" for name in CONTROL)
        self.libcuda = found.get("libcuda.so.1", "")
        self.nvml = found.get("libnvidia-ml.so.1", "")
        self.environment = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def has(self, *indices: int) -> bool:
        """Whether it has these GPUs, all that goes with them, and no others."""
        wanted = sorted(indices)
        loads = bool(self.libcuda and self.nvml)
        return self.gpus == wanted and self.allowed == wanted and self.control and loads

    def __repr__(self) -> str:
        return repr(vars(self))
