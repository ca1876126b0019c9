"""Where GPUs, switches and network adapters sit in the PCI tree, and how close they are.

The shapes are those of real machines: a root complex for each PCIe switch or socket, root port,
switch with one upstream port and one downstream port for each device.
"""

from __future__ import annotations

from dataclasses import dataclass

from .description import Description, Gpu

# NVML_TOPOLOGY_* of nvml.h
INTERNAL, SINGLE, MULTIPLE, HOSTBRIDGE, NODE, SYSTEM = 0, 10, 20, 30, 40, 50


@dataclass(frozen=True)
class Function:
    """A PCI function: its address and the directory that it has in sysfs."""

    bus: str
    path: str  # beneath sys/devices
    kind: str  # "gpu", "bridge", "nic" or "nvswitch"
    numa: int
    number: int = 0


class _Buses:
    """Gives out bus numbers that no device asked for by name has."""

    def __init__(self, taken: set[int]) -> None:
        self.taken = taken

    def near(self, wanted: int) -> int:
        order: list[int] = list(range(wanted - 1, -1, -1)) + list(range(wanted + 1, 256))
        for bus in order:
            if bus not in self.taken:
                self.taken.add(bus)
                return bus
        raise ValueError("the fake host has no PCI bus numbers left")


def _bus_number(address: str) -> int:
    return int(address.split(":")[1], 16)


def pci_tree(description: Description, gpus: list[Gpu]) -> list[Function]:
    """All PCI functions of the host."""
    buses = _Buses({_bus_number(gpu.bus) for gpu in gpus} | {0, 1})
    functions: list[Function] = []
    groups: dict[tuple[int, int], list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault((gpu.numa, gpu.switch), []).append(gpu)
    nics = list(range(description.nics))
    per_group = -(-len(nics) // len(groups)) if groups and nics else 0
    for (numa, switch), members in groups.items():
        first = min(_bus_number(gpu.bus) for gpu in members)
        root = f"pci0000:{buses.near(first):02x}"
        port_bus = root.split(":")[1]
        prefix = root
        if switch >= 0:
            root_port = f"0000:{port_bus}:01.0"
            upstream = f"0000:{buses.near(first):02x}:00.0"
            functions += [
                Function(root_port, f"{root}/{root_port}", "bridge", numa),
                Function(upstream, f"{root}/{root_port}/{upstream}", "bridge", numa),
            ]
            prefix = f"{root}/{root_port}/{upstream}"
            port_bus = f"{buses.near(first):02x}"
        devices = [(gpu.bus, "gpu", gpu.index) for gpu in members]
        for number in nics[:per_group]:
            devices.append((f"0000:{buses.near(first):02x}:00.0", "nic", number))
        del nics[:per_group]
        for slot, (address, kind, number) in enumerate(devices):
            port = f"0000:{port_bus}:{slot + 2:02x}.0"
            functions.append(Function(port, f"{prefix}/{port}", "bridge", numa))
            functions.append(Function(address, f"{prefix}/{port}/{address}", kind, numa, number))
    functions += _nvswitches(description, buses)
    return functions


def _nvswitches(description: Description, buses: _Buses) -> list[Function]:
    if not description.nvswitches:
        return []
    numa = description.numa_nodes - 1
    root_bus = buses.near(0xC4)
    found = []
    for number in range(description.nvswitches):
        port = f"0000:{root_bus:02x}:{number + 1:02x}.0"
        address = f"0000:{buses.near(0xC5 + number):02x}:00.0"
        path = f"pci0000:{root_bus:02x}/{port}"
        found.append(Function(port, path, "bridge", numa))
        found.append(Function(address, f"{path}/{address}", "nvswitch", numa, number))
    return found


def common_ancestor(one: Gpu, two: Gpu) -> int:
    """How far one must go up to get from one GPU to the other, in NVML's terms."""
    if one.bus == two.bus:
        return INTERNAL
    if one.numa != two.numa:
        return SYSTEM
    if one.switch != two.switch:
        return NODE
    return SINGLE if one.switch >= 0 else HOSTBRIDGE


def node_cpus(description: Description, node: int) -> str:
    """The processors of a node as a list: cores first, then their second threads."""
    if description.node_cpus:
        return description.node_cpus[node % len(description.node_cpus)]
    per_node, nodes = description.cpus_per_node, max(1, description.numa_nodes)
    cores = per_node // 2 or 1
    first = node * cores
    text = f"{first}-{first + cores - 1}" if cores > 1 else str(first)
    if per_node < 2:
        return text
    second = nodes * cores + first
    return f"{text},{second}-{second + cores - 1}" if cores > 1 else f"{text},{second}"


def all_cpus(description: Description) -> str:
    """All processors of the host, for devices whose node the firmware does not name."""
    nodes = range(max(1, description.numa_nodes))
    cpus = sorted({cpu for node in nodes for cpu in expand(node_cpus(description, node))})
    return f"{cpus[0]}-{cpus[-1]}" if len(cpus) > 1 else str(cpus[0])


def gpu_cpus(description: Description, gpu: Gpu) -> str:
    """The processors that are near to a GPU."""
    return node_cpus(description, gpu.numa) if gpu.numa >= 0 else all_cpus(description)


def expand(cpulist: str) -> list[int]:
    """The numbers in a list such as 0-3,8."""
    numbers: list[int] = []
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def mask(cpulist: str) -> str:
    """The same list as the kernel's mask: 32-bit words in hexadecimal, highest first."""
    value = sum(1 << cpu for cpu in expand(cpulist))
    words: list[str] = []
    while value or not words:
        words.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))
