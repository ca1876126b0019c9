"""Specs of `gpushimctl cdi generate` on a Docker that knows CDI, with gpushim and without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rigs import Rig, rig
from tests.rigs.look import LOOK, Seen
from tests.rigs.ran import started

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rigs")]

SPEC = "/etc/cdi/nvidia.json"
TREE = "/usr/local/nvidia/lib64"
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
VARIANTS: dict[str, list[str]] = {
    "tree": [],
    "files": ["--layout=files"],
    "tree without hook": ["--no-hook"],
    "files without hook": ["--layout=files", "--no-hook"],
}
ALL = list(range(8))


@pytest.fixture
def docker28(request: pytest.FixtureRequest) -> Rig:
    return rig(request, "forky")


@pytest.fixture
def docker28_v2(request: pytest.FixtureRequest) -> Rig:
    return rig(request, "forky", "v2")


@pytest.fixture
def docker26(request: pytest.FixtureRequest) -> Rig:
    return rig(request, "trixie")


def generate(machine: Rig, *options: str, path: str = SPEC) -> Rig:
    """Write a spec where Docker looks for it, in place of an earlier one."""
    machine.run("rm", "-rf", "/etc/cdi")
    machine.ctl("cdi", "generate", f"--output={path}", *options)
    return machine


def look(machine: Rig, *options: str, image: str = "debian") -> Seen:
    """What a container of runc's own sees, which gpushim has no part in."""
    words = ["run", "--rm", "--network=none", "--runtime=runc", *options, machine.image(image)]
    done = machine.docker(*words, *LOOK)
    return Seen(machine, done.stdout)


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_gpushim(docker28: Rig, variant: str) -> None:
    check_without_gpushim(docker28, variant)


def test_without_gpushim_on_cgroup_v2(docker28_v2: Rig) -> None:
    """The rules of devices are a program there."""
    check_without_gpushim(docker28_v2, "tree")


def test_without_gpushim_on_docker_26(docker26: Rig) -> None:
    check_without_gpushim(docker26, "tree")


def check_without_gpushim(machine: Rig, variant: str) -> None:
    """The nodes of that GPU and no other, the driver's programs and its libraries."""
    generate(machine, *VARIANTS[variant])
    seen = look(machine, "--device=nvidia.com/gpu=0")
    assert seen.has(0), seen
    words = ["run", "--rm", "--network=none", "--device=nvidia.com/gpu=0"]
    done = machine.docker(*words, machine.image("debian"), "nvidia-smi")
    assert done.returncode == 0, done
    assert done.stdout.count("A100-SXM4-80GB") == 1
    assert "NVIDIA-SMI 550.163.01" in done.stdout
    assert machine.run("ls", "/run/gpushim/containers").stdout == ""


@pytest.mark.parametrize(
    ("variant", "directory"), [("tree", TREE), ("files", MULTIARCH), ("tree without hook", TREE)]
)
def test_where_the_libraries_are(docker28: Rig, variant: str, directory: str) -> None:
    generate(docker28, *VARIANTS[variant])
    seen = look(docker28, "--device=nvidia.com/gpu=1")
    # Debian's /lib is a link to usr/lib, and its loader has it in both ways.
    assert seen.libcuda.removeprefix("/usr") == f"{directory}/libcuda.so.1".removeprefix("/usr")
    assert ("LD_LIBRARY_PATH" in seen.environment) == ("without hook" in variant)


@pytest.mark.parametrize("image", ["distroless", "fedora-like", "ubuntu-like", "debian13"])
@pytest.mark.parametrize("variant", ["tree", "tree without hook"])
def test_images(docker28: Rig, image: str, variant: str) -> None:
    """Each image's own loader finds the driver in the tree."""
    generate(docker28, *VARIANTS[variant])
    seen = look(docker28, "--device=nvidia.com/gpu=2", image=image)
    assert seen.has(2), seen
    assert seen.libcuda.startswith(TREE)


@pytest.mark.parametrize(
    ("names", "gpus"),
    [
        (["3"], [3]),
        (["1", "4"], [1, 4]),
        (["all"], ALL),
        (["UUID-5"], [5]),
        (["0", "UUID-7"], [0, 7]),
    ],
)
def test_names(docker28: Rig, names: list[str], gpus: list[int]) -> None:
    """By index and by UUID (UUID-5 stands for that of GPU 5)."""
    generate(docker28)
    uuids = {f"UUID-{gpu}": docker28.host.gpus[gpu].uuid for gpu in ALL}
    devices = [f"--device=nvidia.com/gpu={uuids.get(name, name)}" for name in names]
    seen = look(docker28, *devices)
    assert seen.has(*gpus), seen


@pytest.mark.parametrize(
    "options",
    [
        ["--read-only", "--tmpfs=/run"],
        ["--user=1000:1000"],
        ["--cap-drop=ALL", "--security-opt=no-new-privileges"],
        ["--init", "-e", "LD_LIBRARY_PATH=/opt/lib"],
    ],
)
def test_options(docker28: Rig, options: list[str]) -> None:
    generate(docker28)
    seen = look(docker28, "--device=nvidia.com/gpu=6", *options)
    assert seen.gpus == [6]
    assert seen.control
    assert seen.libcuda.startswith(TREE)


def test_yaml(docker28: Rig) -> None:
    """It is the default. gpushim itself reads such a spec, too."""
    generate(docker28, path="/etc/cdi/nvidia.yaml")
    assert look(docker28, "--device=nvidia.com/gpu=0").has(0)
    assert "nvidia.com/gpu=0" in docker28.ctl("cdi", "list").stdout
    with started(docker28, "-e", "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=3") as container:
        assert container.look().has(3)


def test_docker_knows_the_names(docker28: Rig) -> None:
    """And a name that is in no spec is refused by Docker."""
    generate(docker28)
    info = json.loads(docker28.docker("info", "--format={{json .}}", check=True).stdout)
    discovered = {device["ID"] for device in info.get("DiscoveredDevices") or []}
    uuid = docker28.host.gpus[0].uuid
    assert {f"nvidia.com/gpu={name}" for name in ("0", "7", "all", uuid)} <= discovered
    words = ["run", "--rm", "--network=none", "--device=nvidia.com/gpu=8"]
    done = docker28.docker(*words, docker28.image("busybox"), "true")
    assert done.returncode == 125
    assert "unresolvable CDI devices nvidia.com/gpu=8" in done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_gpushim_as_runtime(docker28: Rig, variant: str) -> None:
    """What Docker has injected gives way to gpushim's own, of which there is a record."""
    generate(docker28, *VARIANTS[variant])
    check_with_gpushim(docker28, 0)


def test_with_gpushim_as_runtime_on_cgroup_v2(docker28_v2: Rig) -> None:
    generate(docker28_v2)
    check_with_gpushim(docker28_v2, 0)


def test_with_gpushim_as_runtime_on_docker_26(docker26: Rig) -> None:
    generate(docker26)
    check_with_gpushim(docker26, 3)


def check_with_gpushim(machine: Rig, index: int) -> None:
    """The GPU is the one that was named; the driver is there once, with what was asked of it."""
    device = f"nvidia.com/gpu={index}"
    with started(machine, f"--device={device}") as container:
        (recorded,) = container.device_requests
        assert (recorded["Driver"], recorded["DeviceIDs"]) == ("cdi", [device])
        seen = container.look()
        assert seen.has(index), seen
        assert seen.libcuda == f"{TREE}/libcuda.so.1"
        mounts = container.exec("/usr/local/bin/probe", "mounts").stdout
        assert mounts.count("/lib/gpushim/driver/") == 2  # the directory, and nvidia-smi
        explained = container.explained()
        granted: list[dict[str, Any]] = explained["grant"]["gpus"]
        assert [gpu["uuid"] for gpu in granted] == [machine.host.gpus[index].uuid]
        source = explained["request"]["sources"]["devices"]
        assert source.startswith("device request for CDI devices")
