"""What is said when a container can't have its GPUs, and that nothing is left of the attempt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakehost import Description, GpuSpec
from tests.harness import Bundle, Runtime, processes
from tests.harness.attempt import refusal
from tests.harness.machine import Machine
from tests.harness.seen import probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]


@pytest.fixture
def machine(make_machine: Callable[..., Machine]) -> Machine:
    return make_machine()


Refuse = Callable[..., str]


@pytest.fixture
def refuse(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> Iterator[Refuse]:
    runtime = runtime_of(machine)

    def attempt(value: str, *env: str) -> str:
        env = (f"NVIDIA_VISIBLE_DEVICES={value}", *env)
        bundle = make_bundle("debian", probe(["exit", "0"]), env=env)
        text = refusal(machine, runtime, bundle)
        # Whoever asks for nothing is not concerned.
        runtime.run(make_bundle("busybox", probe(["exit", "0"]))).check()
        runtime.run(make_bundle("busybox", probe(["exit", "0"]), env=["A=\\u0041"])).check()
        return text

    yield attempt


def test_gpus_that_are_not_there(machine: Machine, refuse: Refuse) -> None:
    """B36: the bad item and the available ones are named, and no partial grant is left."""
    for value, bad in (
        ("0,1,8", "8"),
        ("-1", "-1"),
        ("99999999999", "99999999999"),
        ("GPU-deadbeef", "GPU-deadbeef"),
        ("0,nonsense", "nonsense"),
    ):
        text = refuse(value)
        assert f"NVIDIA_VISIBLE_DEVICES={value}," in text
        assert f"no GPU '{bad}' here" in text
        for gpu in machine.host.gpus:
            assert f"{gpu.index} = {gpu.model.name} {gpu.uuid}" in text


def test_a_capability_that_does_not_exist(refuse: Refuse) -> None:
    text = refuse("0", "NVIDIA_DRIVER_CAPABILITIES=compute,telepathy")
    assert "'telepathy'" in text
    assert "compute, " in text


def test_a_gpu_that_does_not_work(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """B54: only the one that is named is an error, and the others are not spoiled."""
    machine = make_machine(
        Description(gpus=[GpuSpec(), GpuSpec(broken=True)], modify_device_files=0)
    )
    runtime = runtime_of(machine)
    for value, status in (("0", 0), ("all", 0), ("1", 1), ("0,1", 1)):
        bundle = make_bundle("busybox", probe(["env"]), env=[f"NVIDIA_VISIBLE_DEVICES={value}"])
        if status:
            text = refusal(machine, runtime, bundle)
            assert f"GPU 1 ({machine.host.gpus[1].bus}) does not work" in text
        else:
            seen = runtime.run(bundle).check().stdout
            assert f"NVIDIA_VISIBLE_DEVICES={machine.uuids(0)}\n" in seen


def test_no_driver(machine: Machine, refuse: Refuse) -> None:
    config = Path(machine.places.config)
    config.write_text(config.read_text().replace('driver-wait = "10s"', 'driver-wait = "1s"'))
    machine.host.unload_driver(refuse=True)
    text = refuse("0")
    assert "driver" in text
    assert "loaded" in text
    assert len(text) < 1000
    machine.host.load_driver()


def test_no_gpu_at_all(machine: Machine, refuse: Refuse) -> None:
    for _ in range(8):
        machine.host.unplug(0)
    for value in ("all", "0"):
        assert "no GPU" in refuse(value)


def test_a_node_that_cannot_be_made(machine: Machine, refuse: Refuse) -> None:
    machine.host.remove_node("nvidia-uvm")
    dev = machine.host.dev_root
    subprocess.run(["mount", "--bind", dev, dev], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", dev], check=True)
        text = refuse("0")
    finally:
        processes.unmount_below(dev)
    assert f"{dev}/nvidia-uvm is missing, and can't be made: the file system is read-only" in text


@pytest.mark.parametrize("like", ["nvidia0", "nvidiactl"])
def test_a_node_with_the_numbers_of_another(machine: Machine, refuse: Refuse, like: str) -> None:
    """It would give the container another GPU than the one that it asked for."""
    node = machine.host.dev_root / machine.node(1)
    number = os.stat(node).st_rdev
    node.unlink()
    os.mknod(node, 0o20666, os.stat(machine.host.dev_root / like).st_rdev)
    text = refuse("1")
    assert f"{node} has the numbers" in text
    assert f"({os.major(number)}:{os.minor(number)})" in text
    node.unlink()
    with pytest.raises(AssertionError, match=r": 0\b"):
        refuse("1")


def test_a_library_that_vanished(machine: Machine, refuse: Refuse) -> None:
    for stem, capability in (("libcuda", "compute"), ("libnvidia-ml", "utility")):
        hidden = list(machine.host.library_directory.glob(f"{stem}.so*"))
        for path in hidden:
            path.rename(machine.host.root / path.name)
        text = refuse("0")
        assert f"{stem}.so.1" in text
        assert f"'{capability}'" in text
        for path in hidden:
            (machine.host.root / path.name).rename(path)
    with pytest.raises(AssertionError, match=r": 0\b"):
        refuse("0")


def test_what_is_no_part_of_every_installation(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """Without nvidia-smi, the OpenCL file or sockets the rest is given all the same."""
    for name in (
        "usr/bin/nvidia-smi",
        "etc/OpenCL/vendors/nvidia.icd",
        "run/nvidia-persistenced/socket",
    ):
        (machine.host.root / name).unlink()
    bundle = make_bundle(
        "debian", probe(["dlopen", "libcuda.so.1"]), env=["NVIDIA_VISIBLE_DEVICES=0"]
    )
    runtime_of(machine).run(bundle).check()


def test_every_library_vanished(machine: Machine, refuse: Refuse) -> None:
    for path in machine.host.library_directory.glob("lib*.so.550*"):
        path.unlink()
    text = refuse("0")
    assert "550.163.01" in text


def test_a_configuration_that_is_wrong(machine: Machine, refuse: Refuse) -> None:
    path = Path(machine.places.config)
    content = path.read_text()
    for wrong, word in (
        (content + "[runtime\n", "config.toml"),
        (content + '[runtime]\nlog-levle = "info"\n', "log-levle"),
        (content.replace('driver-wait = "10s"', "driver-wait = 10"), "driver-wait"),
        ("\x00", "config.toml"),
    ):
        path.write_text(wrong)
        assert word in refuse("0")
    path.write_bytes(b"\xff\xfe")
    assert "config.toml" in refuse("0")
    path.unlink()
    path.mkdir()
    assert "config.toml" in refuse("0")


def test_a_gpu_comes_while_one_asks(machine: Machine, refuse: Refuse) -> None:
    """The refusal is no lasting truth: with the ninth GPU there the same request is met."""
    refuse("8")
    machine.host.hotplug(GpuSpec())
    with pytest.raises(AssertionError, match=r": 0\b"):
        refuse("8")


def test_a_taken_id(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """The container that has the name keeps its record, and what the spec says stays."""
    first = make_bundle("busybox", probe(["sleep", "9"]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    second = make_bundle("busybox", probe(["sleep", "9"]), env=["NVIDIA_VISIBLE_DEVICES=2"])
    gpushim.create(first, id="one").check()
    record = Path(dgx.places.containers, "one")
    before = sorted(os.listdir(record)), second.config_path.read_bytes()
    result = gpushim.create(second, id="one")
    assert result.status == 1
    assert "one" in result.stderr
    assert (sorted(os.listdir(record)), second.config_path.read_bytes()) == before


def test_a_spec_that_is_none(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """What gpushim can't read it does not hide: runc or gpushim says so, and nothing is written."""
    for text in (
        '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}',
        '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0",]}}',
        '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"],"user":{"uid":}}}',
        '["NVIDIA_VISIBLE_DEVICES=0"]',
        '{"process":{"env":{"a":"NVIDIA_VISIBLE_DEVICES=0"}}}',
        '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"mounts":7,"linux":[]}',
        '{"process":"NVIDIA_VISIBLE_DEVICES=0","x":"NVIDIA_VISIBLE_DEVICES=0"}',
    ):
        bundle = make_bundle("busybox")
        bundle.config_path.write_text(text)
        result = gpushim.run(bundle)
        assert result.status == 1
        assert "Traceback" not in result.stderr
        assert "fault of its own" not in result.stderr
        assert bundle.config_path.read_text() == text
        assert not list(bundle.path.glob("config.json?*"))


def test_a_cuda_variable_that_is_refused_leaves_the_root_as_it_was(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """Nothing is written on failure, in the container's root either; so it is for odd specs."""
    machine = make_machine(configuration='[request]\ncuda-visible-devices = "strict"\n')
    runtime = runtime_of(machine)
    refused = make_bundle(
        "debian", probe(["env"]), env=["NVIDIA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=5"]
    )
    odd = make_bundle("debian", probe(["env"]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    odd.config["linux"]["devices"] = {"path": "/dev/null"}
    odd.write()
    for bundle, words in ((refused, "leaves CUDA without a device"), (odd, "is not a valid spec")):
        cache = bundle.rootfs / "etc/ld.so.cache"
        before = cache.read_bytes()
        assert words in refusal(machine, runtime, bundle)
        assert cache.read_bytes() == before
        assert not (bundle.rootfs / "etc/ld.so.conf.d/00-gpushim.conf").exists()
