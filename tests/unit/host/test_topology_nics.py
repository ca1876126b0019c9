"""Network adapters: what sysfs has of them, and which are near to which GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpushim.host import nics
from gpushim.host.pcitree import only_node, place

from tests.fakehost import FakeHost, build, preset

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")


def near(host: FakeHost, *gpus: int) -> list[str]:
    """The RDMA devices of the adapters that are nearest to these GPUs."""
    sys_root = str(host.sys_root)
    only = only_node(sys_root)
    places = [place(sys_root, host.gpus[index].bus, only) for index in gpus]
    return [hca for nic in nics.nearest(places, nics.read(sys_root, only)) for hca in nic.hcas]


@needs_root
@pytest.mark.parametrize(
    ("name", "gpus", "expected"),
    [
        # Two GPUs and two adapters on each of four switches.
        ("dgx_a100", [0], ["mlx5_0", "mlx5_1"]),
        ("dgx_a100", [0, 1], ["mlx5_0", "mlx5_1"]),
        ("dgx_a100", [7, 2], ["mlx5_6", "mlx5_7", "mlx5_2", "mlx5_3"]),
        # A switch for each GPU and its adapter.
        ("hgx_h100", [3], ["mlx5_3"]),
        ("hgx_h100", [6, 1], ["mlx5_6", "mlx5_1"]),
        # One for each socket.
        ("a100_pcie4", [0, 1], ["mlx5_0"]),
        ("a100_pcie4", [1, 2], ["mlx5_0", "mlx5_1"]),
        ("consumer8", [0, 4], []),
    ],
)
def test_nearest(tmp_path: Path, name: str, gpus: list[int], expected: list[str]) -> None:
    found = near(build(tmp_path / "host", preset(name)), *gpus)
    assert sorted(found) == sorted(expected)


@needs_root
def test_each_once_in_the_order_of_the_gpus(tmp_path: Path) -> None:
    host = build(tmp_path / "host", preset("hgx_h100"))
    assert near(host, 6, 1, 6) == ["mlx5_6", "mlx5_1"]


class Sysfs:
    """As much of /sys as adapters need."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def function(self, bus_id: str, path: str, **links: str) -> Path:
        device = self.root / "devices" / path / bus_id
        device.mkdir(parents=True)
        (device / "numa_node").write_text("0\n")
        bus = self.root / "bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / bus_id).symlink_to(f"../../../devices/{path}/{bus_id}")
        for name, target in links.items():
            (device / name).symlink_to(target)
        return device

    def named(self, device: Path, kind: str, *names: str) -> None:
        """Puts class devices beneath a device, and links to them into their class."""
        for name in names:
            (device / kind / name).mkdir(parents=True)
            (self.root / "class" / kind).mkdir(parents=True, exist_ok=True)
            relative = os.path.relpath(device / kind / name, self.root / "class" / kind)
            (self.root / "class" / kind / name).symlink_to(relative)


def test_what_is_an_adapter(tmp_path: Path) -> None:
    """One entry for each function, with all its names; what is virtual or on USB is none."""
    sysfs = Sysfs(tmp_path)
    one = sysfs.function("0000:18:00.0", "pci0000:17/0000:17:01.0")
    sysfs.named(one, "infiniband", "mlx5_0")
    sysfs.named(one, "net", "ib0", "ib0d1")
    sysfs.named(sysfs.function("0000:05:00.0", "pci0000:00/0000:00:1c.0"), "net", "eno1")
    guest = sysfs.function("0000:18:00.2", "pci0000:17/0000:17:01.0", physfn="../0000:18:00.0")
    sysfs.named(guest, "infiniband", "mlx5_2")
    sysfs.named(guest, "net", "ib0v0")
    virtio = sysfs.function("0000:00:05.0", "pci0000:00")
    sysfs.named(virtio / "virtio1", "net", "eth0")
    usb = sysfs.function("0000:00:14.0", "pci0000:00")
    sysfs.named(usb / "usb1/1-1/1-1:1.0", "net", "enx0")
    for name in ("docker0", "veth1234", "lo"):
        sysfs.named(tmp_path / "devices/virtual", "net", name)
    (tmp_path / "class/net/bonding_masters").write_text("bond0\n")
    found = nics.read(str(tmp_path), 0)
    assert [(nic.bus_id, nic.hcas, nic.interfaces) for nic in found] == [
        ("0000:00:05.0", [], ["eth0"]),
        ("0000:05:00.0", [], ["eno1"]),
        ("0000:18:00.0", ["mlx5_0"], ["ib0", "ib0d1"]),
    ]
    assert found[2].place.path == ("pci0000:17", "0000:17:01.0", "0000:18:00.0")


def test_a_machine_without_network(tmp_path: Path) -> None:
    assert nics.read(str(tmp_path), 0) == []
    assert nics.nearest([place(str(tmp_path), "0000:01:00.0", 0)], []) == []


@pytest.mark.parametrize(
    ("state", "layer", "rate", "expected"),
    [
        ("4: ACTIVE\n", "InfiniBand\n", "200 Gb/sec (4X HDR)\n", (True, False, 200.0)),
        ("1: DOWN\n", "Ethernet\n", "2.5 Gb/sec (1X SDR)\n", (False, True, 2.5)),
        ("4: ACTIVE\n", "Ethernet\n", None, (True, True, 0.0)),
        (None, None, "fast", (False, False, 0.0)),
    ],
)
def test_ports(
    tmp_path: Path,
    state: str | None,
    layer: str | None,
    rate: str | None,
    expected: tuple[bool, bool, float],
) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    for name, text in (("state", state), ("link_layer", layer), ("rate", rate)):
        if text is not None:
            (port / name).write_text(text)
    (found,) = nics.ports(str(tmp_path), "mlx5_0")
    assert (found.active, found.ethernet, found.rate) == expected
    assert nics.ports(str(tmp_path), "mlx5_1") == []
