"""The params hook: programs in the container are told to make no device nodes themselves.

A container's /proc is the kernel's, and without NVIDIA's driver there is no params file in it. A
fixture hook, which runs before gpushim's, puts one there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakehost import preset
from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import devices, mount_points, outcomes, probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]

PARAMS = "/proc/driver/nvidia/params"
ASKS = ["NVIDIA_VISIBLE_DEVICES=1,3"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("params"), preset("dgx_a100", modify_device_files=1))


def with_params(bundle: Bundle, source: Path) -> Bundle:
    """The bundle with the fixture hook: the host's params file in the container's /proc."""
    root = bundle.rootfs
    script = (
        f"mount -n -t tmpfs -o mode=755 driver {root}/proc/driver && "
        f"mkdir {root}/proc/driver/nvidia && cp {source} {root}{PARAMS} && "
        f"chmod 666 {root}{PARAMS}"
    )
    hook = {"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"]}
    bundle.config.setdefault("hooks", {})["createContainer"] = [hook]
    bundle.write()
    return bundle


def test_what_the_container_reads_and_that_it_cannot_write(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """Root in the container can alter neither its own view nor the file on the host."""
    source = machine.host.proc_root / "driver/nvidia/params"
    prepared = Path(machine.places.params)
    look = probe(["cat", PARAMS], ["write", PARAMS, "/dev/shm/x"], ["mounts"])
    bundle = with_params(make_bundle("debian", look, env=ASKS), source)
    seen = runtime_of(machine).run(bundle).stdout
    assert "ModifyDeviceFiles: 0\n" in seen
    assert "ModifyDeviceFiles: 1\n" in source.read_text()
    # All else is what the host's file says.
    expected = source.read_text().replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0")
    assert seen.startswith(prepared.read_text())
    assert sorted(prepared.read_text().splitlines()) == sorted(expected.splitlines())
    assert outcomes(seen)[PARAMS] == "EROFS"
    assert outcomes(seen)["/dev/shm/x"] == "OK"
    assert PARAMS in mount_points(seen)
    assert [hook["args"][0] for hook in bundle.read()["hooks"]["createContainer"]] == [
        "sh",
        "mount",
    ]


def test_what_it_is_for(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """The driver's library makes nodes of other GPUs if params says so, and here it does not."""
    source = machine.host.proc_root / "driver/nvidia/params"
    runtime = runtime_of(machine)
    bundle = with_params(make_bundle("debian", ["sleep", "100"], env=ASKS), source)
    runtime.create(bundle).check()
    runtime.start(bundle.id).check()
    listed = runtime.exec(bundle.id, "nvidia-smi", "-L").check().stdout
    assert listed.count("GPU ") == 2
    everything = [f"/dev/nvidia{minor}" for minor in range(8)]
    seen = runtime.exec(bundle.id, *probe(["open", *everything])).stdout
    assert set(devices(seen)) == {machine.node(1), machine.node(3)}


@pytest.mark.parametrize("proc", [None, "bind"])
def test_a_container_without_a_proc_of_its_own(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    proc: str | None,
) -> None:
    """There is nothing to mount on, so there is no hook."""
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=ASKS)
    mounts = [m for m in bundle.config["mounts"] if m["destination"] != "/proc"]
    if proc:
        options = ["rbind", "ro"]
        mounts.insert(
            0, {"destination": "/proc", "type": "bind", "source": "/proc", "options": options}
        )
    bundle.config["mounts"] = mounts
    for name in ("maskedPaths", "readonlyPaths"):
        bundle.config["linux"].pop(name)
    bundle.write()
    runtime = runtime_of(machine)
    runtime.create(bundle)
    assert not bundle.read().get("hooks", {}).get("createContainer")


def test_it_can_be_switched_off(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    machine = make_machine(configuration="[inject]\nparams-hook = false\n", modify_device_files=1)
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=ASKS)
    runtime_of(machine).run(bundle).check()
    assert "hooks" not in bundle.read()
