"""What ends a snapshot, and what does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.host import fingerprint
from gpushim.oci import jsontext

INFORMATION = (
    "Model: \t NVIDIA L4\nIRQ: \t 0\nGPU UUID: \t GPU-1\nVideo BIOS: \t ??.??\n"
    "Bus Location: \t 0000:07:00.0\nDevice Minor: \t 0\nGPU Firmware: \t N/A\nGPU Excluded:\t No\n"
)
GPU = "driver/nvidia/gpus/0000:07:00.0/information"


class Machine:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.put(GPU, INFORMATION)
        self.put("driver/nvidia/version", "NVRM version: 1\n")
        self.put("driver/nvidia/params", "ModifyDeviceFiles: 1\n")
        (path / "driver/nvidia/capabilities/gpu0/mig/gi1/ci0").mkdir(parents=True)
        self.put("lib/libcuda.so.1", "ELF")
        self.taken = fingerprint.take(
            str(path), [str(path / "lib/libcuda.so.1"), str(path / "absent")], [str(path / "lib")]
        )

    def put(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def holds(self) -> bool:
        # As it comes back from the file that it is kept in.
        return fingerprint.holds(jsontext.loads(jsontext.dumps(self.taken)))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    assert made.holds()
    return made


def replace(machine: Machine, name: str) -> None:
    """The same content and times in another file."""
    path = machine.path / name
    facts = os.stat(path)
    path.with_suffix(".new").write_bytes(path.read_bytes())
    os.utime(path.with_suffix(".new"), ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.rename(path.with_suffix(".new"), path)


def edit(old: str, new: str) -> Callable[[Machine], None]:
    return lambda machine: machine.put(GPU, INFORMATION.replace(old, new))


ENDING: dict[str, Callable[[Machine], object]] = {
    "module": lambda m: m.put("driver/nvidia/version", "NVRM version: 2\n"),
    "unloaded": lambda m: os.unlink(m.path / "driver/nvidia/version"),
    "params": lambda m: m.put("driver/nvidia/params", "ModifyDeviceFiles: 0\n"),
    "uuid": edit("GPU-1", "GPU-2"),
    "minor": edit("Minor: \t 0", "Minor: \t 1"),
    "excluded": edit("No", "Yes"),
    "unreadable": lambda m: os.unlink(m.path / GPU),
    "garbled": lambda m: m.put(GPU, ""),
    "new GPU": lambda m: m.put(GPU.replace("07", "08"), INFORMATION),
    "MIG compute instance": lambda m: os.mkdir(
        m.path / "driver/nvidia/capabilities/gpu0/mig/gi1/ci1"
    ),
    "MIG GPU instance": lambda m: os.mkdir(m.path / "driver/nvidia/capabilities/gpu0/mig/gi2"),
    "MIG gone": lambda m: os.rmdir(m.path / "driver/nvidia/capabilities/gpu0/mig/gi1/ci0"),
    "library's size": lambda m: m.put("lib/libcuda.so.1", "ELF2"),
    "library's time": lambda m: os.utime(m.path / "lib/libcuda.so.1"),
    "library's inode": lambda m: replace(m, "lib/libcuda.so.1"),
    "library gone": lambda m: os.unlink(m.path / "lib/libcuda.so.1"),
    "appeared": lambda m: m.put("absent", ""),
    "directory": lambda m: m.put("lib/other", ""),
    "other version": lambda m: m.taken.update(version="0"),
    "other boot": lambda m: m.taken["texts"].update({fingerprint._BOOT_ID: "x"}),
}


@pytest.mark.parametrize("name", ENDING)
def test_what_ends_it(machine: Machine, name: str) -> None:
    ENDING[name](machine)
    assert not machine.holds()


LEAVING: dict[str, Callable[[Machine], object]] = {
    "nothing": lambda m: None,
    "interrupt": edit("IRQ: \t 0", "IRQ: \t 184"),
    "firmware": edit("N/A", "550.163.01"),
    "video BIOS": edit("??.??", "92.00"),
    "times in /proc": lambda m: os.utime(m.path / "driver/nvidia/version"),
    "inodes in /proc": lambda m: replace(m, GPU),
    "MIG's own files": lambda m: m.put("driver/nvidia/capabilities/gpu0/mig/config", ""),
    "MIG without GPU": lambda m: m.put("driver/nvidia/capabilities/mig/monitor", ""),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_leaves_it(machine: Machine, name: str) -> None:
    LEAVING[name](machine)
    assert machine.holds()


def test_text_that_is_no_utf8_is_compared_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / GPU).write_bytes(b"Model: \xff\n")
    machine.taken = fingerprint.take(str(tmp_path), [], [])
    assert machine.holds()
    (tmp_path / GPU).write_bytes(b"Model: \xfe\n")
    assert not machine.holds()
