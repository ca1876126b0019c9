"""A bundle that is run again when the machine has changed, and restore from a checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.allocate.book import every, open_book
from gpushim.records import start_time

from tests.fakehost import GpuSpec
from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import NODES, devices, outcomes, probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
MakeMachine = Callable[..., Machine]
RuntimeOf = Callable[[Machine], Runtime]

# A low-level runtime that notes what it was called with, one call a line.
_NOTES = """#!/bin/sh
case $1 in --version) echo 'runc version 1.1.5'; exit;; esac
printf '%s ' "$@" >>@NOTES@
printf '\\n' >>@NOTES@
"""


def granted(bundle: Bundle) -> str:
    """NVIDIA_VISIBLE_DEVICES as the container gets it."""
    values = [v for v in bundle.read()["process"]["env"] if v.startswith("NVIDIA_VISIBLE_DEVICES=")]
    assert len(values) == 1
    value: str = values[0].partition("=")[2]
    return value


def test_the_same_bundle_after_a_driver_upgrade(
    make_machine: MakeMachine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """B50: it starts with the new driver's files, from the original spec."""
    machine = make_machine()
    runtime = runtime_of(machine)
    new = "libnvidia-gpucomp.so.570.86.15"
    look = probe(["dlopen", "libcuda.so.1", new], ["ls", "/usr/local/nvidia/lib64"])
    bundle = make_bundle("debian", look, env=["NVIDIA_VISIBLE_DEVICES=1"])
    original = bundle.config_path.read_bytes()
    assert "libcuda.so.550.163.01 " in runtime.run(bundle).stdout
    first = bundle.config_path.read_bytes()
    runtime.run(bundle)
    assert bundle.config_path.read_bytes() == first
    machine.host.upgrade_driver("570.86.15")
    seen = runtime.run(bundle).check().stdout
    assert outcomes(seen)[new] == f"/usr/local/nvidia/lib64/{new}"
    assert "550.163.01" not in seen
    assert "550.163.01" not in bundle.config_path.read_text()
    assert (bundle.path / "config.json.gpushim-orig").read_bytes() == original


def test_the_same_bundle_after_another_gpu_took_the_place(
    make_machine: MakeMachine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """B52: what was named by index is the GPU that has that index now."""
    machine = make_machine()
    runtime = runtime_of(machine)
    bundle = make_bundle("busybox", probe(["open", *NODES]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    runtime.run(bundle).check()
    assert granted(bundle) == machine.uuids(1)
    bus, uuid = machine.host.gpus[1].bus, machine.host.gpus[1].uuid
    machine.host.unplug(1)
    machine.host.hotplug(GpuSpec(bus=bus, uuid="GPU-11111111-2222-4333-a444-555555555555", minor=9))
    seen = runtime.run(bundle).check().stdout
    assert granted(bundle) == "GPU-11111111-2222-4333-a444-555555555555"
    assert uuid not in bundle.config_path.read_text()
    assert set(devices(seen)) == {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}


def test_a_uuid_that_is_gone_is_an_error(
    make_machine: MakeMachine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """B52: what was named by UUID is that GPU or none; the bundle stays as it was."""
    machine = make_machine()
    runtime = runtime_of(machine)
    uuid = machine.uuids(2)
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=[f"NVIDIA_VISIBLE_DEVICES={uuid}"])
    runtime.run(bundle).check()
    before = {path.name: path.read_bytes() for path in bundle.path.glob("config.json*")}
    machine.host.unplug(2)
    result = runtime.run(bundle)
    assert result.status == 1
    assert uuid in result.stderr
    assert machine.uuids(0) in result.stderr
    assert {path.name: path.read_bytes() for path in bundle.path.glob("config.json*")} == before


def test_an_engine_that_rewrites_the_spec_is_believed(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """Docker writes a new config.json at each start: that is the original then."""
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    gpushim.run(bundle).check()
    bundle.config["process"]["env"][-1] = "NVIDIA_VISIBLE_DEVICES=4"
    bundle.write()
    gpushim.run(bundle).check()
    assert granted(bundle) == dgx.uuids(4)
    # And when it asks for nothing any more, it stays as it is.
    bundle.config["process"]["env"].pop()
    bundle.write()
    text = bundle.config_path.read_bytes()
    gpushim.run(bundle).check()
    assert bundle.config_path.read_bytes() == text


def test_the_driver_of_before_a_reboot(
    make_machine: MakeMachine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """B50: libraries and kernel module differ, and the error names both versions."""
    machine = make_machine()
    machine.host.upgrade_driver("570.86.15", userspace_only=True)
    runtime = runtime_of(machine)
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    result = runtime.run(bundle)
    assert result.status == 1
    assert "550.163.01" in result.stderr
    assert "570.86.15" in result.stderr
    machine.host.load_new_module()
    runtime.run(bundle).check()


class Checkpointed:
    """A machine whose low-level runtime only notes its calls, and a bundle with a grant."""

    def __init__(self, machine: Machine, runtime: Runtime, bundle: Bundle, notes: Path) -> None:
        self.machine, self.runtime, self.bundle, self.notes = machine, runtime, bundle, notes

    def restore(self, *options: str) -> tuple[int, str]:
        """Exit status and error text of a restore."""
        result = self.runtime.call("restore", "--bundle", self.bundle.path, *options, "c1")
        return result.status, result.stderr

    def calls(self) -> list[list[str]]:
        """Those for containers; a refresh asks what the runtime can do, besides."""
        words = [line.split() for line in self.notes.read_text().splitlines()]
        return [call[1:] for call in words if call != ["features"]]


@pytest.fixture
def checkpointed(
    make_machine: MakeMachine, runtime_of: RuntimeOf, make_bundle: MakeBundle, tmp_path: Path
) -> Checkpointed:
    notes, program = tmp_path / "notes", tmp_path / "runc"
    notes.touch()
    program.write_text(_NOTES.replace("@NOTES@", str(notes)))
    program.chmod(0o755)
    machine = make_machine(configuration=f'[runtime]\nlow-level-runtimes = ["{program}"]\n')
    runtime = runtime_of(machine)
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=1,3"])
    runtime.create(bundle, id="c1").check()
    return Checkpointed(machine, runtime, bundle, notes)


def test_restore_of_a_container_with_gpus(checkpointed: Checkpointed) -> None:
    """B29: with the same GPUs under the same numbers, or not at all."""
    before = checkpointed.bundle.config_path.read_bytes()
    assert checkpointed.restore("--image-path", "/x") == (0, "")
    bundle = str(checkpointed.bundle.path)
    handed_on = ["restore", "--bundle", bundle, "--image-path", "/x", "c1"]
    assert checkpointed.calls()[-1] == handed_on
    assert checkpointed.bundle.config_path.read_bytes() == before

    host = checkpointed.machine.host
    gpu = host.gpus[1]
    host.unplug(1)
    host.hotplug(GpuSpec(bus=gpu.bus, uuid=gpu.uuid, minor=11))
    status, text = checkpointed.restore()
    assert status == 1
    assert f"GPU {gpu.uuid} as /dev/nvidia{gpu.minor}" in text
    assert "nvidia11" in text

    host.unplug(1)
    log = checkpointed.runtime.directory / "log.json"
    result = checkpointed.runtime.call(
        *("restore", "--bundle", checkpointed.bundle.path, "c1"),
        options=["--log", str(log), "--log-format", "json"],
    )
    assert result.status == 1
    line = json.loads(log.read_text())
    assert line["level"] == "error"
    assert gpu.uuid in line["msg"]
    assert "is not here" in line["msg"]
    assert len(checkpointed.calls()) == 2


def test_restored_gpus_are_booked_as_they_were(
    checkpointed: Checkpointed, make_bundle: MakeBundle
) -> None:
    """The restored container holds them, and whoever has got them meanwhile keeps them."""
    runtime, machine = checkpointed.runtime, checkpointed.machine
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["GPUSHIM_GPUS=device=3,5"])
    bundle.config["annotations"] = {"gpushim.mode": "exclusive"}
    bundle.write()
    assert runtime.create(bundle, id="c2").status == 0
    (first,) = (each for each in every(machine.places) if each.id == "c2")
    assert {each.mode for each in first.bookings} == {"exclusive"}

    # The stand-in for runc has ended, and with it the container; another takes one of its GPUs.
    stand_in = subprocess.Popen(["sleep", "100"])
    try:
        other = make_bundle("busybox", probe(["exit", "0"]), env=["GPUSHIM_GPUS=device=5"])
        runtime.create(other, id="c3").check()
        _keep_alive(machine, "c3", stand_in.pid)
        result = runtime.call("restore", "--bundle", bundle.path, "c2")
        assert result.status == 1
        assert f"{machine.host.gpus[5].uuid} (exclusive), and c3 has it now" in result.stderr
        before = len(checkpointed.calls())
    finally:
        stand_in.kill()
        stand_in.wait()
    runtime.call("restore", "--bundle", bundle.path, "c2").check()
    assert len(checkpointed.calls()) == before + 1
    (again,) = (each for each in every(machine.places) if each.id == "c2")
    assert again.creator != first.creator
    assert [each.to_json() for each in again.bookings] == [
        each.to_json() for each in first.bookings
    ]


def _keep_alive(machine: Machine, container: str, pid: int) -> None:
    """Have a lease's creator be a process that lives, as it is while runc is at work."""
    (lease,) = (each for each in every(machine.places) if each.id == container)
    lease.creator = (pid, start_time(pid))
    with open_book(machine.places) as book:
        book.put(lease)


def test_restore_without_a_grant(checkpointed: Checkpointed, make_bundle: MakeBundle) -> None:
    """It is handed on, also where gpushim has no inventory at all."""
    bundle = make_bundle("busybox")
    os.unlink(checkpointed.machine.places.snapshot)
    checkpointed.runtime.call("restore", "--bundle", bundle.path, "c2").check()
    assert checkpointed.calls()[-1][-1] == "c2"
    assert not os.path.exists(checkpointed.machine.places.snapshot)
