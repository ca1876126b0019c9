"""Containers with GPUs under plain runc: which devices they have, and what of the driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.fakehost import preset
from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, mount_points, outcomes, probe, variables

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
RuntimeOf = Callable[[Machine], Runtime]


def allowed(bundle: Bundle) -> list[tuple[int, int, str]]:
    """Major, minor and access of the device rules that allow something."""
    rules = bundle.read()["linux"]["resources"]["devices"]
    return [(r["major"], r["minor"], r["access"]) for r in rules if r["allow"]]


def test_two_gpus_of_eight(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    forbidden = dgx.number(dgx.node(0))
    bundle = make_bundle(
        "debian",
        probe(
            ["open", *NODES],
            ["mknod", "/tmp/gpu0", *map(str, forbidden)],
            ["open", "/tmp/gpu0"],
            ["dlopen", "libcuda.so.1", "libnvidia-ml.so.1"],
            ["env"],
        ),
        env=["NVIDIA_VISIBLE_DEVICES=1,3"],
    )
    seen = gpushim.run(bundle).check().stdout
    assert devices(seen) == dict.fromkeys([*CONTROL, dgx.node(1), dgx.node(3)], "ENXIO")
    assert outcomes(seen)["/tmp/gpu0"] == "EPERM"
    assert outcomes(seen)["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.1"
    assert outcomes(seen)["libnvidia-ml.so.1"] == "/usr/local/nvidia/lib64/libnvidia-ml.so.1"
    assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(1, 3)
    assert variables(seen)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    expected = sorted([*CONTROL, dgx.node(1), dgx.node(3)])
    assert sorted(allowed(bundle)) == sorted((*dgx.number(name), "rw") for name in expected)


def test_nvidia_smi_counts_what_it_may_open(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    bundle = make_bundle("debian", ["nvidia-smi", "-L"], env=["NVIDIA_VISIBLE_DEVICES=5,0,2"])
    lines = gpushim.run(bundle).check().stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["GPU 0", "GPU 1", "GPU 2"]


@pytest.mark.parametrize("order", ["3,1", "{3},{1}", " 3 , 1,1,{3}"])
def test_ways_to_name_the_same_gpus(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle, order: str
) -> None:
    """The variable afterwards is the same, in the order of the bus, whatever the first was."""
    value = order.format(*(gpu.uuid for gpu in dgx.host.gpus))
    bundle = make_bundle("busybox", probe(["env"]), env=[f"NVIDIA_VISIBLE_DEVICES={value}"])
    seen = gpushim.run(bundle).check().stdout
    assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(1, 3)


def test_all(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    bundle = make_bundle("busybox", probe(["open", *NODES]), env=["NVIDIA_VISIBLE_DEVICES=all"])
    seen = gpushim.run(bundle).check().stdout
    every = [dgx.node(index) for index in range(8)]
    assert devices(seen) == dict.fromkeys([*CONTROL, *every], "ENXIO")


def test_none(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B33: the driver's files, but no node and no rule."""
    bundle = make_bundle(
        "debian",
        probe(
            ["open", *NODES],
            ["mknod", "/tmp/ctl", *map(str, dgx.number("nvidiactl"))],
            ["open", "/tmp/ctl"],
            ["dlopen", "libcuda.so.1"],
            ["env"],
        ),
        env=["NVIDIA_VISIBLE_DEVICES=none"],
    )
    seen = gpushim.run(bundle).check().stdout
    assert devices(seen) == {}
    assert outcomes(seen)["/tmp/ctl"] == "EPERM"
    assert outcomes(seen)["libcuda.so.1"].startswith("/usr/local/nvidia/")
    assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert allowed(bundle) == []


@pytest.mark.parametrize("env", [[], ["void"], [""], ["all", "void"], [" , "]])
def test_no_request(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle, env: list[str]
) -> None:
    """B34: no variable, void, empty, blanks; of two the last one counts."""
    bundle = make_bundle(
        "busybox", probe(["open", *NODES]), env=[f"NVIDIA_VISIBLE_DEVICES={v}" for v in env]
    )
    before = bundle.config_path.read_bytes(), os.stat(bundle.config_path)
    files = sorted(os.listdir(bundle.path))
    assert devices(gpushim.run(bundle).check().stdout) == {}
    assert bundle.config_path.read_bytes() == before[0]
    assert os.stat(bundle.config_path).st_ino == before[1].st_ino
    assert sorted(os.listdir(bundle.path)) == files
    assert bundle.id not in dgx.records()


def test_utility_alone(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(
        "debian",
        probe(["dlopen", "libnvidia-ml.so.1"], ["dlopen", "libcuda.so.1"], ["mounts"]),
        env=["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility"],
    )
    seen = gpushim.run(bundle)
    assert outcomes(seen.stdout)["libnvidia-ml.so.1"].startswith("/usr/local/nvidia/")
    assert "libcuda.so.1 error:" in seen.stdout
    assert "/usr/bin/nvidia-smi" in mount_points(seen.stdout)


def test_compute_alone_has_no_nvidia_smi(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(
        "debian",
        probe(["dlopen", "libcuda.so.1"], ["mounts"]),
        env=["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute"],
    )
    seen = gpushim.run(bundle).check().stdout
    assert "/usr/bin/nvidia-smi" not in mount_points(seen)


def test_nvidia_modeset(
    make_machine: Callable[..., Machine], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """Only graphics and display call for it; they bring files with fixed places, too."""
    machine = make_machine(preset("consumer8", modify_device_files=0))
    runtime = runtime_of(machine)
    for capabilities in ("graphics", "display", "compute,utility"):
        bundle = make_bundle(
            "debian",
            probe(["open", "/dev/nvidia-modeset"], ["mounts"]),
            env=["NVIDIA_VISIBLE_DEVICES=2", f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"],
        )
        seen = runtime.run(bundle).check().stdout
        there = capabilities != "compute,utility"
        assert outcomes(seen)["/dev/nvidia-modeset"] == ("ENXIO" if there else "ENOENT")
        assert any("nvidia_icd.json" in point for point in mount_points(seen)) == there


def test_a_node_that_is_not_for_everybody(
    make_machine: Callable[..., Machine], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """Nodes are root:video 0660: an unprivileged user of the container gets the group."""
    machine = make_machine(preset("mixed_lab", modify_device_files=0))
    node = machine.node(1)
    bundle = make_bundle(
        "busybox",
        probe(["ids"], ["open", f"/dev/{node}", "/dev/nvidiactl"], ["ls", "/dev"]),
        env=["NVIDIA_VISIBLE_DEVICES=1"],
    )
    bundle.config["process"]["user"] = {"uid": 1000, "gid": 1000, "additionalGids": [7]}
    bundle.write()
    seen = runtime_of(machine).run(bundle).check().stdout
    assert "uid=1000 gid=1000" in seen
    groups = seen.partition("groups=")[2].splitlines()[0].split(",")
    assert {"7", "44"} <= set(groups)
    assert devices(seen) == {node: "ENXIO", "nvidiactl": "ENXIO"}
    assert f"{node} 20660 0 44" in seen


def test_a_containerised_driver(
    make_machine: Callable[..., Machine], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """The driver's files lie beneath /run/nvidia/driver and not in the host's own root."""
    machine = make_machine()
    root = machine.host.root / "run/nvidia/driver"
    root.mkdir(parents=True)
    for name in ("usr", "etc", "lib", "lib64"):
        if (machine.host.root / name).exists() or (machine.host.root / name).is_symlink():
            (machine.host.root / name).rename(root / name)
    text = machine.host.toml().replace(f"{machine.host.root}/usr", f"{root}/usr")
    text = text.replace(f'driver-root = "{machine.host.root}"', f'driver-root = "{root}"')
    with open(machine.places.config, "w") as file:
        file.write(text)
    bundle = make_bundle("debian", ["nvidia-smi", "-L"], env=["NVIDIA_VISIBLE_DEVICES=1,3"])
    runtime = runtime_of(machine)
    assert len(runtime.run(bundle).check().stdout.splitlines()) == 2
    more = make_bundle(
        "debian", probe(["dlopen", "libcuda.so.1"]), env=bundle.config["process"]["env"]
    )
    assert "/usr/local/nvidia/" in runtime.run(more).check().stdout


def test_the_directory_of_nodes_is_reachable_by_number(dgx: Machine) -> None:
    """B46: systemd looks devices up by number in /dev/char."""
    number = ":".join(map(str, dgx.number(dgx.node(0))))
    link = dgx.host.dev_root / "char" / number
    done = subprocess.run(["readlink", "-f", link], capture_output=True, text=True)
    assert done.stdout.strip() == str(dgx.host.dev_root / dgx.node(0))
