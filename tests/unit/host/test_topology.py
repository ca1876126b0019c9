"""How GPUs are connected, on machines that people own: the matrices are written down by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from gpushim.host import gpus as driver_gpus
from gpushim.host import nvml, topology
from gpushim.host.model import Gpu, Inventory
from gpushim.host.pcitree import NODE, PHB, PIX, SYS, Place
from hypothesis import given
from hypothesis import strategies as st

from tests.fakehost import Description, FakeHost, GpuSpec, build, preset

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")

ALL_NV12 = "\n".join(" ".join("X" if i == j else "NV12" for j in range(8)) for i in range(8))
ALL_NV18 = ALL_NV12.replace("NV12", "NV18")
DGX_BY_PCIE = """
X   PIX SYS SYS SYS SYS SYS SYS
PIX X   SYS SYS SYS SYS SYS SYS
SYS SYS X   PIX SYS SYS SYS SYS
SYS SYS PIX X   SYS SYS SYS SYS
SYS SYS SYS SYS X   PIX SYS SYS
SYS SYS SYS SYS PIX X   SYS SYS
SYS SYS SYS SYS SYS SYS X   PIX
SYS SYS SYS SYS SYS SYS PIX X
"""
HGX_BY_PCIE = """
X    NODE NODE NODE SYS  SYS  SYS  SYS
NODE X    NODE NODE SYS  SYS  SYS  SYS
NODE NODE X    NODE SYS  SYS  SYS  SYS
NODE NODE NODE X    SYS  SYS  SYS  SYS
SYS  SYS  SYS  SYS  X    NODE NODE NODE
SYS  SYS  SYS  SYS  NODE X    NODE NODE
SYS  SYS  SYS  SYS  NODE NODE X    NODE
SYS  SYS  SYS  SYS  NODE NODE NODE X
"""
CONSUMER = HGX_BY_PCIE.replace("NODE", "PHB")
FOUR_BY_PCIE = """
X   PHB SYS SYS
PHB X   SYS SYS
SYS SYS X   PHB
SYS SYS PHB X
"""
MIXED = """
X   PHB PHB PHB
PHB X   PHB PHB
PHB PHB X   PHB
PHB PHB PHB X
"""
MIG_HOST = """
X   PHB PHB
PHB X   PHB
PHB PHB X
"""
# Preset -> what there is with NVML, and what sysfs alone tells.
MACHINES = {
    "dgx_a100": (ALL_NV12, DGX_BY_PCIE),
    "hgx_h100": (ALL_NV18, HGX_BY_PCIE),
    "a100_pcie4": (FOUR_BY_PCIE.replace("PHB", "NV12"), FOUR_BY_PCIE),
    "consumer8": (CONSUMER, CONSUMER),
    "mixed_lab": (MIXED, MIXED),
    "mig_host": (MIG_HOST, MIG_HOST),
    "workstation": ("X", "X"),
}


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().split("\n")]


def inventory_of(host: FakeHost, with_nvml: bool = True) -> Inventory:
    """As refresh makes it, as far as topology is concerned."""
    found = driver_gpus.read(str(host.proc_root), str(host.sys_root))
    inventory = Inventory("550.1", found, {}, [], [], False, "")
    said = {}
    if with_nvml:
        said = nvml.ask(str(host.nvml), [gpu.bus_id for gpu in found], [], 10.0).gpus
    for gpu in found:
        gpu.mig_enabled = said.get(gpu.bus_id, {}).get("mig_enabled")
        gpu.compute_capability = said.get(gpu.bus_id, {}).get("compute_capability")
    topology.add(inventory, said, str(host.sys_root))
    return inventory


def labels(inventory: Inventory) -> list[list[str]]:
    return [[topology.label(value) for value in row] for row in inventory.topology]


@needs_root
@pytest.mark.parametrize("name", MACHINES)
def test_presets(tmp_path: Path, name: str) -> None:
    host = build(tmp_path / "host", preset(name))
    with_nvml, by_sysfs = MACHINES[name]
    assert labels(inventory_of(host)) == words(with_nvml)
    assert labels(inventory_of(host, with_nvml=False)) == words(by_sysfs)


@needs_root
def test_processors(tmp_path: Path) -> None:
    host = build(tmp_path / "host", preset("a100_pcie4"))
    assert inventory_of(host).cpus == {"0": "0-31,64-95", "1": "32-63,96-127"}


@needs_root
def test_a_link_that_is_down_does_not_count(tmp_path: Path) -> None:
    """Two of the first GPU's links are, and all of the last one's: it has lost its fabric."""
    described = preset("dgx_a100")
    assert not isinstance(described.gpus, int)
    specs = list(described.gpus)
    specs[0] = replace(specs[0], links=("switch",) * 5 + ("", "") + ("switch",) * 5)
    specs[7] = replace(specs[7], links=("",) * 12)
    host = build(tmp_path / "host", preset("dgx_a100", gpus=specs))
    expected = words(ALL_NV12)
    for other in range(1, 7):
        expected[0][other] = expected[other][0] = "NV10"
    for other in range(7):
        expected[7][other] = expected[other][7] = "SYS"
    expected[6][7] = expected[7][6] = "PIX"
    assert labels(inventory_of(host)) == expected


@needs_root
def test_mig_mode_takes_a_gpu_off_the_fabric(tmp_path: Path) -> None:
    host = build(tmp_path / "host", preset("hgx_h100"))
    host.set_mig_layout(2, ("1g.10gb",))
    expected = words(ALL_NV18)
    expected[2] = words(HGX_BY_PCIE)[2]
    for other, row in enumerate(words(HGX_BY_PCIE)):
        expected[other][2] = row[2]
    assert labels(inventory_of(host)) == expected


@needs_root
def test_a_broken_gpu_has_no_links_and_the_others_keep_theirs(tmp_path: Path) -> None:
    """B54."""
    host = build(tmp_path / "host", preset("a100_pcie4"))
    host.set_lost(3)
    expected = words(FOUR_BY_PCIE.replace("PHB", "NV12"))
    expected[2][3] = expected[3][2] = "PHB"
    assert labels(inventory_of(host)) == expected


@needs_root
def test_a_mesh(tmp_path: Path) -> None:
    """Four V100 with six links each, two to each of the others."""
    host = build(
        tmp_path / "host",
        Description(gpus=4, model="Tesla V100-SXM2-32GB", nvlink="mesh", gpus_per_switch=2),
    )
    found = labels(inventory_of(host))
    assert [set(row) for row in found] == [{"X", "NV2"}] * 4


@needs_root
def test_gpus_of_one_host_bridge_without_any_switch_and_no_numa(tmp_path: Path) -> None:
    specs = [GpuSpec(numa=-1, switch=-1), GpuSpec(numa=-1, switch=0), GpuSpec(numa=-1, switch=0)]
    host = build(tmp_path / "one", Description(gpus=specs))
    # One NUMA node: nothing is farther than that, whatever the firmware leaves out.
    assert labels(inventory_of(host)) == words("X NODE NODE\nNODE X PIX\nNODE PIX X")
    host = build(tmp_path / "two", Description(gpus=specs, numa_nodes=2))
    assert labels(inventory_of(host)) == words("X SYS SYS\nSYS X PIX\nSYS PIX X")


def gpu(index: int, capability: str | None = "8.0", mig: bool | None = False) -> Gpu:
    one = Gpu(index, f"GPU-{index}", index, f"0000:0{index}:00.0", "x")
    one.compute_capability, one.mig_enabled = capability, mig
    return one


def two(
    ends: tuple[list[str], list[str]],
    fabrics: tuple[str, str] = ("", ""),
    capabilities: tuple[str | None, str | None] = ("8.0", "8.0"),
    mig: bool = False,
) -> str:
    """What two GPUs of different sockets are to each other."""
    both = [gpu(0, capabilities[0], mig), gpu(1, capabilities[1])]
    wired = [topology.NvLinks(end, fabric) for end, fabric in zip(ends, fabrics, strict=True)]
    rows = topology.matrix(both, [Place((), 0), Place((), 1)], wired)
    assert rows[0][1] == rows[1][0]
    return topology.label(rows[0][1])


A, B, OTHER = "0000:00:00.0", "0000:01:00.0", "0000:99:00.0"
SWITCH = topology.SWITCH


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (([], []), "SYS"),
        (([B], [A]), "NV1"),
        (([B, B], [A]), "NV1"),  # one end that is up is no link
        (([B, B], []), "SYS"),
        (([OTHER], [OTHER]), "SYS"),
        (([SWITCH] * 6, [SWITCH] * 6), "NV6"),
        (([SWITCH] * 6, [SWITCH] * 4), "NV4"),
        (([SWITCH], []), "SYS"),
        (([B, SWITCH], [A, SWITCH]), "NV2"),
    ],
)
def test_links_between_two(ends: tuple[list[str], list[str]], expected: str) -> None:
    assert two(ends) == expected


def test_fabrics_that_are_not_joined() -> None:
    switched = ([SWITCH] * 18, [SWITCH] * 18)
    assert two(switched, ("c/1", "c/1")) == "NV18"
    assert two(switched, ("c/1", "c/2")) == "SYS"
    assert two(([B], [A]), ("c/1", "")) == "NV1"
    assert two(switched, mig=True) == "SYS"


def test_more_bandwidth_is_more() -> None:
    """B200 before H100 before A100 before a bridge of two A6000, and that before any PCIe."""

    def value(count: int, capability: str | None) -> int:
        wired = [topology.NvLinks([B] * count), topology.NvLinks([A] * count)]
        places = [Place((), 0), Place((), 1)]
        return topology.matrix([gpu(0, capability), gpu(1, capability)], places, wired)[0][1]

    ordered = [(18, "10.0"), (18, "9.0"), (12, "8.0"), (6, None), (4, "8.6"), (4, "6.0")]
    values = [value(*one) for one in ordered]
    assert values[:4] == sorted(values[:4], reverse=True)
    assert values[4] < values[5]  # an A6000's links have 14 GB/s each, a P100's 20
    assert value(1, "8.6") > PIX
    assert [topology.label(one) for one in values] == ["NV18", "NV18", "NV12", "NV6", "NV4", "NV4"]


def test_an_old_drivers_switches_are_known_by_sysfs(tmp_path: Path) -> None:
    """NVML gives the bus id of the far end there, and not of which kind it is."""
    for bus_id, kind, vendor in (
        ("0000:c5:00.0", "0x068000", "0x10de"),
        ("0000:c6:00.0", "0x060400", "0x10de"),
        ("0000:c7:00.0", "0x068000", "0x8086"),
    ):
        device = tmp_path / "bus/pci/devices" / bus_id
        device.mkdir(parents=True)
        (device / "class").write_text(kind + "\n")
        (device / "vendor").write_text(vendor + "\n")
    for far, expected in (("c5", "NV2"), ("c6", "NODE"), ("c7", "NODE")):
        inventory = Inventory("470.1", [gpu(0), gpu(1)], {}, [], [], False, "")
        line = {"nvlinks": [f"0000:{far}:00.0"] * 2, "fabric": ""}
        topology.add(inventory, {A: line, B: line}, str(tmp_path))
        assert topology.label(inventory.topology[0][1]) == expected


def test_a_machine_without_sysfs(tmp_path: Path) -> None:
    inventory = Inventory("550.1", [gpu(0), gpu(1)], {}, [], [], False, "")
    topology.add(inventory, {}, str(tmp_path / "none"))
    assert (inventory.topology, inventory.cpus) == ([[0, NODE], [NODE, 0]], {})
    inventory = Inventory("550.1", [], {}, [], [], False, "")
    topology.add(inventory, {}, str(tmp_path / "none"))
    assert inventory.topology == []


def test_it_survives_the_snapshot() -> None:
    inventory = Inventory("550.1", [], {}, [], [], False, "", topology=[[0]], cpus={"0": "0-3"})
    back = Inventory.from_json(inventory.to_json())
    assert (back.topology, back.cpus) == ([[0]], {"0": "0-3"})


BUSES = [f"0000:0{index}:00.0" for index in range(5)]


@given(
    st.lists(st.lists(st.sampled_from([*BUSES, SWITCH, OTHER])), min_size=5, max_size=5),
    st.lists(st.sampled_from(["", "a", "b"]), min_size=5, max_size=5),
    st.lists(st.integers(-1, 1), min_size=5, max_size=5),
)
def test_a_matrix_is_one(ends: list[list[str]], fabrics: list[str], nodes: list[int]) -> None:
    found = [gpu(index) for index in range(5)]
    wired = [topology.NvLinks(end, fabric) for end, fabric in zip(ends, fabrics, strict=True)]
    places = [Place(("pci0000:00", f"0000:00:0{n}.0"), n) for n in nodes]
    rows = topology.matrix(found, places, wired)
    for i in range(5):
        for j in range(5):
            assert rows[i][j] == rows[j][i]
            assert (rows[i][j] == 0) == (i == j)
            assert rows[i][j] in (0, SYS, NODE, PHB, PIX) or rows[i][j] > PIX
