"""CUDA images that bring a libcuda newer than the driver's (forward compatibility)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakehost import Description, write_library
from tests.harness import Bundle, Runtime, workspace
from tests.harness.bundle import PROBE
from tests.harness.machine import Machine
from tests.harness.seen import outcomes

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]

COMPAT = "/usr/local/cuda-12.8/compat"
TREE = "/usr/local/nvidia/lib64"
LIBCUDA, JIT, NVML = "libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-ml.so.1"
DLOPEN = [PROBE, "dlopen", LIBCUDA, JIT, NVML]
# What CUDA images up to 12.6 have, and what those of NGC have.
OLD_PATH = "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
COMPAT_PATH = "LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/local/nvidia/lib64"


@pytest.fixture(scope="module")
def professional() -> Iterator[Machine]:
    """One A100 with a driver of an older long-term branch; nobody changes it."""
    path = workspace.make("professional", Path("/var/tmp"))
    yield Machine(path, Description(gpus=1, driver="535.183.01", modify_device_files=0))
    workspace.remove(path)


def cuda_image(root: Path, version: str) -> None:
    """Put the package cuda-compat into a root, as CUDA images have it."""
    place = root / COMPAT[1:]
    for soname in (LIBCUDA, JIT):
        stem = soname.removesuffix(".so.1")
        write_library(place / f"{stem}.so.{version}", soname)
        (place / soname).symlink_to(f"{stem}.so.{version}")
    (place / "libcuda.so").symlink_to(LIBCUDA)
    (root / "etc/alternatives").mkdir(exist_ok=True)
    (root / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
    (root / "etc/alternatives/cuda").symlink_to("/usr/local/cuda-12.8")


def bundle_of(
    make_bundle: MakeBundle,
    args: list[str],
    *env: str,
    version: str = "570.124.06",
    readonly: bool = False,
) -> Bundle:
    bundle = make_bundle("debian", args, env=["NVIDIA_VISIBLE_DEVICES=0", *env], readonly=readonly)
    cuda_image(bundle.rootfs, version)
    return bundle


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("path", ["PATH=/usr/bin:/bin", OLD_PATH, COMPAT_PATH])
def test_the_images_own_comes_first(
    professional: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    path: str,
    readonly: bool,
) -> None:
    """Whatever LD_LIBRARY_PATH names; what the package lacks is the driver's."""
    bundle = bundle_of(make_bundle, DLOPEN, path, readonly=readonly)
    seen = outcomes(runtime_of(professional).run(bundle).check().stdout)
    for name in (LIBCUDA, JIT):
        assert seen[name].rpartition("/")[0] in (COMPAT, "/usr/local/cuda/compat")
    assert seen[NVML].endswith(f"/nvidia/lib64/{NVML}")
    assert "forward compatibility" in json.dumps(professional.log_lines()[-1]["notes"])


def test_it_stays_so(
    professional: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """After an ldconfig in the container, and in exec."""
    runtime = runtime_of(professional)
    bundle = bundle_of(make_bundle, ["/bin/sh", "-c", "ldconfig; sleep 60"], OLD_PATH)
    runtime.create(bundle).check()
    runtime.start(bundle.id).check()
    runtime.exec(bundle.id, "ldconfig").check()
    seen = outcomes(runtime.exec(bundle.id, *DLOPEN).check().stdout)
    assert seen[LIBCUDA] == f"{COMPAT}/{LIBCUDA}"
    assert seen[NVML] == f"/opt/gpushim/nvidia/lib64/{NVML}"


@pytest.mark.parametrize(
    ("description", "version", "reason"),
    [
        # Board, then branch: older, and the same.
        (
            Description(
                gpus=1,
                model="NVIDIA GeForce RTX 4090",
                driver="535.183.01",
                modify_device_files=0,
            ),
            "570.124.06",
            "only data-centre and professional boards do",
        ),
        (Description(gpus=1, modify_device_files=0), "535.54.03", "no newer branch"),
        (Description(gpus=1, modify_device_files=0), "550.163.99", "no newer branch"),
    ],
)
def test_where_it_would_not_work(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    description: Description,
    version: str,
    reason: str,
) -> None:
    """Not even where the image's own ld.so.conf names it, which its cache then has as well."""
    machine = make_machine(description)
    runtime = runtime_of(machine)
    bundle = bundle_of(make_bundle, DLOPEN, OLD_PATH, version=version)
    (bundle.rootfs / "etc/ld.so.conf.d/000_cuda.conf").write_text("/usr/local/cuda/compat\n")
    subprocess.run(["chroot", bundle.rootfs, "ldconfig"], check=True)
    seen = outcomes(runtime.run(bundle).check().stdout)
    assert [seen[name] for name in (LIBCUDA, JIT)] == [f"{TREE}/{LIBCUDA}", f"{TREE}/{JIT}"]
    line = machine.log_lines()[-1]
    assert reason in json.dumps(line["notes"])
    assert "LD_LIBRARY_PATH" not in json.dumps(line.get("warnings", []))


def test_a_search_path_that_names_it_in_vain(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """The variable is the user's, so it stays; the log says what comes of it."""
    machine = make_machine(
        Description(gpus=1, model="NVIDIA GeForce RTX 4090", modify_device_files=0)
    )
    bundle = bundle_of(make_bundle, DLOPEN, COMPAT_PATH)
    seen = outcomes(runtime_of(machine).run(bundle).check().stdout)
    assert seen[LIBCUDA] == f"/usr/local/cuda/compat/{LIBCUDA}"
    (warning,) = [text for text in machine.log_lines()[-1]["warnings"] if "803" in text]
    assert "LD_LIBRARY_PATH" in warning
    assert "GeForce RTX 4090" in warning


def test_the_same_container_on_a_newer_driver(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """A stopped container is started again after the driver was upgraded."""
    description = Description(gpus=1, driver="535.183.01", modify_device_files=0)
    machine = make_machine(description)
    runtime = runtime_of(machine)
    bundle = bundle_of(make_bundle, DLOPEN)
    first = outcomes(runtime.run(bundle).check().stdout)
    assert first[LIBCUDA] == f"{COMPAT}/{LIBCUDA}"
    machine.host.upgrade_driver("580.95.05")
    second = outcomes(runtime.run(bundle).check().stdout)
    assert second[LIBCUDA] == f"{TREE}/{LIBCUDA}"
    drop_in = bundle.rootfs / "etc/ld.so.conf.d/00-gpushim.conf"
    assert COMPAT not in drop_in.read_text()
