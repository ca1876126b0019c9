"""The image's own loader finds the driver, before and after an ldconfig in the container."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.host.driverfiles import find
from gpushim.host.model import DriverTree
from gpushim.host.tree import assemble
from gpushim.inject.loadercache import LoaderCacheResult, Target, make_visible
from gpushim.oci.rootfs import RootFs
from gpushim.oci.rootkind import is_host_root, private
from gpushim.places import Places

from tests.fakehost import Description, build
from tests.harness import Bundle, Result, Runtime
from tests.images import GLIBC

pytestmark = pytest.mark.e2e

PLACE = "/usr/local/nvidia"
CAPABILITIES = ["compute", "utility", "graphics", "compat32"]
NAMES = [
    *("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"),
    *("libnvidia-nvvm.so.4", "libEGL_nvidia.so.0", "libGLX_indirect.so.0"),
]
# ldconfig takes these for other copies of a library that it lists by its soname.
LOST_BY_LDCONFIG = {"libGLX_indirect.so.0", "libnvidia-nvvm70.so.4"}
WITH_LDCONFIG = ["debian", "debian13", "ubuntu-like", "fedora-like"]
MakeBundle = Callable[..., Bundle]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("installation")
    (root / "run").mkdir()
    return Places(str(root))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, places: Places) -> DriverTree:
    host = build(tmp_path_factory.mktemp("host"), Description())
    return assemble(places, find(str(host.driver_root), host.description.driver), CAPABILITIES)


def give(bundle: Bundle, tree: DriverTree, places: Places) -> LoaderCacheResult:
    """Do to the bundle what a create does about the loader, and write its config.json."""
    with RootFs(str(bundle.rootfs)) as root:
        may_write = not bundle.config["root"]["readonly"] and private(root, bundle.id)
        target = Target(tree, PLACE, os.uname().machine)
        result = make_visible(root, target, may_write, is_host_root(root), places)
    mounts = [(tree.path, PLACE)]
    mounts += [(mount.host_path, mount.container_path) for mount in result.mounts]
    for source, destination in mounts:
        bundle.config["mounts"].append(
            {
                "destination": destination,
                "type": "bind",
                "source": source,
                "options": ["bind", "ro", "nosuid", "nodev", "rprivate"],
            }
        )
    env = bundle.config["process"]["env"]
    if result.library_path:
        env.append("LD_LIBRARY_PATH=" + ":".join(result.library_path))
    bundle.write()
    return result


def found(result: Result) -> dict[str, str]:
    """What probe printed of each name: the path, or the loader's error."""
    lines = [line.split(" ", 1) for line in result.stdout.splitlines() if line]
    return {name: rest.removeprefix("-> ") for name, rest in lines}


def dlopen(*names: str) -> list[str]:
    return ["/usr/local/bin/probe", "dlopen", *names]


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("root", ["overlay", "copy"])
@pytest.mark.parametrize("image", GLIBC)
def test_the_loader_finds_the_driver(
    make_bundle: MakeBundle,
    runc: Runtime,
    tree: DriverTree,
    places: Places,
    image: str,
    root: str,
    readonly: bool,
) -> None:
    """Overlay and plain directory, writable and read-only root, with and without a cache."""
    bundle = make_bundle(image, dlopen(*NAMES), root=root, readonly=readonly)
    result = give(bundle, tree, places)
    assert not result.warnings
    assert bool(result.mounts) is (readonly or root == "copy")
    seen = found(runc.run(bundle).check())
    assert set(seen) == set(NAMES)
    assert all(path.startswith(f"{PLACE}/lib64/") for path in seen.values()), seen


@pytest.mark.parametrize("image", WITH_LDCONFIG)
def test_ldconfig_in_the_container_keeps_them(
    make_bundle: MakeBundle, runc: Runtime, tree: DriverTree, places: Places, image: str
) -> None:
    bundle = make_bundle(image, ["/bin/sh", "-c", "sleep 60"])
    give(bundle, tree, places)
    runc.create(bundle).check()
    runc.start(bundle.id).check()

    def listed() -> list[str]:
        lines = runc.exec(bundle.id, "ldconfig", "-p").check().stdout.splitlines()
        return [line.strip() for line in lines if "=>" in line]

    before = listed()
    assert f"libcuda.so.1 (libc6,x86-64) => {PLACE}/lib64/libcuda.so.1" in before
    assert f"libcuda.so.1 (libc6) => {PLACE}/lib/libcuda.so.1" in before
    updated = runc.exec(bundle.id, "ldconfig").check()
    assert (updated.stdout, updated.stderr) == ("", "")
    assert [line for line in before if line.split()[0] not in LOST_BY_LDCONFIG] == listed()
    names = [name for name in NAMES if name not in LOST_BY_LDCONFIG]
    seen = found(runc.exec(bundle.id, *dlopen(*names)).check())
    assert all(path.startswith(f"{PLACE}/lib64/") for path in seen.values()), seen


@pytest.mark.parametrize("image", WITH_LDCONFIG)
def test_the_image_s_libraries_stay_as_they_were(
    make_bundle: MakeBundle, runc: Runtime, tree: DriverTree, places: Places, image: str
) -> None:
    plain = runc.run(make_bundle(image, ["ldconfig", "-p"])).check().stdout.splitlines()
    bundle = make_bundle(image, ["ldconfig", "-p"])
    give(bundle, tree, places)
    lines = runc.run(bundle).check().stdout.splitlines()
    own = [line for line in lines if "=>" in line and PLACE not in line]
    assert own == [line for line in plain if "=>" in line]
    assert len(own) > 5


def test_in_a_user_namespace(
    make_bundle: MakeBundle, runc: Runtime, tree: DriverTree, places: Places
) -> None:
    """New files belong to the container's root, which may run ldconfig (B15)."""
    script = "ldconfig && stat -c %u:%g /etc/ld.so.cache /etc/ld.so.conf.d/00-gpushim.conf"
    bundle = make_bundle("debian", ["/bin/sh", "-c", script], userns=True)
    for directory in Path(tree.path).parents:
        if directory.stat().st_mode & 0o005 != 0o005:
            directory.chmod(directory.stat().st_mode | 0o005)
    assert not give(bundle, tree, places).warnings
    assert runc.run(bundle).check().stdout.split() == ["0:0", "0:0"]


@pytest.mark.parametrize("image", ["busybox", "scratch"])
def test_images_without_a_loader_start(
    make_bundle: MakeBundle, runc: Runtime, tree: DriverTree, places: Places, image: str
) -> None:
    """Static programs (B11)."""
    bundle = make_bundle(image, ["/usr/local/bin/probe", "ls", f"{PLACE}/lib64"])
    assert not give(bundle, tree, places).warnings
    assert "libcuda.so.1" in runc.run(bundle).check().stdout


def test_musl_gets_a_search_path(
    make_bundle: MakeBundle, runc: Runtime, tree: DriverTree, places: Places
) -> None:
    """And a warning; the driver's files are there all the same (B12)."""
    bundle = make_bundle("musl", ["/usr/local/bin/probe", "env"])
    result = give(bundle, tree, places)
    assert "musl" in result.warnings[0]
    assert f"LD_LIBRARY_PATH={PLACE}/lib64:{PLACE}/lib" in runc.run(bundle).check().stdout


def test_a_committed_root_under_plain_runc(
    make_bundle: MakeBundle, runc: Runtime, tree: DriverTree, places: Places, tmp_path: Path
) -> None:
    """The merged entries of an image that was committed name files that are not there (B14)."""
    first = make_bundle("debian", dlopen("libcuda.so.1"))
    give(first, tree, places)
    runc.run(first).check()
    committed = tmp_path / "root"
    # A copy of /dev/zero would have no end.
    shutil.copytree(first.rootfs, committed, symlinks=True, ignore=shutil.ignore_patterns("dev"))
    script = "ldconfig && exec /usr/local/bin/probe dlopen libcuda.so.1 libm.so.6"
    seen = found(runc.run(make_bundle(args=["/bin/sh", "-c", script], root=committed)))
    assert "libcuda.so.1" in seen["libcuda.so.1"]
    assert "cannot open shared object file" in seen["libcuda.so.1"]
    assert seen["libm.so.6"].endswith("/libm.so.6")
