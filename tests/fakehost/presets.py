"""Machines that people own, by name.

Bus ids, nodes and switches are those that `nvidia-smi topo -m` and lspci print on such machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .description import Description, GpuSpec


def _placed(model: str, places: str, numa: list[int], switches: list[int]) -> list[GpuSpec]:
    return [
        GpuSpec(model=model, bus=f"0000:{bus}:00.0", numa=node, switch=switch)
        for bus, node, switch in zip(places.split(), numa, switches, strict=True)
    ]


def dgx_a100() -> Description:
    """NVIDIA DGX A100: eight GPUs, six NVSwitches, four nodes a socket, minors not by bus id."""
    gpus = _placed("NVIDIA A100-SXM4-80GB", "07 0f 47 4e 87 90 b7 bd",
                   [3, 3, 1, 1, 7, 7, 5, 5], [0, 0, 1, 1, 2, 2, 3, 3])  # fmt: skip
    minors = [2, 3, 0, 1, 6, 7, 4, 5]
    return Description(
        gpus=[replace(gpu, minor=minor) for gpu, minor in zip(gpus, minors, strict=True)],
        numa_nodes=8, cpus_per_node=32, nvlink="nvswitch", nvswitches=6, nics=8, bmc_vga=True,
        layout="ubuntu", graphics=False, lib32=False, seed="dgx-a100",
    )  # fmt: skip


def hgx_h100() -> Description:
    """A two-socket machine with the HGX H100 board: each GPU has a switch with its own adapter."""
    gpus = _placed("NVIDIA H100 80GB HBM3", "1b 43 52 61 9d c3 d1 df",
                   [0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6, 7])  # fmt: skip
    return Description(
        gpus=gpus, driver="570.133.20", open_module=True, numa_nodes=2, cpus_per_node=96,
        nvlink="nvswitch", nvswitches=4, nics=8, bmc_vga=True, layout="ubuntu", graphics=False,
        lib32=False, seed="hgx-h100",
    )  # fmt: skip


def a100_pcie4() -> Description:
    """Four A100 PCIe boards on two sockets, each two joined by NVLink bridges."""
    gpus = _placed("NVIDIA A100 80GB PCIe", "17 65 b1 e3", [0, 0, 1, 1], [-1, -1, -1, -1])
    return Description(
        gpus=gpus, numa_nodes=2, cpus_per_node=64, nvlink="pairs", nics=2, bmc_vga=True,
        layout="rhel", graphics=False, lib32=False, minors="reversed", seed="a100-pcie4",
    )  # fmt: skip


def consumer8() -> Description:
    """Eight RTX 4090 behind two PCIe switches on two sockets: no NVLink, no peer access."""
    gpus = _placed("NVIDIA GeForce RTX 4090", "01 24 41 61 81 a1 c1 e1",
                   [0, 0, 0, 0, 1, 1, 1, 1], [-1, -1, -1, -1, -1, -1, -1, -1])  # fmt: skip
    return Description(
        gpus=gpus, driver="560.35.03", numa_nodes=2, cpus_per_node=64, bmc_vga=True,
        layout="ubuntu", seed="consumer8",
    )  # fmt: skip


def mixed_lab() -> Description:
    """A workstation that has grown over the years; firmware names no NUMA node."""
    boards = (
        ("NVIDIA GeForce RTX 3090", "01"),
        ("NVIDIA RTX A6000", "21"),
        ("Tesla T4", "41"),
        ("NVIDIA GeForce GTX 1080 Ti", "4a"),
    )
    gpus = [GpuSpec(model=model, bus=f"0000:{bus}:00.0", numa=-1) for model, bus in boards]
    return Description(
        gpus=gpus, driver="535.183.01", cpus_per_node=32, minors="reversed", device_mode=0o660,
        device_gid=44, seed="mixed-lab",
    )  # fmt: skip


def mig_host() -> Description:
    """Two A100 cut into MIG devices, and one that is whole."""
    model = "NVIDIA A100-SXM4-80GB"
    gpus = [
        GpuSpec(model, bus="0000:07:00.0", mig=("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")),
        GpuSpec(model, bus="0000:0f:00.0", mig=("1g.10gb",) * 7),
        GpuSpec(model, bus="0000:47:00.0"),
    ]
    return Description(gpus=gpus, graphics=False, lib32=False, seed="mig-host")


def workstation() -> Description:
    """One RTX 4090 with everything that a desktop installs."""
    return Description(gpus=1, model="NVIDIA GeForce RTX 4090", seed="workstation")


PRESETS: dict[str, Callable[[], Description]] = {
    "dgx_a100": dgx_a100,
    "hgx_h100": hgx_h100,
    "a100_pcie4": a100_pcie4,
    "consumer8": consumer8,
    "mixed_lab": mixed_lab,
    "mig_host": mig_host,
    "workstation": workstation,
}


def preset(name: str, **changes: Any) -> Description:
    """A machine by name, with fields of its description changed."""
    try:
        return replace(PRESETS[name](), **changes)
    except KeyError:
        raise ValueError(f"no fake host is named {name!r}: {', '.join(PRESETS)}") from None
