"""Specs, bundles and command lines as engines and people write them, for containers with GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, outcomes, probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
RuntimeOf = Callable[[Machine], Runtime]


def test_spec_parts_that_are_null(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B01: null counts as absent, and hooks and annotations of the spec survive."""
    bundle = make_bundle("busybox", probe(["open", *NODES]), env=["NVIDIA_VISIBLE_DEVICES=0"])

    def null(config: dict[str, Any]) -> None:
        config["linux"].update(devices=None)
        config["linux"]["resources"].update(memory=None)
        config.update(annotations=None, hooks=None)

    null(bundle.config)
    bundle.write()
    assert len(devices(gpushim.run(bundle).check().stdout)) == 4


def test_the_hooks_of_the_spec_survive(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """They run as before, beside what gpushim adds; only the vendor's are taken out."""
    log = gpushim.directory / "hooks"
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=0"])
    stages = ["prestart", "createRuntime", "createContainer", "poststart", "poststop"]
    bundle.config["hooks"] = {
        stage: [{"path": "/bin/sh", "args": ["sh", "-c", f"echo {stage} >>{log}"]}]
        for stage in stages
    }
    vendor = gpushim.directory / "nvidia-container-runtime-hook"
    vendor.write_text(f"#!/bin/sh\necho vendor >>{log}\n")
    vendor.chmod(0o755)
    bundle.config["hooks"]["prestart"].insert(0, {"path": str(vendor), "args": ["x", "prestart"]})
    bundle.write()
    gpushim.run(bundle).check()
    assert log.read_text().split() == stages


def test_run_and_create_write_the_same(
    dgx: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """What differs between two bundles is their own paths alone."""
    texts = []
    for command in ("run", "create"):
        bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=0"])
        runtime = runtime_of(dgx)
        getattr(runtime, command)(bundle).check()
        texts.append(bundle.config_path.read_text().replace(bundle.id, "ID"))
    assert texts[0] == texts[1]
    assert "/dev/nvidia" in texts[0]


@pytest.mark.parametrize(
    "words", [["-b", "."], [], ["--bundle=./"], ["--bundle", "{bundle}//"], ["-b", "../{name}/"]]
)
def test_ways_to_name_the_bundle(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle, words: list[str]
) -> None:
    """B23, B24."""
    bundle = make_bundle("busybox", probe(["open", *NODES]), env=["NVIDIA_VISIBLE_DEVICES=4"])
    given = [word.format(bundle=bundle.path, name=bundle.path.name) for word in words]
    done = gpushim.call("run", *given, bundle.id, cwd=bundle.path)
    assert dgx.node(4) in devices(done.check().stdout)


@pytest.mark.parametrize("name", ["create", "run", "exec"])
def test_a_container_with_the_name_of_a_command(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle, name: str
) -> None:
    """B19."""
    bundle = make_bundle("busybox", probe(["sleep", "100"]), env=["NVIDIA_VISIBLE_DEVICES=4"])
    gpushim.create(bundle, id=name).check()
    gpushim.start(name).check()
    assert gpushim.state(name)["status"] == "running"
    assert name in dgx.records()
    seen = gpushim.exec(name, *probe(["open", *NODES])).check().stdout
    assert devices(seen).keys() == {*CONTROL, dgx.node(4)}
    gpushim.delete(name, "--force").check()


def test_update_leaves_the_gpus_usable(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B47: an update of other resources writes the device rules again, those of the spec."""
    bundle = make_bundle("busybox", probe(["sleep", "100"]), env=["NVIDIA_VISIBLE_DEVICES=4"])
    gpushim.create(bundle).check()
    gpushim.start(bundle.id).check()
    for given in (b'{"cpu":{"shares":512}}', b'{"devices":null}'):
        gpushim.call("update", "--resources", "-", bundle.id, input=given).check()
        seen = gpushim.exec(bundle.id, *probe(["open", *NODES])).check().stdout
        assert set(devices(seen).values()) == {"ENXIO"}


def test_a_privileged_container(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B06: as engines write it. It sees all GPUs, no node is there twice, and the log says so."""
    bundle = make_bundle("busybox", probe(["open", *NODES]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    numbers = [dgx.number(f"nvidia{minor}") for minor in range(8)]
    bundle.config["linux"]["devices"] = [
        {"path": f"/dev/nvidia{minor}", "type": "c", "major": number[0], "minor": number[1]}
        for minor, number in enumerate(numbers)
    ]
    bundle.config["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    bundle.write()
    seen = gpushim.run(bundle).check().stdout
    assert devices(seen).keys() == {*CONTROL, *(f"nvidia{minor}" for minor in range(8))}
    paths = [device["path"] for device in bundle.read()["linux"]["devices"]]
    assert len(paths) == len(set(paths))
    line = next(line for line in dgx.log_lines() if line.get("id") == bundle.id)
    assert any("privileged" in warning for warning in line["warnings"])


@pytest.mark.parametrize("readonly", [False, True])
def test_a_volume_over_the_loader_cache(
    gpushim: Runtime, make_bundle: MakeBundle, tmp_path: Path, readonly: bool
) -> None:
    """The loader reads the volume's, so the image's is of no use; the volume stays as it is."""
    volume = tmp_path / "etc"
    volume.mkdir()
    bundle = make_bundle(
        "debian",
        probe(["dlopen", "libcuda.so.1"]),
        env=["NVIDIA_VISIBLE_DEVICES=0"],
        readonly=readonly,
        mounts=[
            {"destination": "/etc", "type": "bind", "source": str(volume), "options": ["bind"]}
        ],
    )
    seen = gpushim.run(bundle).check().stdout
    assert outcomes(seen)["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.1"
    assert os.listdir(volume) == []


def test_a_tmpfs_over_the_loader_cache(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    tmpfs = {"destination": "/etc", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}
    bundle = make_bundle(
        "debian",
        probe(["dlopen", "libcuda.so.1"]),
        env=["NVIDIA_VISIBLE_DEVICES=0"],
        mounts=[tmpfs],
    )
    for _ in range(2):
        seen = gpushim.run(bundle).check().stdout
        assert outcomes(seen)["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.1"
