"""Where PCI devices sit, out of the links that sysfs has."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpushim.host import pcitree
from gpushim.host.pcitree import NODE, PHB, PIX, PXB, SYS, Place, closeness, way_down
from hypothesis import given
from hypothesis import strategies as st

PCI = "../../../devices/"


@pytest.mark.parametrize(
    ("link", "way"),
    [
        ("pci0000:00/0000:00:02.0", "pci0000:00 0000:00:02.0"),
        ("pci0000:17/0000:17:01.0/0000:18:00.0", "pci0000:17 0000:17:01.0 0000:18:00.0"),
        # A domain of more than four digits, as Intel's VMD and Azure make them.
        (
            "pci0000:e0/0000:e0:00.5/pci10000:e0/10000:e0:01.0/10000:e1:00.0",
            "pci0000:e0 0000:e0:00.5 pci10000:e0 10000:e0:01.0 10000:e1:00.0",
        ),
        (
            "LNXSYSTM:00/ACPI0004:00/VMBUS:00/1234/pci0001:00/0001:00:00.0",
            "pci0001:00 0001:00:00.0",
        ),
        ("platform/soc/pci0004:00/0004:00:00.0", "pci0004:00 0004:00:00.0"),
        # What hangs on a PCI device is where that is.
        ("pci0000:17/0000:17:01.0/0000:18:00.1/net/ens1f1", "pci0000:17 0000:17:01.0 0000:18:00.1"),
        ("pci0000:00/0000:00:05.0/virtio2/net/eth0", "pci0000:00 0000:00:05.0"),
        ("pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/net/enx00", ""),
        ("virtual/net/docker0", ""),
        ("", ""),
    ],
)
def test_way_down(link: str, way: str) -> None:
    assert way_down(PCI + link) == tuple(way.split())


def at(path: str, node: int = 0) -> Place:
    return Place(tuple(path.split("/")) if path else (), node)


ROOT = "pci0000:00"
SWITCHED = f"{ROOT}/rp/up/"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # One switch: its upstream port is shared, and each has a downstream port.
        (at(SWITCHED + "d1/gpu0"), at(SWITCHED + "d2/gpu1"), PIX),
        (at(SWITCHED + "d1/gpu0"), at(SWITCHED + "d2/up2/d3/nic0"), PXB),
        (at(SWITCHED + "d1/up2/d3/gpu0"), at(SWITCHED + "d1/up2/d4/gpu1"), PIX),
        (at(SWITCHED + "d1/up2/d3/gpu0"), at(SWITCHED + "d2/up3/d4/gpu1"), PXB),
        # Two functions of one device.
        (at(f"{ROOT}/rp/nic.0"), at(f"{ROOT}/rp/nic.1"), PIX),
        # Two root ports, and two devices of a virtual machine's only bus.
        (at(f"{ROOT}/rp1/gpu0"), at(f"{ROOT}/rp2/gpu1"), PHB),
        (at(f"{ROOT}/gpu0"), at(f"{ROOT}/gpu1"), PHB),
        (at("pci0000:00/rp/gpu0", 1), at("pci0000:40/rp/gpu1", 1), NODE),
        (at("pci0000:00/rp/gpu0", 0), at("pci0000:80/rp/gpu1", 1), SYS),
        (at("pci0000:00/rp/gpu0", -1), at("pci0000:40/rp/gpu1", -1), SYS),
        (at("", 0), at("", 0), NODE),
        (at("", -1), at("", -1), SYS),
    ],
)
def test_closeness(one: Place, other: Place, expected: int) -> None:
    assert closeness(one, other) == expected
    assert closeness(other, one) == expected


def test_the_order_of_preference() -> None:
    assert SYS < NODE < PHB < PXB < PIX


@pytest.mark.parametrize(
    ("online", "expected"), [("0", 0), ("3", 3), ("0-1", -1), ("0,8", -1), (None, 0), ("x", -1)]
)
def test_the_only_node(tmp_path: Path, online: str | None, expected: int) -> None:
    """A kernel without NUMA has one node, too."""
    if online is not None:
        (tmp_path / "devices/system/node").mkdir(parents=True)
        (tmp_path / "devices/system/node/online").write_text(online + "\n")
    assert pcitree.only_node(str(tmp_path)) == expected


def test_processors_of_nodes(tmp_path: Path) -> None:
    where = tmp_path / "devices/system/node"
    for name, cpus in (("node0", "0-3,8-11\n"), ("node10", "4-7\n"), ("node2", "\n")):
        (where / name).mkdir(parents=True)
        (where / name / "cpulist").write_text(cpus)
    (where / "power").mkdir()
    (where / "nodex").mkdir()
    assert pcitree.node_cpus(str(tmp_path)) == {"0": "0-3,8-11", "10": "4-7", "2": ""}


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    found = pcitree.place(str(tmp_path), "0000:01:00.0", -1)
    assert (found.path, found.node) == ((), -1)


paths = st.lists(st.sampled_from("abc"), max_size=6).map(tuple)


@given(paths, paths, st.integers(-1, 1), st.integers(-1, 1))
def test_closeness_is_mutual(
    one: tuple[str, ...], other: tuple[str, ...], mine: int, theirs: int
) -> None:
    value = closeness(Place(one, mine), Place(other, theirs))
    assert value == closeness(Place(other, theirs), Place(one, mine))
    assert value in (SYS, NODE, PHB, PXB, PIX)


@given(st.text(alphabet="pci/.:usb019"))
def test_any_link_is_read(link: str) -> None:
    way = way_down(link)
    assert not way or way[0].startswith("pci")
