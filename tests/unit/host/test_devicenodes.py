"""Device nodes: looking at them, and making those that are missing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from gpushim.config_keys import configured
from gpushim.host import devicenodes, nodes

DEVICES = """Character devices:
  1 mem
195 nvidia-frontend
508 nvidia-caps
511 nvidia-uvm

Block devices:
  8 sd
195 nvidia-uvm
"""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")


class Machine:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.dev = path / "dev"
        (path / "proc/driver/nvidia").mkdir(parents=True)
        self.dev.mkdir()
        (path / "proc/devices").write_text(DEVICES)
        self.values: dict[str, bool | str | list[str]] = {
            "host.proc-root": str(path / "proc"),
            "host.dev-root": str(self.dev),
            "host.helpers": [],
            "host.driver-wait": "1s",
        }

    def node(self, name: str, major: int, minor: int, mode: int = 0o666) -> None:
        os.mknod(self.dev / name, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        os.chmod(self.dev / name, mode)

    def make(
        self, minors: list[int], modeset: bool = False, capabilities: dict[int, str] | None = None
    ) -> dict[str, str]:
        return nodes.make_missing(configured(self.values), minors, modeset, capabilities or {})

    def facts(self, name: str) -> tuple[int, int, int, int, int] | None:
        return devicenodes.node_facts(str(self.dev), name)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@root_only
def test_node_facts(machine: Machine) -> None:
    machine.node("nvidia3", 195, 3, 0o640)
    os.chown(machine.dev / "nvidia3", 12, 44)
    assert machine.facts("nvidia3") == (195, 3, 0o640, 12, 44)


def test_what_is_no_character_device_is_no_node(machine: Machine) -> None:
    (machine.dev / "file").touch()
    (machine.dev / "directory").mkdir()
    for name in ("absent", "file", "directory"):
        assert machine.facts(name) is None


def test_majors_are_those_of_character_devices(machine: Machine) -> None:
    found = devicenodes.character_majors(str(machine.path / "proc"))
    assert found == {"mem": 1, "nvidia-frontend": 195, "nvidia-caps": 508, "nvidia-uvm": 511}


def test_a_major_that_moved_is_warned_of(machine: Machine) -> None:
    """B49."""
    proc = str(machine.path / "proc")
    assert devicenodes.uvm_warning(proc, 511) == ""
    warning = devicenodes.uvm_warning(proc, 510)
    assert "510" in warning
    assert "511" in warning
    (machine.path / "proc/devices").unlink()
    assert devicenodes.uvm_warning(proc, 510) == ""


@root_only
def test_all_are_made(machine: Machine) -> None:
    """B56."""
    (machine.path / "proc/driver/nvidia/params").write_text(
        "ModifyDeviceFiles: 0\nDeviceFileUID: 12\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
    )
    assert machine.make([0, 9], modeset=True) == {}
    assert {name: machine.facts(name) for name in os.listdir(machine.dev)} == {
        "nvidia0": (195, 0, 0o660, 12, 44),
        "nvidia9": (195, 9, 0o660, 12, 44),
        "nvidiactl": (195, 255, 0o660, 12, 44),
        "nvidia-modeset": (195, 254, 0o660, 12, 44),
        "nvidia-uvm": (511, 0, 0o666, 0, 0),
        "nvidia-uvm-tools": (511, 1, 0o666, 0, 0),
    }


@root_only
def test_those_there_are_left_as_they_are(machine: Machine) -> None:
    machine.node("nvidia0", 195, 0, 0o600)
    before = os.stat(machine.dev / "nvidia0").st_ino
    machine.make([0])
    assert machine.facts("nvidia0") == (195, 0, 0o600, 0, 0)
    assert os.stat(machine.dev / "nvidia0").st_ino == before


@root_only
def test_reasons(machine: Machine) -> None:
    (machine.path / "proc/devices").write_text(DEVICES.replace("511 nvidia-uvm\n", ""))
    (machine.dev / "nvidia0").touch()
    found = machine.make([0])
    assert "something else is there" in found["nvidia0"]
    assert "nvidia-uvm is not loaded" in found["nvidia-uvm"]
    assert "nvidiactl" not in found
    machine.values["host.load-driver"] = False
    os.unlink(machine.dev / "nvidiactl")
    assert "load-driver is off" in machine.make([])["nvidiactl"]


@root_only
def test_newer_drivers_call_the_front_end_by_another_name(machine: Machine) -> None:
    text = DEVICES.replace("nvidia-frontend", "nvidia")
    (machine.path / "proc/devices").write_text(text)
    assert machine.make([0]) == {}


@root_only
def test_helpers_come_first(machine: Machine) -> None:
    (machine.path / "bin").mkdir()
    program = machine.path / "bin/nvidia-modprobe"
    program.write_text(f'#!/bin/sh\necho "$*" >> {machine.path}/calls\n')
    program.chmod(0o755)
    machine.values["host.helpers"] = ["/nonexistent", str(machine.path / "bin")]
    assert machine.make([0, 2], modeset=True) == {}
    calls = (machine.path / "calls").read_text().splitlines()
    assert calls == ["-c 0 -c 2 -c 255", "-u -c 0", "-m"]
    machine.make([0, 2], modeset=True)
    assert len((machine.path / "calls").read_text().splitlines()) == 3


@root_only
def test_links_are_made_where_there_is_a_place_for_them(machine: Machine) -> None:
    """B46; a link that a former boot left with another meaning is put right."""
    machine.make([0])
    assert not (machine.dev / "char").exists()
    (machine.dev / "char").mkdir()
    os.symlink("../nvidiactl", machine.dev / "char/195:0")
    (machine.dev / "char/511:1").touch()
    machine.make([0])
    assert os.readlink(machine.dev / "char/195:0") == "../nvidia0"
    assert os.readlink(machine.dev / "char/511:0") == "../nvidia-uvm"
    assert not os.path.islink(machine.dev / "char/511:1")
    assert not [name for name in os.listdir(machine.dev / "char") if name.startswith(".")]
