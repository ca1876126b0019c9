"""The state as the C libraries read it; c/parse.c is the other end."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import models, topology
from .description import Description, Gpu
from .mig import max_devices
from .procfs import kernel_driver, numeric
from .topology import Function

_CUDA = (
    (615, 13040), (610, 13030), (595, 13020), (590, 13010), (580, 13000), (575, 12090),
    (570, 12080), (565, 12070), (560, 12060), (555, 12050), (550, 12040), (545, 12030),
    (535, 12020), (530, 12010), (525, 12000), (520, 11080), (515, 11070), (510, 11060),
    (495, 11050), (470, 11040), (0, 11020),
)  # fmt: skip
SWITCH = "switch"


@dataclass
class Load:
    """What a GPU is doing at the moment."""

    used: int = 0
    lost: bool = False
    gpu_util: int = 0
    mem_util: int = 0
    temperature: int = 31
    power_mw: int = 52000
    energy_mj: int = 1234567
    persistence: bool = True
    compute_mode: int = 0
    # pid, bytes, kind (c, g or m), GPU instance, compute instance
    processes: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    mig_used: dict[str, int] = field(default_factory=dict)


@dataclass
class Running:
    """What goes for the whole host while it is in use."""

    delay_us: int = 0
    hang: bool = False
    loads: dict[str, Load] = field(default_factory=dict)  # by UUID


def cuda_version(description: Description) -> int:
    """CUDA's version as cuDriverGetVersion gives it: 12040 is 12.4."""
    if description.cuda:
        major, _, minor = description.cuda.partition(".")
        return int(major) * 1000 + int(minor or 0) * 10
    first = numeric(description.driver)[0]
    return next(cuda for driver, cuda in _CUDA if first >= driver)


def _links(gpu: Gpu, functions: list[Function]) -> list[str]:
    switches = [function.bus for function in functions if function.kind == "nvswitch"]
    lines = []
    for number in range(gpu.model.links):
        end = gpu.links[number] if number < len(gpu.links) else ""
        if end == SWITCH:
            bus = switches[number % len(switches)] if switches else "ffff:ff:00.0"
            lines.append(f"link 2 {bus}")
        else:
            lines.append(f"link 0 {end}" if end else "link -1 -")
    return lines


def _peer(one: Gpu, two: Gpu) -> str:
    """NVML_P2P_STATUS_*: fine, or "chipset not supported" as between GeForce boards."""
    return "0" if one.model.peer_to_peer and two.model.peer_to_peer else "1"


def _gpu_lines(description: Description, gpus: list[Gpu], gpu: Gpu, load: Load) -> list[str]:
    model = gpu.model
    values: dict[str, object] = {
        "bus": gpu.bus, "uuid": gpu.uuid, "name": model.name, "vbios": model.vbios,
        "serial": gpu.serial, "part": model.part, "minor": gpu.minor, "numa": gpu.numa,
        "cpus": topology.gpu_cpus(description, gpu), "broken": int(gpu.broken),
        "lost": int(load.lost), "lazy": int(gpu.lazy_uuid), "mig": int(gpu.mig_layout is not None),
        "device": f"0x{model.device:x}", "subsystem": f"0x{model.subsystem:x}",
        "class": f"0x{model.pci_class:x}", "cc_major": model.capability[0],
        "cc_minor": model.capability[1], "brand": models.BRAND[model.brand],
        "architecture": models.ARCHITECTURE[model.architecture], "sms": model.multiprocessors,
        "max_mig": max_devices(model), "link_version": model.link_version,
        "ecc": int(model.ecc), "fans": model.fans, "bar1": model.bar1_mib,
        "sm_clock": model.clocks[0], "mem_clock": model.clocks[1],
        "power_limit": model.power_w * 1000, "power": load.power_mw,
        "temperature": load.temperature, "gpu_util": load.gpu_util, "mem_util": load.mem_util,
        "total": gpu.memory, "used": load.used, "reserved": gpu.reserved,
        "energy": load.energy_mj, "persistence": int(load.persistence),
        "compute_mode": load.compute_mode,
        "topo": ",".join(str(topology.common_ancestor(gpu, other)) for other in gpus),
        "p2p": "".join(_peer(gpu, other) for other in gpus),
    }  # fmt: skip
    return [f"{key} {value}" for key, value in values.items()]


def _mig_lines(gpu: Gpu, load: Load) -> list[str]:
    return [
        f"md {d.gi} {d.ci} {d.gi_minor} {d.ci_minor} {d.profile.profile_id} {d.profile.number} "
        f"{d.profile.slices} {d.ci_slices} {d.multiprocessors} {d.profile.memory_mib} "
        f"{load.mig_used.get(d.uuid, 0)} {d.uuid} {d.name}"
        for d in gpu.mig
    ]


def state_text(
    description: Description, gpus: list[Gpu], functions: list[Function], running: Running
) -> str:
    """The whole state."""
    lines = [
        f"driver {kernel_driver(description)}",
        f"cuda {cuda_version(description)}",
        f"caps_major {description.caps_major}",
        f"delay_us {running.delay_us}",
        f"hang {int(running.hang)}",
        f"fabric {int(description.nvswitches > 0)}",
    ]
    for gpu in gpus:
        load = running.loads.get(gpu.uuid, Load())
        lines.append("gpu")
        lines += _gpu_lines(description, gpus, gpu, load)
        lines += _links(gpu, functions)
        lines += _mig_lines(gpu, load)
        lines += [f"proc {pid} {used} {kind} {gi} {ci}" for pid, used, kind, gi, ci
                  in load.processes]  # fmt: skip
    return "\n".join(lines) + "\n"


def library_state(description: Description, gpus: list[Gpu], functions: list[Function]) -> str:
    """What the library files carry: the host at rest, under the version of the files."""
    own = f"driver {description.driver}\n"
    rest = state_text(description, gpus, functions, Running())
    return own + rest.split("\n", 1)[1]
