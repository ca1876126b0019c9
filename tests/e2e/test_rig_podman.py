"""Podman 5: the specs of `gpushimctl cdi generate` without gpushim, and gpushim as its runtime."""

from __future__ import annotations

import json

import pytest

from tests.rigs import Rig, rig
from tests.rigs.look import LOOK, Seen
from tests.rigs.rig import Completed

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rigs")]

# The rig has neither systemd nor a controller for the number of processes.
CONFIGURATION = """\
[containers]
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
GPUSHIM = ["--runtime=/usr/local/bin/gpushim"]
ALL = list(range(8))


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Rig:
    made = rig(request, "trixie", "v2")
    made.write("/etc/containers/containers.conf", CONFIGURATION)
    return made


def generate(machine: Rig, *options: str) -> None:
    machine.run("rm", "-rf", "/etc/cdi")
    machine.ctl("cdi", "generate", "--output=/etc/cdi/nvidia.json", *options)


def podman(machine: Rig, engine: list[str], *options: str) -> Completed:
    """`podman run` that looks around. Podman's containers can't make nodes by default."""
    image = machine.podman_image("debian")
    words = [*engine, "run", "--rm", "--network=none", "--cap-add=MKNOD", *options, image]
    return machine.run("podman", *words, *LOOK, check=False)


@pytest.mark.parametrize("layout", ["tree", "files"])
@pytest.mark.parametrize("hook", [[], ["--no-hook"]])
def test_without_gpushim(machine: Rig, layout: str, hook: list[str]) -> None:
    generate(machine, f"--layout={layout}", *hook)
    done = podman(machine, [], "--device=nvidia.com/gpu=1")
    seen = Seen(machine, done.stdout)
    assert seen.has(1), (seen, done.stderr)


@pytest.mark.parametrize(
    ("option", "gpus"),
    [
        ("--device=nvidia.com/gpu=all", ALL),
        ("--gpus=all", ALL),
        # A name, and no number of GPUs as with Docker.
        ("--gpus=2", [2]),
    ],
)
@pytest.mark.parametrize("engine", [[], GPUSHIM])
def test_names(machine: Rig, engine: list[str], option: str, gpus: list[int]) -> None:
    generate(machine)
    done = podman(machine, engine, option)
    seen = Seen(machine, done.stdout)
    assert seen.has(*gpus), (seen, done.stderr)


@pytest.mark.parametrize(
    ("option", "gpus"),
    [
        ("--env=NVIDIA_VISIBLE_DEVICES=1,3", [1, 3]),
        ("--annotation=gpushim.gpus=device=5", [5]),
        ("--env=GPUSHIM_GPUS=device=6", [6]),
    ],
)
def test_gpushim_as_runtime(machine: Rig, option: str, gpus: list[int]) -> None:
    """No spec is needed."""
    machine.run("rm", "-rf", "/etc/cdi")
    done = podman(machine, GPUSHIM, option)
    seen = Seen(machine, done.stdout)
    assert seen.has(*gpus), (seen, done.stderr)


def test_a_refusal_is_what_podman_prints(machine: Rig) -> None:
    done = podman(machine, GPUSHIM, "--env=NVIDIA_VISIBLE_DEVICES=8")
    assert done.returncode == 126
    assert "no GPU '8' here" in done.stderr


def test_what_podman_injected_is_on_record(machine: Rig) -> None:
    generate(machine)
    options = ["--detach", "--network=none", "--device=nvidia.com/gpu=0"]
    image = machine.podman_image("debian")
    container = machine.run("podman", *GPUSHIM, "run", *options, image, "sleep", "600")
    name = container.stdout.strip()
    try:
        told = json.loads(machine.ctl("explain", "--json", name).stdout)
        assert [gpu["uuid"] for gpu in told["grant"]["gpus"]] == [machine.host.gpus[0].uuid]
        smi = machine.run("podman", *GPUSHIM, "exec", name, "nvidia-smi", "-L").stdout
        assert smi.count("GPU ") == 1
    finally:
        machine.run("podman", "rm", "--force", "--time=0", name)
