"""Where PCI devices sit: beneath which host bridge and switches, and on which NUMA node.

/sys/bus/pci/devices/<bus id> is a link to a directory such as
../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0, whose path is the way down from the host
bridge (Linux, Documentation/PCI/sysfs-pci.rst). The create path uses this as well.
"""

from __future__ import annotations

import posix

from . import procfiles

# How well two devices are connected, in the order and by the names of `nvidia-smi topo -m`: by way
# of another socket, of another host bridge of the same NUMA node, of the same host bridge, of
# several PCIe switches, and of one.
SYS, NODE, PHB, PXB, PIX = 10, 20, 30, 40, 50


class Place:
    """Where one device sits.

    path: names from the host bridge ("pci0000:00") down to the device itself, empty where sysfs
    does not tell; node: its NUMA node, -1 where that is unknown.
    """

    __slots__ = ("node", "path")

    def __init__(self, path: tuple[str, ...], node: int) -> None:
        self.path = path
        self.node = node


def place(sys_root: str, bus_id: str, only: int) -> Place:
    """Where the device of this bus id sits; only: see `only_node`."""
    try:
        link = posix.readlink(f"{sys_root}/bus/pci/devices/{bus_id}")
    except OSError:
        link = ""
    node = numa_node(sys_root, bus_id)
    return Place(way_down(link), only if node < 0 else node)


def way_down(link: str) -> tuple[str, ...]:
    """The way from the host bridge to a PCI device, out of a link of sysfs to it or beneath it.

    Empty for what hangs on no PCI device, or on one only by USB.
    """
    parts = link.split("/")
    first = next((at for at, part in enumerate(parts) if part.startswith("pci")), len(parts))
    last = max((at for at, part in enumerate(parts) if _is_bus_id(part)), default=-1)
    if any(part.startswith("usb") for part in parts):
        return ()
    return tuple(parts[first : last + 1])


def closeness(one: Place, other: Place) -> int:
    """How well two devices are connected by PCIe: one of the constants above."""
    shared = 0
    for mine, theirs in zip(one.path, other.path, strict=False):
        if mine != theirs:
            break
        shared += 1
    if shared == 1:
        return PHB
    if shared:
        # What meets at the upstream port of a switch has one more port on its way, the downstream
        # one; a second switch adds two.
        between = max(len(one.path), len(other.path)) - shared - 1
        return PIX if between <= 1 else PXB
    return NODE if one.node == other.node >= 0 else SYS


def numa_node(sys_root: str, bus_id: str) -> int:
    """The NUMA node of a PCI device, -1 where the firmware names none."""
    text = (procfiles.text(f"{sys_root}/bus/pci/devices/{bus_id}/numa_node") or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else -1


def nvswitches(sys_root: str) -> list[str]:
    """Bus ids of NVSwitches: bridges of NVIDIA's that are none of PCI's (class 0x0680xx)."""
    where = sys_root + "/bus/pci/devices"
    return [
        bus_id
        for bus_id in procfiles.names(where)
        if (procfiles.text(f"{where}/{bus_id}/class") or "").startswith("0x0680")
        and (procfiles.text(f"{where}/{bus_id}/vendor") or "").strip() == "0x10de"
    ]


def only_node(sys_root: str) -> int:
    """The machine's only NUMA node, to which all devices belong; -1 if it has several."""
    text = (procfiles.text(f"{sys_root}/devices/system/node/online") or "0").strip()
    return int(text) if text.isascii() and text.isdecimal() else -1


def node_cpus(sys_root: str) -> dict[str, str]:
    """NUMA node -> its processors as the kernel lists them ("0-15,32-47"), "" if it has none.

    The nodes are decimal text, as keys of JSON are.
    """
    where = sys_root + "/devices/system/node"
    found = {}
    for name in procfiles.names(where):
        number = name.removeprefix("node")
        if name.startswith("node") and number.isascii() and number.isdecimal():
            found[number] = (procfiles.text(f"{where}/{name}/cpulist") or "").strip()
    return found


def _is_bus_id(name: str) -> bool:
    return name.count(":") == 2 and name[-2:-1] == "."
