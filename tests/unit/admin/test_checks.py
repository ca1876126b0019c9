"""doctor's checks of the driver and its nodes, on a fake host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpushim.admin import checks, doctor
from gpushim.admin.check_result import FAIL, OK, SKIP, WARN, Result
from gpushim.admin.checks import Context
from gpushim.places import Places

from tests.fakehost import Description, FakeHost, build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")


class Machine:
    def __init__(self, root: Path, description: Description) -> None:
        self.host: FakeHost = build(root / "host", description)
        self.places = Places(str(root / "root"))
        Path(self.places.etc).mkdir(parents=True)
        Path(self.places.config).write_text(self.host.toml())

    def check(self, name: str) -> Result:
        return doctor.examine(name, Context(self.places))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    yield Machine(tmp_path, Description(gpus=2, minors="reversed"))


def test_the_fake_host_is_configured_rightly(machine: Machine) -> None:
    assert machine.check("config.valid").status == OK


def test_a_driver_that_is_loaded(machine: Machine) -> None:
    result = machine.check("driver.loaded")
    assert result.status == OK, result.seen
    nodes = machine.check("device.nodes")
    assert nodes.status == OK, nodes.seen
    assert "nvidia0, " in nodes.seen or "nvidia1, " in nodes.seen


def test_a_driver_that_is_not_loaded(machine: Machine) -> None:
    machine.host.unload_driver()
    result = machine.check("driver.loaded")
    assert (result.status, result.advice) == (FAIL, "Run `modprobe nvidia`.")
    for name in ("driver.versions-match", "gpu.health", "device.nodes", "device.char-links"):
        assert machine.check(name).status == SKIP


def test_a_configuration_that_cannot_be_read(machine: Machine) -> None:
    """What the machine looks like by the defaults says nothing about it as it is configured."""
    Path(machine.places.config).write_text(machine.host.toml() + "[runtime]\nlog-levle = 1\n")
    assert machine.check("config.valid").status == FAIL
    free_of_it = {
        *("python.interpreter", "launcher.present", "state.writable"),
        *("docker.runtime-registered", "config.valid"),
    }
    results = {name: machine.check(name) for name in checks.CHECKS}
    skipped = {
        name
        for name, result in results.items()
        if (result.status, result.seen) == (SKIP, "The configuration can't be read.")
    }
    assert skipped == set(checks.CHECKS) - free_of_it


def test_a_missing_node(machine: Machine) -> None:
    """B56"""
    machine.host.remove_node("nvidia-uvm")
    result = machine.check("device.nodes")
    assert result.status == FAIL
    assert "nvidia-uvm" in result.seen
    assert "nvidiactl" not in result.seen


def test_links_in_dev_char(machine: Machine) -> None:
    """B46: without them systemd takes the devices away at daemon-reload."""
    dev = Path(machine.host.dev_root)
    links = dev / "char"
    links.mkdir(exist_ok=True)
    for link in links.iterdir():
        link.unlink()
    result = machine.check("device.char-links")
    assert result.status == WARN
    assert "nvidiactl" in result.seen
    for node in dev.glob("nvidia*"):
        if node.is_char_device():
            number = node.stat().st_rdev
            links.joinpath(f"{os.major(number)}:{os.minor(number)}").symlink_to(f"../{node.name}")
    assert machine.check("device.char-links").status == OK


def test_a_uvm_node_with_another_number(machine: Machine) -> None:
    """B49: CUDA fails with error 999 while all nodes seem to be there."""
    node = Path(machine.host.dev_root) / "nvidia-uvm"
    number = node.stat().st_rdev
    node.unlink()
    os.mknod(node, 0o20666, os.makedev(os.major(number) - 1, 0))
    result = machine.check("device.nodes")
    assert result.status == FAIL
    assert "major" in result.seen


def test_every_check_says_what_to_do_unless_all_is_well(machine: Machine) -> None:
    for name in checks.CHECKS:
        result = machine.check(name)
        assert (result.status in (OK, SKIP)) == (not result.advice), name
