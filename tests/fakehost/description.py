"""What a caller says of the host that it wants, and the GPUs that come of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import models
from .mig import MigDevice, layout

UNKNOWN_UUID = "GPU-????????-????-????-????-????????????"


@dataclass(frozen=True)
class GpuSpec:
    """One GPU as it is asked for; what is None is filled in by `resolve`."""

    model: str | None = None
    uuid: str | None = None
    bus: str | None = None  # "0000:07:00.0"
    minor: int | None = None
    numa: int | None = None  # -1 as on a board whose firmware names no node
    switch: int | None = None  # PCIe switch, counted over the host; -1 for none
    mig: tuple[str, ...] | None = None  # None: MIG off; (): on, but with no instances
    links: tuple[str, ...] | None = None  # far end of each NVLink: a bus id, "switch" or ""
    memory_used: int = 0
    broken: bool = False  # NVML cannot give a handle for it
    lazy_uuid: bool = False  # the driver does not know its UUID before it is first used


@dataclass(frozen=True)
class Description:
    """A whole host. The defaults make a plain machine; `presets` has machines that people own."""

    gpus: int | Sequence[GpuSpec] = 1
    model: str = "NVIDIA A100-SXM4-80GB"
    driver: str = "550.163.01"
    kernel_driver: str | None = None  # if it differs: the state between an upgrade and a reboot
    open_module: bool = False
    cuda: str | None = None  # by default what belongs to the driver
    minors: str | tuple[int, ...] = "same"  # or "reversed"
    numa_nodes: int = 1
    cpus_per_node: int = 16
    node_cpus: tuple[str, ...] = ()  # or the lists themselves, to fit the machine below
    gpus_per_switch: int = 0
    nvlink: str = "none"  # "none", "pairs", "mesh" or "nvswitch"
    nvswitches: int = 0
    nics: int = 0
    drm: bool = True
    bmc_vga: bool = False  # a board management controller holds card0, so numbers are shifted
    modify_device_files: int = 1
    device_mode: int = 0o666
    device_gid: int = 0
    dev_char_links: bool = True
    uvm_major: int = 511
    caps_major: int = 508
    nvswitch_major: int = 509
    layout: str = "debian"  # "debian", "ubuntu", "fedora", "rhel", "suse" or "arch"
    lib32: bool = True
    graphics: bool = True
    ldcache: bool = True
    gds: bool = False  # GPUDirect Storage and GDRCopy have their nodes
    imex_channels: int = 0
    seed: str = "fakehost"  # hosts of different seeds have GPUs of different UUIDs


@dataclass
class Gpu:
    """A GPU as the host has it. `index` is its place in the order of PCI bus ids."""

    index: int
    minor: int
    uuid: str
    bus: str
    model: models.Model
    numa: int
    switch: int
    links: tuple[str, ...]
    broken: bool
    lazy_uuid: bool
    mig_layout: tuple[str, ...] | None
    serial: str
    mig: list[MigDevice] = field(default_factory=list)

    @property
    def memory(self) -> int:
        """Total memory in bytes, as NVML's v1 call has it."""
        return self.model.memory_mib << 20

    @property
    def reserved(self) -> int:
        """What the driver keeps for itself, in bytes."""
        return self.model.memory_mib // 130 << 20

    def spec(self) -> GpuSpec:
        """The specification that gives this very GPU again."""
        return GpuSpec(self.model.name, self.uuid, self.bus, self.minor, self.numa, self.switch,
                       self.mig_layout, self.links, 0, self.broken, self.lazy_uuid)  # fmt: skip


def fake_uuid(*parts: object, prefix: str = "GPU-") -> str:
    """A UUID that is the same whenever the same things are named."""
    text = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    return f"{prefix}{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def specs(description: Description) -> list[GpuSpec]:
    """The GPUs asked for, one by one."""
    if isinstance(description.gpus, int):
        return [GpuSpec() for _ in range(description.gpus)]
    return list(description.gpus)


def _generated_bus(place: int, count: int, numa_nodes: int) -> str:
    """Bus ids in the style of a server: each socket has a quarter of the bus numbers or so."""
    per_node = max(1, -(-count // max(1, numa_nodes)))
    node, slot = divmod(place, per_node)
    width = 256 // max(1, numa_nodes)
    return f"0000:{node * width + 1 + slot * max(2, (width - 8) // max(per_node, 1)):02x}:00.0"


def _minor(description: Description, index: int, count: int) -> int:
    if isinstance(description.minors, tuple):
        return description.minors[index]
    if description.minors == "reversed":
        return count - 1 - index
    if description.minors != "same":
        raise ValueError(f"minors can be same, reversed or a tuple, not {description.minors!r}")
    return index


def _links(description: Description, gpu: models.Model, index: int, buses: list[str]) -> list[str]:
    if description.nvlink == "none" or not gpu.links:
        return []
    if description.nvlink == "nvswitch":
        return ["switch"] * gpu.links
    if description.nvlink == "pairs":
        peer = index ^ 1
        return [buses[peer]] * gpu.links if peer < len(buses) else []
    if description.nvlink == "mesh":
        others = [bus for place, bus in enumerate(buses) if place != index]
        each = gpu.links // len(others) if others else 0
        return [bus for bus in others for _ in range(each)]
    raise ValueError(f"nvlink can be none, pairs, mesh or nvswitch, not {description.nvlink!r}")


def resolve(description: Description) -> list[Gpu]:
    """All GPUs of the host in the order of their bus ids, with nothing left open."""
    wanted = specs(description)
    count, nodes = len(wanted), max(1, description.numa_nodes)
    placed = sorted(
        (
            replace(spec, bus=(spec.bus or _generated_bus(i, count, nodes)).lower())
            for i, spec in enumerate(wanted)
        ),
        key=lambda spec: str(spec.bus),
    )
    buses = [str(spec.bus) for spec in placed]
    if len(set(buses)) != count:
        raise ValueError(f"two GPUs of the fake host have the same bus id: {buses}")
    gpus = [_resolve_one(description, spec, index, buses) for index, spec in enumerate(placed)]
    minors = [gpu.minor for gpu in gpus]
    if len(set(minors)) != count:
        raise ValueError(f"two GPUs of the fake host have the same minor number: {minors}")
    return gpus


def _resolve_one(description: Description, spec: GpuSpec, index: int, buses: list[str]) -> Gpu:
    """One GPU of the host; `buses` are all bus ids in their order."""
    model = models.find_model(spec.model or description.model)
    bus, count, nodes = buses[index], len(buses), max(1, description.numa_nodes)
    switch = index // description.gpus_per_switch if description.gpus_per_switch else -1
    uuid = spec.uuid or fake_uuid(description.seed, model.name, bus)
    links = _links(description, model, index, buses) if spec.links is None else spec.links
    gpu = Gpu(
        index=index,
        minor=_minor(description, index, count) if spec.minor is None else spec.minor,
        uuid=uuid,
        bus=bus,
        model=model,
        numa=index * nodes // count if spec.numa is None else spec.numa,
        switch=switch if spec.switch is None else spec.switch,
        links=tuple(links),
        broken=spec.broken,
        lazy_uuid=spec.lazy_uuid,
        mig_layout=spec.mig,
        serial=str(int(hashlib.sha256(uuid.encode()).hexdigest()[:12], 16) % 10**13),
    )
    if spec.mig is not None:
        gpu.mig = layout(model, uuid, gpu.minor, spec.mig)
    return gpu


def to_json(description: Description) -> dict[str, Any]:
    """The description as plain data, with a list of GPUs."""
    return asdict(replace(description, gpus=specs(description)))


def from_json(data: dict[str, Any]) -> Description:
    """The description that `to_json` wrote."""
    gpus = [GpuSpec(**_tuples(entry)) for entry in data["gpus"]]
    rest = _tuples({key: value for key, value in data.items() if key != "gpus"})
    return Description(gpus=gpus, **rest)


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; everything that is a list here was one."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
