"""How well each two GPUs are connected, as one number: a matrix that allocation maximises over.

PCIe connections have the numbers of `pcitree`. An NVLink connection is worth 100 times its nominal
bandwidth in GB/s per direction, plus the number of its links, so that any of them is better than
any PCIe, more bandwidth is better than less, and `label` can tell the number of links.
"""

from __future__ import annotations

from typing import Any

from .model import Gpu, Inventory
from .pcitree import (
    NODE,
    PHB,
    PIX,
    PXB,
    SYS,
    Place,
    closeness,
    node_cpus,
    nvswitches,
    only_node,
    place,
)

# The far end of an NVLink that ends in an NVSwitch, in place of a GPU's bus id.
SWITCH = "switch"

_NVLINK = 100
_PCIE_LABELS = {0: "X", SYS: "SYS", NODE: "NODE", PHB: "PHB", PXB: "PXB", PIX: "PIX"}
# One link's bandwidth per direction in GB/s, by compute capability: NVML's own version numbers
# differ between drivers (some call an H100's links version 5), so these are what counts, as in
# NCCL (src/graph/topo.h), with the nominal figures of NVIDIA's architecture papers.
_LINK_SPEEDS = {"6.0": 20, "8.6": 14}
_LINK_SPEED = 25
_LINK_SPEED_SINCE_BLACKWELL = 50


class NvLinks:
    """The NVLinks of one GPU that are up.

    ends: for each its far end, `SWITCH` or a GPU's bus id; fabric: names the NVSwitch fabric that
    the GPU has joined, "" where the driver names none.
    """

    __slots__ = ("ends", "fabric")

    def __init__(self, ends: list[str], fabric: str = "") -> None:
        self.ends = ends
        self.fabric = fabric


def matrix(gpus: list[Gpu], places: list[Place], wired: list[NvLinks]) -> list[list[int]]:
    """The number for each two GPUs, by their indices; larger is better, 0 on the diagonal.

    places and wired: of each GPU, in their order. A GPU in MIG mode reaches no other by NVLink
    (NVIDIA's MIG user guide, "Application Considerations").
    """
    none = NvLinks([])
    ends = [none if gpu.mig_enabled else own for gpu, own in zip(gpus, wired, strict=True)]
    rows = [[0] * len(gpus) for _ in gpus]
    for i, one in enumerate(gpus):
        for j in range(i):
            count = _links_between(one, ends[i], gpus[j], ends[j])
            speed = min(_link_speed(one), _link_speed(gpus[j]))
            pcie = closeness(places[i], places[j])
            rows[i][j] = rows[j][i] = _NVLINK * count * speed + count if count else pcie
    return rows


def add(inventory: Inventory, said: dict[str, dict[str, Any]], sys_root: str) -> None:
    """Puts topology and processors into the inventory.

    said: bus id -> NVML's line on a GPU (see nvml_worker), of which those of GPUs that are in
    trouble have no links; without any, what sysfs tells of PCIe is all.
    """
    only = only_node(sys_root)
    switches = nvswitches(sys_root)
    wired = []
    for gpu in inventory.gpus:
        line = said.get(gpu.bus_id, {})
        ends = [SWITCH if end in switches else end for end in line.get("nvlinks", [])]
        wired.append(NvLinks(ends, line.get("fabric", "")))
    places = [place(sys_root, gpu.bus_id, only) for gpu in inventory.gpus]
    inventory.topology = matrix(inventory.gpus, places, wired)
    inventory.cpus = node_cpus(sys_root)


def label(value: int) -> str:
    """What `nvidia-smi topo -m` calls a connection: X, SYS, NODE, PHB, PXB, PIX, NV<links>."""
    return _PCIE_LABELS.get(value) or f"NV{value % _NVLINK}"


def _links_between(one: Gpu, own: NvLinks, other: Gpu, others: NvLinks) -> int:
    """The number of NVLinks that join two GPUs: direct ones, and those through NVSwitches.

    All that are on the same switches reach each other with all their links. A link is up when both
    its ends are.
    """
    direct = min(own.ends.count(other.bus_id), others.ends.count(one.bus_id))
    if own.fabric != others.fabric:
        return direct
    return direct + min(own.ends.count(SWITCH), others.ends.count(SWITCH))


def _link_speed(gpu: Gpu) -> int:
    capability = gpu.compute_capability or ""
    major = capability.partition(".")[0]
    if major.isdecimal() and int(major) >= 10:
        return _LINK_SPEED_SINCE_BLACKWELL
    return _LINK_SPEEDS.get(capability, _LINK_SPEED)
