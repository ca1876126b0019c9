"""What GPUs are really used for counts when containers are given some."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.host.deviceuse import DeviceUse, Reading, now
from gpushim.oci.jsontext import dumps

from tests.fakehost import preset
from tests.harness import Bundle, Runtime
from tests.harness.bundle import PROBE
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
GIB = 1 << 30


class Place:
    """A machine with four GPUs, and containers on it."""

    def __init__(self, machine: Machine, runtime: Runtime, make_bundle: MakeBundle) -> None:
        self.machine, self.runtime, self._make = machine, runtime, make_bundle

    def bundle(self, *keys: str) -> Bundle:
        env = [f"GPUSHIM_{key}" for key in keys]
        return self._make("busybox", [PROBE, "sleep", "100"], env=env)

    def start(self, *keys: str) -> Bundle:
        bundle = self.bundle(*keys)
        self.runtime.create(bundle).check()
        self.runtime.start(bundle.id).check()
        return bundle

    def pid(self, bundle: Bundle) -> int:
        pid: int = self.runtime.state(bundle.id)["pid"]
        return pid

    def gpus(self, bundle: Bundle) -> list[int]:
        """The indices of what a container got, by its lease."""
        uuids = [gpu.uuid for gpu in self.machine.host.gpus]
        for lease in leases(self.machine):
            if lease["id"] == bundle.id:
                return [uuids.index(device["uuid"]) for device in lease["devices"]]
        return []

    def given(self, *keys: str) -> list[int]:
        """What a container is given; it is gone again afterwards."""
        bundle = self.start(*keys)
        try:
            return self.gpus(bundle)
        finally:
            self.runtime.delete(bundle.id, "--force").check()

    def refused(self, *keys: str) -> str:
        result = self.runtime.create(self.bundle(*keys))
        assert result.status == 1, result
        return result.stderr

    def warnings(self) -> list[str]:
        """Those of all lines in gpushim's log."""
        return [text for line in self.machine.log_lines() for text in line.get("warnings", [])]


def leases(machine: Machine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(machine.installed.ctl("ps", "--json"))["leases"]
    return found


@pytest.fixture
def place(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> Place:
    machine = make_machine(preset("a100_pcie4", modify_device_files=0))
    return Place(machine, runtime_of(machine), make_bundle)


@pytest.fixture
def somebody() -> Iterator[int]:
    """A process of the host, without a container."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_gpu_that_somebody_computes_on_is_not_free(place: Place, somebody: int) -> None:
    host = place.machine.host
    assert place.given("GPUS=1") == [0]
    host.set_processes(0, [(somebody, 2 * GIB)])
    assert place.given("GPUS=1") == [1]
    assert place.given("GPUS=2") == [2, 3]
    place.start("GPUS=2")
    assert f"used by process {somebody} (sleep, 2 GiB) without a lease" in place.refused("GPUS=2")


def test_four_of_four_are_given_whoever_uses_them(place: Place, somebody: int) -> None:
    """With `auto` the driver is asked where there is a choice; with `always` in any case."""
    place.machine.host.set_processes(0, [(somebody, 2 * GIB)])
    assert place.given("GPUS=4") == [0, 1, 2, 3]
    place.machine.configure('[allocate]\nreal-use = "always"\n')
    text = place.refused("GPUS=4")
    assert f"used by process {somebody} (sleep, 2 GiB) without a lease" in text
    place.machine.configure('[allocate]\nreal-use = "never"\n')
    assert place.given("GPUS=1") == [0]


def test_it_is_free_when_that_has_ended(place: Place) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    place.machine.host.set_processes(0, [(process.pid, 2 * GIB)])
    assert place.given("GPUS=1") == [1]
    process.kill()
    process.wait()
    # The driver has not noticed yet.
    assert place.given("GPUS=1") == [0]


def test_a_containers_own_processes_are_its_leases(place: Place) -> None:
    """And what it holds is not taken twice."""
    first = place.start("GPUS=1", "MEMORY=30g")
    assert place.gpus(first) == [0]
    place.machine.host.set_processes(0, [(place.pid(first), 30 * GIB)])
    place.machine.host.set_memory_used(0, 30 * GIB)
    assert place.given("GPUS=1", "MEMORY=40g") == [0]
    assert place.given("GPUS=1", "MEMORY=50g") == [1]
    assert place.given("GPUS=1") == [1]


def test_memory_that_others_hold_is_taken(place: Place, somebody: int) -> None:
    place.machine.host.set_processes(0, [(somebody, 60 * GIB)])
    assert place.given("GPUS=1", "MEMORY=10g") == [0]
    assert place.given("GPUS=1", "MEMORY=25g") == [1]


@pytest.mark.parametrize("devices", ["0", "all"])
def test_who_named_a_gpu_uses_it_without_a_booking(
    place: Place, make_bundle: MakeBundle, devices: str
) -> None:
    bundle = make_bundle(
        "busybox", [PROBE, "sleep", "100"], env=[f"NVIDIA_VISIBLE_DEVICES={devices}"]
    )
    place.runtime.create(bundle).check()
    place.machine.host.set_processes(0, [(place.pid(bundle), 60 * GIB)])
    assert place.given("GPUS=1", "MEMORY=25g") == [1]
    assert place.given("GPUS=1") == [1]


def test_a_display_leaves_its_gpu_free(place: Place, somebody: int) -> None:
    place.machine.host.set_processes(0, [(somebody, 20 << 20)], "g")
    assert place.given("GPUS=1") == [0]


def test_a_driver_that_hangs(place: Place) -> None:
    """The container starts a second later, with whatever its lease says is free."""
    place.given("GPUS=1")
    place.machine.host.hang_nvml()
    began = time.monotonic()
    try:
        assert place.given("GPUS=1") == [0]
        assert time.monotonic() - began < 8
        assert any("NVML can't tell" in text for text in place.warnings())
    finally:
        place.machine.host.hang_nvml(False)


def test_the_exporters_finding_counts_while_it_is_fresh(place: Place, somebody: int) -> None:
    place.given("GPUS=1")
    kept = Path(place.machine.places.use)

    def write(age: float) -> None:
        reading = Reading(now() - age)
        for index, gpu in enumerate(place.machine.host.gpus):
            use = reading.devices[gpu.uuid] = DeviceUse()
            use.processes = [(somebody, GIB, "c")] if index < 2 else []
        kept.write_text(dumps(reading.to_json()))

    write(0)
    assert place.given("GPUS=1") == [2]
    write(60)
    assert place.given("GPUS=1") == [0]


def test_a_lost_gpu_stays_out_until_its_container_has_ended(place: Place) -> None:
    machine = place.machine
    mine = place.start("GPUS=1")
    machine.host.set_lost(0)
    assert place.given("GPUS=1") == [1]
    machine.host.set_lost(0, False)
    machine.installed.ctl("release", mine.id, "--force")
    assert place.given("GPUS=1") == [1]
    shown = machine.installed.ctl("ps")
    assert "GPU 0 (NVIDIA A100 80GB PCIe) is in quarantine (lost), until test-" in shown
    os.kill(place.pid(mine), 9)
    place.runtime.wait(mine.id)
    assert place.given("GPUS=1") == [0]


def test_quarantine_ends_by_undrain(place: Place) -> None:
    machine = place.machine
    mine = place.start("GPUS=1")
    machine.host.set_lost(0)
    assert place.given("GPUS=1") == [1]
    machine.host.set_lost(0, False)
    machine.installed.ctl("release", mine.id, "--force")
    assert "GPU 0 " in machine.installed.ctl("undrain", "0")
    # Its processes are there still, and nobody told the driver that they use anything.
    assert place.given("GPUS=1") == [0]


def test_what_the_configuration_keeps_out(place: Place) -> None:
    place.machine.configure('[allocate]\nkeep-out = ["0", "2"]\n')
    assert place.given("GPUS=2") == [1, 3]
    assert "kept out by the configuration" in place.refused("GPUS=3")
