"""layout = "files": the driver's files in the image's own library directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, mount_points, outcomes, probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
RuntimeOf = Callable[[Machine], Runtime]

LIBRARIES = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"]
ASKS = ["NVIDIA_VISIBLE_DEVICES=1,3"]
# Its programs are Debian's, whose loader does not know the directory as that of Fedora does.
IN_FEDORA = {"fedora-like": ["LD_LIBRARY_PATH=/usr/lib64"]}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("files"), configuration='[inject]\nlayout = "files"\n')


def directory_of(bundle: Bundle) -> str:
    """Where the image's C library is, without links."""
    for name in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64"):
        if (bundle.rootfs / name / "libc.so.6").exists():
            found = os.path.realpath(bundle.rootfs / name)
            return "/" + os.path.relpath(found, os.path.realpath(bundle.rootfs))
    raise AssertionError(bundle.rootfs)


@pytest.mark.parametrize("root", ["overlay", "copy"])
@pytest.mark.parametrize(
    "image", ["debian", "debian13", "ubuntu-like", "fedora-like", "distroless"]
)
def test_each_distribution(
    machine: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle, image: str, root: str
) -> None:
    """The loader finds them where its own libraries are, and its cache stays as it is."""
    command = probe(["open", *NODES], ["dlopen", *LIBRARIES], ["mounts"])
    bundle = make_bundle(image, command, env=[*ASKS, *IN_FEDORA.get(image, [])], root=root)
    cache = bundle.rootfs / "etc/ld.so.cache"
    before = cache.read_bytes() if cache.exists() else None
    seen = runtime_of(machine).run(bundle).check().stdout
    assert devices(seen) == dict.fromkeys([*CONTROL, machine.node(1), machine.node(3)], "ENXIO")
    where = directory_of(bundle)
    for name in LIBRARIES:
        found = outcomes(seen)[name]
        # The loader takes two names of one file for the same, and a link to a directory, too.
        assert os.path.basename(found).startswith(name.partition(".")[0])
        assert where.endswith(os.path.dirname(found).removeprefix("/usr")), found
    points = mount_points(seen)
    assert f"{where}/libcuda.so.1" in points
    assert f"{where}/vdpau/libvdpau_nvidia.so.1" not in points  # video was not asked for
    assert "/usr/local/nvidia" not in points
    assert (cache.read_bytes() if cache.exists() else None) == before


@pytest.mark.parametrize("image", ["debian", "fedora-like"])
def test_programs(
    machine: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle, image: str
) -> None:
    environment = [*ASKS, *IN_FEDORA.get(image, [])]
    bundle = make_bundle(image, ["nvidia-smi", "-L"], env=environment)
    assert runtime_of(machine).run(bundle).check().stdout.count("GPU ") == 2
    listed = make_bundle(image, probe(["mounts"]), env=ASKS)
    points = mount_points(runtime_of(machine).run(listed).check().stdout)
    assert {"/usr/bin/nvidia-smi", "/usr/bin/nvidia-debugdump"} <= points


@pytest.mark.parametrize("image", ["busybox", "scratch", "musl"])
def test_images_without_glibc(
    machine: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle, image: str
) -> None:
    bundle = make_bundle(image, probe(["open", *NODES], ["mounts"]), env=ASKS)
    seen = runtime_of(machine).run(bundle).check().stdout
    assert len(devices(seen)) == 5
    assert any(point.endswith("/libcuda.so.1") for point in mount_points(seen))


def test_an_older_copy_in_the_image(
    machine: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """The image's cache leads to it, and to the driver's file in its place."""
    old = "/opt/old/libcuda.so.1"
    driver = Path(machine.host.library_directory, "libcuda.so.1").resolve()
    image = make_bundle("debian", ["/bin/sh", "-c", "ldconfig"])
    (image.rootfs / "opt/old").mkdir(parents=True)
    (image.rootfs / old.lstrip("/")).write_bytes(driver.read_bytes())
    (image.rootfs / "etc/ld.so.conf.d/old.conf").write_text("/opt/old\n")
    with Runtime("runc") as plain:
        plain.run(image).check()
    command = probe(["dlopen", "libcuda.so.1"], ["mounts"])
    bundle = make_bundle("debian", command, env=ASKS, root=image.rootfs)
    seen = runtime_of(machine).run(bundle).check().stdout
    assert outcomes(seen)["libcuda.so.1"] == old
    assert old in mount_points(seen)


def test_a_second_start_is_like_the_first(
    machine: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """The mount points that the first one left are no files of the image."""
    bundle = make_bundle("debian", probe(["dlopen", "libcuda.so.1"]), env=ASKS)
    runtime = runtime_of(machine)
    first = runtime.run(bundle).check().stdout
    mounts = bundle.read()["mounts"]
    assert runtime.run(bundle).check().stdout == first
    assert bundle.read()["mounts"] == mounts


def test_exec_and_set_user_id_programs_find_them(
    machine: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """Nothing depends on a variable."""
    bundle = make_bundle("debian", ["sleep", "60"], env=ASKS)
    runtime = runtime_of(machine)
    runtime.create(bundle).check()
    runtime.start(bundle.id).check()
    seen = runtime.exec(bundle.id, *probe(["dlopen", "libcuda.so.1"], ["env"])).check().stdout
    assert outcomes(seen)["libcuda.so.1"].endswith("-linux-gnu/libcuda.so.1")
    assert "LD_LIBRARY_PATH" not in seen
