"""gpushimctl topology: how GPUs are connected to each other, to processors and to the network.

It is the matrix that placement goes by, in the words of `nvidia-smi topo -m`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..config import Config
from ..host import gpus, nics, procfiles
from ..host.model import Gpu, capability_key
from ..host.pcitree import Place, closeness, only_node, place
from ..host.topology import label
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import load, obtain
from . import installation, refresh
from .output import print_json, print_table, say, warn

LEGEND = """\
X     itself
SYS   PCIe, and the interconnect between NUMA nodes
NODE  PCIe, and the interconnect between host bridges of one NUMA node
PHB   PCIe, through the host bridge
PXB   PCIe, through several switches and no host bridge
PIX   PCIe, through one switch at most
NV#   that number of NVLinks"""

_AFFINITIES = ("CPU affinity", "NUMA affinity", "GPU NUMA id")
_UNKNOWN = "unknown"
_NONE = "N/A"


class Adapter:
    """A network adapter as a column.

    states: its RDMA devices and network interfaces -> "up", "down" or what else they are in.
    """

    __slots__ = ("name", "nic", "states")

    def __init__(self, number: int, nic: nics.Nic, states: dict[str, str]) -> None:
        self.name = f"NIC{number}"
        self.nic = nic
        self.states = states


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    installation.require(places)
    if load(places) is None:
        refresh.refuse_without_place(places, "topology")
    snapshot = obtain(places, capability_key(list(DEFAULT_CAPABILITIES)))
    found, sys_root = snapshot.inventory.gpus, snapshot.config.text("host.sys-root")
    only = only_node(sys_root)
    where = [place(sys_root, gpu.bus_id, only) for gpu in found]
    adapters = read_adapters(sys_root, only)
    sides = [affinity(snapshot.config, gpu) for gpu in found]
    if arguments.json:
        print_json(
            {
                **as_json(found, snapshot.inventory.topology, where, adapters, sides),
                "numa_nodes": snapshot.inventory.cpus,
                "problems": snapshot.problems,
            }
        )
        return 0
    headings, rows = table(found, snapshot.inventory.topology, where, adapters, sides)
    print_table(headings, rows, 1 + len(found))
    say(f"\n{LEGEND}")
    if adapters:
        say("")
    for adapter in adapters:
        names = [f"{name} ({state})" for name, state in adapter.states.items()]
        say(f"{adapter.name}  {adapter.nic.bus_id}  {', '.join(names)}")
    for problem in snapshot.problems:
        warn(problem)
    return 0


def table(
    found: Sequence[Gpu],
    matrix: Sequence[Sequence[int]],
    where: Sequence[Place],
    adapters: Sequence[Adapter],
    sides: Sequence[Sequence[str]],
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows; where and sides: place and affinities of each GPU."""
    names = [f"GPU{gpu.index}" for gpu in found]
    headings = ["", *names, *(adapter.name for adapter in adapters), *_AFFINITIES]
    rows = []
    for at, name in enumerate(names):
        near = [label(closeness(where[at], adapter.nic.place)) for adapter in adapters]
        rows.append([name, *map(label, matrix[at]), *near, *sides[at]])
    for adapter in adapters:
        near = [label(closeness(adapter.nic.place, gpu)) for gpu in where]
        rows.append([adapter.name, *near, *between(adapter, adapters), "", "", ""])
    return headings, rows


def as_json(
    found: Sequence[Gpu],
    matrix: Sequence[Sequence[int]],
    where: Sequence[Place],
    adapters: Sequence[Adapter],
    sides: Sequence[Sequence[str]],
) -> dict[str, Any]:
    """The same as data; links are by GPU index, and the numbers are those that placement has."""
    return {
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "bus_id": gpu.bus_id,
                "cpus": cpus,
                "numa_node": gpu.numa_node,
                "memory_numa_node": None if memory == _NONE else int(memory),
                "links": [label(value) for value in row],
                "values": list(row),
            }
            for gpu, row, (cpus, _, memory) in zip(found, matrix, sides, strict=True)
        ],
        "nics": [
            {
                "name": adapter.name,
                "bus_id": adapter.nic.bus_id,
                "numa_node": adapter.nic.place.node,
                "rdma": {name: adapter.states[name] for name in adapter.nic.hcas},
                "interfaces": {name: adapter.states[name] for name in adapter.nic.interfaces},
                "gpus": [label(closeness(adapter.nic.place, gpu)) for gpu in where],
            }
            for adapter in adapters
        ],
    }


def between(adapter: Adapter, adapters: Sequence[Adapter]) -> list[str]:
    return [
        label(0 if other is adapter else closeness(adapter.nic.place, other.nic.place))
        for other in adapters
    ]


def affinity(config: Config, gpu: Gpu) -> tuple[str, str, str]:
    """The processors near a GPU, its NUMA node, and the node that its own memory is, if it is one.

    The last is so where the kernel has that memory online (Grace Hopper and the like); the driver
    says so in a file beside the GPU's information (nv_procfs_read_numa_status in nv-procfs.c).
    """
    sysfs = f"{config.text('host.sys-root')}/bus/pci/devices/{gpu.bus_id}"
    near = (procfiles.text(f"{sysfs}/local_cpulist") or "").strip()
    status = f"{gpus.directory(config.text('host.proc-root'))}/{gpu.bus_id}/numa_status"
    memory = gpus.information(procfiles.text(status)).get("Node", "")
    return (
        near or _NONE,
        str(gpu.numa_node) if gpu.numa_node >= 0 else _NONE,
        memory if memory.isascii() and memory.isdecimal() else _NONE,
    )


def read_adapters(sys_root: str, only: int) -> list[Adapter]:
    found = nics.read(sys_root, only)
    states = link_states() if any(nic.interfaces for nic in found) else {}
    adapters = []
    for number, nic in enumerate(found):
        own = {name: _rdma_state(sys_root, name) for name in nic.hcas}
        own |= {name: states.get(name, _UNKNOWN) for name in nic.interfaces}
        adapters.append(Adapter(number, nic, own))
    return adapters


def link_states() -> dict[str, str]:
    """Name of each network interface -> its operational state as the kernel has it, such as "up".

    By rtnetlink, which tells of this network namespace; empty where it can't be asked.
    """
    from pyroute2 import IPRoute

    try:
        with IPRoute() as route:
            return {
                link.get_attr("IFLA_IFNAME"): (link.get_attr("IFLA_OPERSTATE") or _UNKNOWN).lower()
                for link in route.get_links()
            }
    except OSError:
        return {}


def _rdma_state(sys_root: str, hca: str) -> str:
    return "up" if any(port.active for port in nics.ports(sys_root, hca)) else "down"
