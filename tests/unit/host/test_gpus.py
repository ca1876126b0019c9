"""GPUs as /proc and sysfs tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpushim.host import gpus
from gpushim.host.model import HEALTHY, Gpu
from hypothesis import given
from hypothesis import strategies as st

UUID = "GPU-e6dac0d3-c170-4d5e-af7a-714dc90268d2"


def information(uuid: str = UUID, minor: object = 0, more: str = "") -> str:
    return (
        "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 184\n"
        f"GPU UUID: \t {uuid}\nVideo BIOS: \t 92.00.45.00.03\nBus Type: \t PCIe\n"
        f"DMA Size: \t 47 bits\nBus Location: \t 0000:07:00.0\nDevice Minor: \t {minor}\n{more}"
    )


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-c170-4d5e-af7a-714dc90268d2"


class Roots:
    def __init__(self, path: Path) -> None:
        self.proc, self.sys = path / "proc", path / "sys"

    def add(self, bus_id: str, text: str | bytes | None, numa: str | None = None) -> None:
        place = self.proc / "driver/nvidia/gpus" / bus_id
        place.mkdir(parents=True)
        if text is not None:
            (place / "information").write_bytes(text if isinstance(text, bytes) else text.encode())
        if numa is not None:
            device = self.sys / "bus/pci/devices" / bus_id.lower()
            device.mkdir(parents=True)
            (device / "numa_node").write_text(numa)

    def read(self) -> list[Gpu]:
        return gpus.read(str(self.proc), str(self.sys))


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path)


def test_one_gpu(roots: Roots) -> None:
    roots.add("0000:07:00.0", information(minor=3), numa="1\n")
    (gpu,) = roots.read()
    assert gpu.to_json() == {
        "index": 0,
        "uuid": UUID,
        "minor": 3,
        "bus_id": "0000:07:00.0",
        "model": "NVIDIA A100-SXM4-80GB",
        "numa_node": 1,
        "health": HEALTHY,
        "memory": None,
        "reserved": None,
        "compute_capability": None,
        "brand": None,
        "mig_enabled": None,
        "mig_devices": [],
    }


def test_the_index_follows_the_bus_id_as_numbers(roots: Roots) -> None:
    order = ["0000:01:00.0", "0000:0A:00.0", "0000:a0:00.0", "0001:00:00.0", "10000:00:00.0"]
    for number, bus_id in enumerate(reversed(order)):
        roots.add(bus_id, information(uuid(number), minor=number))
    assert [gpu.bus_id for gpu in roots.read()] == [bus_id.lower() for bus_id in order]
    assert [gpu.index for gpu in roots.read()] == list(range(5))
    assert [gpu.minor for gpu in roots.read()] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("numa", [None, "-1", "", "x", "-0"])
def test_no_numa_node(roots: Roots, numa: str | None) -> None:
    roots.add("0000:07:00.0", information(), numa)
    assert roots.read()[0].numa_node == -1


BROKEN = {
    "absent": (None, "can't be read"),
    "empty": ("", "can't be read"),
    "bytes": (b"\xff\xfe\x00", "can't be read"),
    "unknown UUID": (information("GPU-????????-????-????-????-????????????"), "does not know"),
    "half a UUID": (information("GPU-e6dac0d3"), "no valid UUID"),
    "no UUID": (information(""), "no valid UUID"),
    "MIG's UUID": (information(UUID.replace("GPU", "MIG")), "no valid UUID"),
    "no minor": (information(minor=""), "no valid minor"),
    "not a minor": (information(minor="-1"), "no valid minor"),
    "minor of nvidiactl": (information(minor=255), "no valid minor"),
    "minor of no Unicode digits": (information(minor="²"), "no valid minor"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_gpu_does_not_hide_the_others(roots: Roots, name: str) -> None:
    """B54."""
    text, words = BROKEN[name]
    roots.add("0000:07:00.0", text)
    roots.add("0000:0f:00.0", information(uuid(2), minor=1))
    broken, sound = roots.read()
    assert words in broken.health
    assert "?" not in broken.uuid
    assert (sound.index, sound.health, sound.uuid) == (1, HEALTHY, uuid(2))


def test_two_that_claim_to_be_the_same_are_not_granted(roots: Roots) -> None:
    roots.add("0000:07:00.0", information(uuid(1), minor=0))
    roots.add("0000:0f:00.0", information(uuid(1), minor=1))
    roots.add("0000:10:00.0", information(uuid(2), minor=2))
    roots.add("0000:11:00.0", information(uuid(3), minor=2))
    roots.add("0000:12:00.0", information(uuid(4), minor=4))
    assert [gpu.health == HEALTHY for gpu in roots.read()] == [False] * 4 + [True]


def test_excluded_gpus_do_not_count(roots: Roots) -> None:
    """As in NVML, whose indices skip them."""
    roots.add("0000:07:00.0", information(uuid(1), 0, "GPU Excluded:\t Yes\n"))
    roots.add("0000:0f:00.0", information(uuid(2), 1, "GPU Excluded:\t No\n"))
    assert [(gpu.index, gpu.minor) for gpu in roots.read()] == [(0, 1)]


def test_no_driver(roots: Roots) -> None:
    assert roots.read() == []


def test_what_is_no_bus_id_is_no_gpu(roots: Roots) -> None:
    roots.add("README", information())
    assert roots.read() == []


@given(st.text())
def test_any_information_is_read(text: str) -> None:
    for label, value in gpus.information(text).items():
        assert label == label.strip()
        assert value == value.strip()
        assert label in text


@given(st.text(alphabet="GPU-?0123456789abcdef", max_size=40))
def test_a_valid_uuid_has_the_form_of_one(text: str) -> None:
    if gpus.valid_uuid(text):
        assert len(text) == 40
        assert "?" not in text


@pytest.mark.parametrize(
    ("vendor", "kind", "found"),
    [
        ("0x10de", "0x030200", True),
        ("0x10de", "0x030000", True),
        ("0x10de", "0x040300", False),  # the card's audio function
        ("0x1002", "0x030000", False),
    ],
)
def test_nvidia_devices_on_the_bus(tmp_path: Path, vendor: str, kind: str, found: bool) -> None:
    device = tmp_path / "bus/pci/devices/0000:07:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")
    assert gpus.nvidia_devices(str(tmp_path)) == (["0000:07:00.0"] if found else [])


def test_a_bus_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    assert gpus.nvidia_devices(str(tmp_path)) is None
