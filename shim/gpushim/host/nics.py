"""The machine's network adapters, as sysfs tells of them, and which of them are near to a GPU.

An adapter is a PCI function with RDMA devices (/sys/class/infiniband), network interfaces
(/sys/class/net), or both (Linux, Documentation/ABI/stable/sysfs-class-infiniband and
testing/sysfs-class-net). The create path uses this as well.
"""

from __future__ import annotations

import posix

from . import procfiles
from .pcitree import Place, closeness, place, way_down

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Nic:
    """One network adapter.

    hcas: names of its RDMA devices ("mlx5_0"); interfaces: of its network interfaces ("ib0").
    """

    __slots__ = ("bus_id", "hcas", "interfaces", "place")

    def __init__(self, bus_id: str, where: Place) -> None:
        self.bus_id = bus_id
        self.place = where
        self.hcas: list[str] = []
        self.interfaces: list[str] = []


def read(sys_root: str, only: int) -> list[Nic]:
    """All adapters in the order of their bus ids; only: see `pcitree.only_node`.

    Virtual functions are left out where the adapter itself is there: they are for guests.
    """
    found: dict[str, Nic] = {}
    for kind in ("infiniband", "net"):
        where = f"{sys_root}/class/{kind}"
        for name in procfiles.names(where):
            way = _way(f"{where}/{name}")
            if not way or _is_there(f"{sys_root}/bus/pci/devices/{way[-1]}/physfn"):
                continue
            bus_id = way[-1]
            if bus_id not in found:
                found[bus_id] = Nic(bus_id, place(sys_root, bus_id, only))
            nic = found[bus_id]
            (nic.hcas if kind == "infiniband" else nic.interfaces).append(name)
    return [found[bus_id] for bus_id in sorted(found)]


def nearest(gpus: Sequence[Place], nics: Sequence[Nic]) -> list[Nic]:
    """For each GPU the adapters that are as near to it as any, each once, in the GPUs' order."""
    chosen: list[Nic] = []
    for gpu in gpus:
        near = [closeness(gpu, nic.place) for nic in nics]
        chosen += [
            nic
            for nic, value in zip(nics, near, strict=True)
            if value == max(near) and nic not in chosen
        ]
    return chosen


class Port:
    """How a port of an RDMA device is. rate: Gb/s, 0 where it is not told."""

    __slots__ = ("active", "ethernet", "rate")

    def __init__(self, active: bool, ethernet: bool, rate: float) -> None:
        self.active = active
        self.ethernet = ethernet
        self.rate = rate


def ports(sys_root: str, hca: str) -> list[Port]:
    """The ports of an RDMA device."""
    where = f"{sys_root}/class/infiniband/{hca}/ports"
    found = []
    for number in procfiles.names(where):
        # "4: ACTIVE" and "200 Gb/sec (4X HDR)"
        state = procfiles.text(f"{where}/{number}/state") or ""
        layer = procfiles.text(f"{where}/{number}/link_layer") or ""
        rate = (procfiles.text(f"{where}/{number}/rate") or "").partition(" ")[0]
        digits = rate.replace(".", "", 1)
        fast = float(rate) if digits.isascii() and digits.isdecimal() else 0.0
        found.append(Port("ACTIVE" in state, layer.strip() == "Ethernet", fast))
    return found


def _way(link: str) -> tuple[str, ...]:
    try:
        return way_down(posix.readlink(link))
    except OSError:
        return ()


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True
