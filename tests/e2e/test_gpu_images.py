"""Root file systems and mounts of the user's in the way of the driver's files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakehost import write_library
from tests.harness import Bundle, Runtime
from tests.harness.bundle import FIRST_UID
from tests.harness.machine import Machine
from tests.harness.seen import NODES, devices, mount_points, outcomes, probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]

ASKS = ["NVIDIA_VISIBLE_DEVICES=1,3"]
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
LOOK = probe(["dlopen", *LIBRARIES], ["open", *NODES], ["mounts"])


def from_the_driver(text: str, place: str = "/usr/local/nvidia") -> bool:
    found = outcomes(text)
    return all(found.get(name) == f"{place}/lib64/{name}" for name in LIBRARIES)


def bind(source: Path, destination: str, *options: str) -> dict[str, Any]:
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", "rprivate", *options],
    }


def test_driver_files_of_the_image(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B13: a stale nvidia-smi, and libraries of another version with a link to nowhere."""
    bundle = make_bundle("debian", ["nvidia-smi", "-L"], env=ASKS)
    libraries = bundle.rootfs / "usr/lib/x86_64-linux-gnu"
    stale = bundle.rootfs / "usr/bin/nvidia-smi"
    stale.write_text("#!/bin/sh\necho stale\n")
    stale.chmod(0o755)
    write_library(libraries / "libcuda.so.1", "libcuda.so.1")
    subprocess.run(["ldconfig", "-r", bundle.rootfs], check=True, capture_output=True)
    (libraries / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.470.1")
    seen = gpushim.run(bundle).check().stdout
    assert seen.count("GPU ") == 2
    assert stale.read_text().endswith("stale\n")
    again = make_bundle("debian", LOOK, root=bundle.rootfs, env=ASKS)
    assert from_the_driver(gpushim.run(again).check().stdout)
    assert os.readlink(libraries / "libnvidia-ml.so.1") == "libnvidia-ml.so.470.1"


def test_nvidia_smi_of_the_image_is_a_link_that_leads_outside(
    gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """It is resolved in the container's root, and nothing of the host is touched."""
    bundle = make_bundle("debian", ["nvidia-smi", "-L"], env=ASKS)
    outside = bundle.path / "outside"
    outside.write_text("host\n")
    (bundle.rootfs / "usr/bin/nvidia-smi").symlink_to("../../../../../.." + str(outside))
    assert gpushim.run(bundle).check().stdout.count("GPU ") == 2
    assert outside.read_text() == "host\n"


@pytest.mark.parametrize(
    ("mounted", "place"),
    [("/usr/local/nvidia", "/opt/gpushim/nvidia"), ("/usr/local", "/opt/gpushim/nvidia")],
)
def test_a_mount_of_the_users_where_the_driver_goes(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle, mounted: str, place: str
) -> None:
    """It stays visible and unchanged, and the driver goes to another place."""
    bundle = make_bundle("debian", env=ASKS)
    theirs = bundle.path / "theirs"
    (theirs / "bin").mkdir(parents=True)
    (theirs / "file").write_text("mine\n")
    (theirs / "bin/probe").write_bytes((bundle.rootfs / "usr/local/bin/probe").read_bytes())
    (theirs / "bin/probe").chmod(0o755)
    program = "/usr/local/bin/probe"
    bundle.config["mounts"].append(bind(theirs, mounted))
    bundle.config["process"]["args"] = [program, *LOOK[1:], "--", "cat", f"{mounted}/file"]
    bundle.write()
    seen = gpushim.run(bundle).check().stdout
    assert from_the_driver(seen, place)
    assert seen.endswith("mine\n")
    assert sorted(os.listdir(theirs)) == ["bin", "file"]
    assert sorted(os.listdir(theirs / "bin")) == ["probe"]


def test_a_mount_of_the_users_over_one_file_of_the_driver(
    gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """Their nvidia-smi is theirs; a tmpfs at /usr/local is the container's own and no obstacle."""
    bundle = make_bundle("debian", env=ASKS)
    theirs = bundle.path / "their-smi"
    theirs.write_text("#!/bin/sh\necho theirs\n")
    theirs.chmod(0o755)
    bundle.config["mounts"].append(bind(theirs, "/usr/bin/nvidia-smi"))
    bundle.config["process"]["args"] = ["nvidia-smi"]
    bundle.write()
    assert gpushim.run(bundle).check().stdout == "theirs\n"


def test_a_tmpfs_where_the_driver_goes(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    bundle = make_bundle("debian", ["nvidia-smi", "-L"], env=ASKS)
    tmpfs = {"destination": "/usr/local", "type": "tmpfs", "source": "tmpfs", "options": []}
    bundle.config["mounts"].append(tmpfs)
    bundle.write()
    assert gpushim.run(bundle).check().stdout.count("GPU ") == 2


def test_a_shared_directory_as_root(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """Two containers, one with GPUs and one without, each see what is theirs in one directory."""
    first = make_bundle("distroless", LOOK, root="copy", env=ASKS)
    subprocess.run(["ldconfig", "-r", first.rootfs], check=True, capture_output=True)
    before = (first.rootfs / "etc/ld.so.cache").read_bytes()
    second = make_bundle("distroless", LOOK, root=first.rootfs, env=["NVIDIA_VISIBLE_DEVICES=2"])
    third = make_bundle("distroless", LOOK, root=first.rootfs)
    for bundle in (first, second):
        seen = gpushim.run(bundle).check().stdout
        assert from_the_driver(seen)
        assert "/etc/ld.so.cache" in mount_points(seen)
    assert "libcuda.so.1 error" in gpushim.run(third).stdout
    assert (first.rootfs / "etc/ld.so.cache").read_bytes() == before
    assert not (first.rootfs / "etc/ld.so.conf.d/00-gpushim.conf").exists()


def test_a_read_only_root(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B09."""
    bundle = make_bundle("debian", LOOK, env=ASKS, readonly=True)
    before = (bundle.rootfs / "etc/ld.so.cache").read_bytes()
    seen = gpushim.run(bundle).check().stdout
    assert from_the_driver(seen)
    assert len(devices(seen)) == 5
    assert (bundle.rootfs / "etc/ld.so.cache").read_bytes() == before


@pytest.mark.parametrize("prepared", [True, False])
def test_a_root_that_nobody_can_write(
    gpushim: Runtime, make_bundle: MakeBundle, prepared: bool
) -> None:
    """It works where the mount points are there, and without them runc says which it lacks."""
    bundle = make_bundle("debian", LOOK, env=ASKS, readonly=True)
    root = bundle.rootfs
    if prepared:
        (root / "usr/local/nvidia").mkdir()
        for name in (
            "usr/bin/nvidia-smi",
            "etc/OpenCL/vendors/nvidia.icd",
            "run/nvidia-persistenced/socket",
            "run/nvidia-fabricmanager/socket",
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
    result = gpushim.run(bundle)
    if prepared:
        assert from_the_driver(result.check().stdout)
    else:
        assert result.status == 1
        assert "read-only file system" in result.stderr


def test_a_user_namespace(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B15: nodes come by bind mounts, and the loader cache keeps the owner of its directory."""
    bundle = make_bundle("debian", LOOK, env=ASKS, userns=True)
    seen = gpushim.run(bundle).check().stdout
    assert from_the_driver(seen)
    assert devices(seen).keys() >= {dgx.node(1), dgx.node(3), "nvidiactl"}
    assert set(devices(seen).values()) == {"ENXIO"}
    assert dgx.node(0) not in devices(seen)
    for name in ("etc/ld.so.cache", "etc/ld.so.conf.d/00-gpushim.conf"):
        assert os.stat(bundle.rootfs / name).st_uid == FIRST_UID


def test_an_image_without_anything(gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B11: scratch, with one static program."""
    bundle = make_bundle("scratch", probe(["open", *NODES]), env=ASKS)
    assert len(devices(gpushim.run(bundle).check().stdout)) == 5
