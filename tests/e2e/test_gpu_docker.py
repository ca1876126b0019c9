"""docker run with GPUs: by the variable and by --gpus, with the options that people give it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.harness import PrivateDockerd
from tests.harness.dockered import Detached, run
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, mount_points, outcomes, probe, variables

pytestmark = pytest.mark.docker

LOOK = probe(["open", *NODES], ["dlopen", "libcuda.so.1", "libnvidia-ml.so.1"], ["env"])
VENDOR_HOOK = "nvidia-container-runtime-hook"


def hooks(spec: dict[str, Any]) -> list[str]:
    """The programs of all hooks in a spec."""
    stages = (spec.get("hooks") or {}).values()
    return [hook["path"] for stage in stages for hook in stage or []]


def test_the_command_that_it_is_all_about(engine: PrivateDockerd) -> None:
    done = run(engine, "--runtime=gpushim", "--", "nvidia-smi", gpus="1,3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("A100-SXM4-80GB") == 2
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("asked", "indices"),
    [("all", range(8)), ("2", (0, 1)), ("device=1", (1,)), ('"device=3,1"', (1, 3))],
)
def test_the_gpus_option(
    dgx: Machine, engine: PrivateDockerd, asked: str, indices: tuple[int, ...]
) -> None:
    """With gpushim as default runtime; Docker's own hook is taken out and never runs."""
    done = run(engine, "--runtime=noted", "--gpus", asked, "--", *LOOK)
    assert done.returncode == 0, done.stderr
    nodes = [*CONTROL, *(dgx.node(index) for index in indices)]
    assert devices(done.stdout) == dict.fromkeys(nodes, "ENXIO")
    assert variables(done.stdout)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(*indices)
    assert not (engine.base / "hook-ran").exists()


def test_the_hook_that_docker_adds_is_gone(dgx: Machine, engine: PrivateDockerd) -> None:
    with Detached(engine, "--gpus", "device=1") as container:
        noted = Detached(engine, "--runtime=noted", "--gpus", "device=1")
        with noted:
            original = json.loads((engine.base / f"specs/{noted.id}.json").read_text())
        assert any(VENDOR_HOOK in path for path in hooks(original))
        assert hooks(container.spec)
        assert not any(VENDOR_HOOK in path for path in hooks(container.spec))
        assert devices(container.exec(*LOOK)).keys() == {*CONTROL, dgx.node(1)}
    assert not (engine.base / "hook-ran").exists()


def test_ldconfig_in_the_container(dgx: Machine, engine: PrivateDockerd) -> None:
    """Before it and after it the loader finds the driver, and `ldconfig -p` lists it."""
    with Detached(engine, gpus="1,3") as container:
        for _ in range(2):
            seen = container.exec(*LOOK)
            assert outcomes(seen)["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.1"
            assert devices(seen).keys() == {*CONTROL, dgx.node(1), dgx.node(3)}
            listed = container.exec("ldconfig", "-p")
            assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in listed
            assert container.exec("ldconfig") == ""


def test_options_that_change_the_root_or_the_user(dgx: Machine, engine: PrivateDockerd) -> None:
    for options in (
        ["--user=1000:1000"],
        ["--user=nobody", "--init"],
        ["--read-only"],
        ["--read-only", "--tmpfs=/run", "--user=1000"],
        ["--network=host", "--pid=host", "--ipc=host"],
        ["--cap-drop=ALL", "--security-opt=no-new-privileges"],
        ["--security-opt=seccomp=unconfined", "--uts=host"],
        ["--device=/dev/fuse", "--group-add=44", "-m=64m", "--cpus=1"],
        ["-w=/tmp", "--entrypoint=/usr/local/bin/probe"],
    ):
        command = LOOK[1:] if "--entrypoint" in options[-1] else LOOK
        done = run(engine, *options, "--", *command, gpus="1,3")
        assert done.returncode == 0, (options, done.stderr)
        assert devices(done.stdout) == dict.fromkeys(
            [*CONTROL, dgx.node(1), dgx.node(3)], "ENXIO"
        ), options
        assert outcomes(done.stdout)["libcuda.so.1"].startswith("/usr/local/nvidia/"), options


def test_a_terminal(engine: PrivateDockerd) -> None:
    image = engine.import_image("debian")
    command = (
        f"docker run --rm -it --network=none -e NVIDIA_VISIBLE_DEVICES=1,3 {image} "
        "sh -c 'tty; stty size; nvidia-smi -L'"
    )
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env={**engine.client_environment(), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert "/dev/pts/0" in done.stdout
    assert done.stdout.count("GPU ") == 2


@pytest.mark.parametrize("options", [[], ["-e", "NVIDIA_VISIBLE_DEVICES=void"]])
def test_who_asks_for_nothing_keeps_his_spec(
    dgx: Machine, engine: PrivateDockerd, options: list[str]
) -> None:
    """B34: config.json stays byte for byte, and nothing is put beside it."""
    with Detached(engine, "--runtime=noted", *options, image="busybox") as container:
        original = (engine.base / f"specs/{container.id}.json").read_bytes()
        assert (container.bundle / "config.json").read_bytes() == original
        assert not list(container.bundle.glob("config.json?*"))
        assert container.id not in dgx.records()


def test_an_image_that_asks(dgx: Machine, engine: PrivateDockerd) -> None:
    """The variable may come from the image, and the command line outranks it."""
    image = engine.import_image("busybox", ["ENV NVIDIA_VISIBLE_DEVICES=5"])
    options = ["run", "--rm", "--network=none"]
    seen = engine.docker(*options, image, *probe(["open", *NODES]), check=True).stdout
    assert devices(seen).keys() == {*CONTROL, dgx.node(5)}
    words = [*options, "-e", "NVIDIA_VISIBLE_DEVICES=", image]
    assert devices(engine.docker(*words, *probe(["open", *NODES]), check=True).stdout) == {}


def test_what_docker_prints_of_errors(dgx: Machine, engine: PrivateDockerd) -> None:
    """Exit status 125 and the whole sentence; never the text about a missing log.json."""
    for gpus, options, words in (
        ("8", [], ["no GPU '8' here", dgx.uuids(0), dgx.uuids(7)]),
        ("GPU-no", [], ["no GPU 'GPU-no' here", dgx.uuids(3)]),
        ("0", ["-e", "NVIDIA_DRIVER_CAPABILITIES=x"], ["driver capability 'x'", "compute"]),
    ):
        done = run(engine, *options, "--", "true", gpus=gpus)
        assert done.returncode == 125, done
        assert "OCI runtime create failed: gpushim: " in done.stderr
        for word in words:
            assert word in done.stderr
        assert "log.json" not in done.stderr
    # And an error that is the user's own is runc's, with its exit status.
    done = run(engine, "--", "/no/such/program", gpus="1")
    assert done.returncode == 127
    assert run(engine, "--", "/etc/passwd", gpus="1").returncode == 126
    assert run(engine, "--", *probe(["exit", "7"]), gpus="1").returncode == 7


def test_mounts_and_volumes_of_the_users(engine: PrivateDockerd) -> None:
    """A volume at /usr/local/nvidia is the user's, and the driver goes elsewhere."""
    command = probe(["dlopen", "libcuda.so.1"], ["ls", "/usr/local/nvidia"], ["mounts"])
    options = ["-v", "/usr/local/nvidia", "-v", "/etc/os-release:/etc/os-release:ro"]
    done = run(engine, *options, "--", *command, gpus="1")
    assert done.returncode == 0, done.stderr
    assert outcomes(done.stdout)["libcuda.so.1"] == "/opt/gpushim/nvidia/lib64/libcuda.so.1"
    assert {"/usr/local/nvidia", "/opt/gpushim/nvidia"} <= mount_points(done.stdout)
