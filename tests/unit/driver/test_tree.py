"""Driver trees: what is in them, and that nothing alters one that may be in use."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from gpushim.errors import GpushimError
from gpushim.host.driverfiles import find
from gpushim.host.driverlist import DriverFiles
from gpushim.host.ldsocache import parse
from gpushim.host.model import DriverTree
from gpushim.host.tree import assemble
from gpushim.host.treecollect import (
    TEMPORARY,
    collect,
    collect_loader_caches,
    mountinfos,
    remove_leftovers,
)
from gpushim.places import Places

from tests.fakehost import FakeHost
from tests.unit.driver import ldconfig
from tests.unit.driver.conftest import VERSION

ALL = ["compute", "utility", "video", "graphics", "display", "ngx", "compat32"]
ONLY_BY_NAME = {"libGLX_indirect.so.0", "libnvidia-nvvm70.so.4"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "installation"))


@pytest.fixture(scope="session")
def files(host: FakeHost) -> DriverFiles:
    return find(str(host.driver_root), VERSION)


@pytest.fixture
def own(host: FakeHost, tmp_path: Path) -> Path:
    """A driver root of the test's own."""
    shutil.copytree(
        host.root / "usr/lib/x86_64-linux-gnu", tmp_path / "root/usr/lib64", symlinks=True
    )
    return tmp_path / "root"


def listing(tree: str) -> list[str]:
    return sorted(str(path.relative_to(tree)) for path in Path(tree).rglob("*"))


def test_links_and_places(places: Places, files: DriverFiles) -> None:
    tree = Path(assemble(places, files, ALL).path)
    assert sorted(os.listdir(tree)) == ["bin", "firmware", "lib", "lib64", "share"]
    for link, target in {
        "lib64/libcuda.so": "libcuda.so.1",
        "lib64/libcuda.so.1": f"libcuda.so.{VERSION}",
        "lib/libcuda.so.1": f"libcuda.so.{VERSION}",
        "lib64/libGLX_indirect.so.0": "libGLX_nvidia.so.0",
        "lib64/gbm/nvidia-drm_gbm.so": "../libnvidia-allocator.so.1",
        "lib64/vdpau/libvdpau_nvidia.so.1": f"libvdpau_nvidia.so.{VERSION}",
        "lib64/libnvidia-egl-gbm.so.1": "libnvidia-egl-gbm.so.1.1.1",
    }.items():
        assert os.readlink(tree / link) == target
    for path in ("bin/nvidia-smi", "share/vulkan/icd.d/nvidia_icd.json", "lib64/libcuda.so"):
        assert (tree / path).is_file()
    assert (tree / f"firmware/nvidia/{VERSION}/gsp_ga10x.bin").is_file()
    dangling = [path for path in tree.rglob("*") if not path.exists()]
    assert not dangling


def test_everybody_may_read_it(places: Places, own: Path) -> None:
    """A library of mode 0600, or one that others may write to, is copied and not linked."""
    (own / f"usr/lib64/libcuda.so.{VERSION}").chmod(0o600)
    (own / f"usr/lib64/libnvidia-ml.so.{VERSION}").chmod(0o666)
    previous = os.umask(0o077)
    try:
        tree = Path(assemble(places, find(str(own), VERSION), ["compute", "utility"]).path)
    finally:
        os.umask(previous)
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode & 0o444 == 0o444, path
            assert not mode & 0o022, path
            assert path.is_file() or mode == 0o755, path
    assert stat.S_IMODE((own / f"usr/lib64/libcuda.so.{VERSION}").stat().st_mode) == 0o600


@pytest.mark.parametrize("may_link", [True, False])
def test_links_only_where_labels_allow(places: Places, own: Path, may_link: bool) -> None:
    tree = assemble(places, find(str(own), VERSION), ["utility"], may_link)
    name = f"libnvidia-ml.so.{VERSION}"
    source, made = own / "usr/lib64" / name, Path(tree.path, "lib64", name)
    assert made.read_bytes() == source.read_bytes()
    if not may_link:
        assert not os.path.samefile(source, made)


def test_only_what_the_capabilities_call_for(places: Places, files: DriverFiles) -> None:
    tree = assemble(places, files, ["utility"])
    assert "lib64/libnvidia-ml.so.1" in listing(tree.path)
    assert not [path for path in listing(tree.path) if "cuda" in path or path.startswith("share/")]
    assert tree.libraries32 == []
    assert assemble(places, files, []).libraries == []


@pytest.mark.parametrize("capabilities", [["utility"], ["compute", "utility"], ALL])
def test_names_are_those_that_ldconfig_lists(
    places: Places, files: DriverFiles, tmp_path: Path, capabilities: list[str]
) -> None:
    tree = assemble(places, files, capabilities)
    root = tmp_path / "container"
    shutil.copytree(tree.path, root / "tree", symlinks=True)
    before = listing(str(root / "tree"))
    cache = parse(ldconfig.run(root, ["/tree/lib64", "/tree/lib"]))
    assert listing(str(root / "tree")) == before, "ldconfig had links to make"
    for flags, names in ((0x303, tree.libraries), (3, tree.libraries32)):
        written = [entry[1].decode() for entry in cache.entries if entry[0] == flags]
        assert [name for name in names if name not in ONLY_BY_NAME] == written


def test_a_tree_is_made_once(places: Places, own: Path) -> None:
    files = find(str(own), VERSION)
    tree = assemble(places, files, ["compute"])
    before = os.stat(tree.path)
    again = assemble(places, find(str(own), VERSION), ["compute"])
    assert (again.path, os.stat(tree.path).st_mtime_ns) == (tree.path, before.st_mtime_ns)
    assert os.path.basename(tree.path).startswith("compute-")
    assert os.listdir(os.path.dirname(tree.path)) == [os.path.basename(tree.path)]


def test_a_changed_file_makes_another_tree(places: Places, own: Path) -> None:
    """A tree that a container may show is never altered; the driver's packages replace files."""
    tree = assemble(places, find(str(own), VERSION), ["compute"])
    before = listing(tree.path)
    library = own / f"usr/lib64/libcuda.so.{VERSION}"
    content = library.read_bytes()
    library.unlink()
    library.write_bytes(content + b"patched")
    other = assemble(places, find(str(own), VERSION), ["compute"])
    assert other.path != tree.path
    assert listing(tree.path) == before
    assert Path(tree.path, "lib64/libcuda.so.1").read_bytes() == content
    assert Path(other.path, "lib64/libcuda.so.1").read_bytes() == content + b"patched"


def test_a_library_that_vanished_is_named(places: Places, own: Path) -> None:
    files = find(str(own), VERSION)
    path = own / f"usr/lib64/libcuda.so.{VERSION}"
    path.unlink()
    with pytest.raises(GpushimError, match=rf"{path}.*vanished"):
        assemble(places, files, ["compute"])
    assert not os.path.exists(places.driver_trees)


def test_a_place_that_takes_no_writes(places: Places, files: DriverFiles, tmp_path: Path) -> None:
    (tmp_path / "installation").write_bytes(b"in the way")
    with pytest.raises(GpushimError, match="can't be made"):
        assemble(places, files, ["compute"])


def _assemble(arguments: tuple[str, str]) -> str:
    root, driver_root = arguments
    return assemble(Places(root), find(driver_root, VERSION), ALL).path


def test_processes_at_once_end_with_one_tree(places: Places, own: Path) -> None:
    with ProcessPoolExecutor(4) as pool:
        paths = set(pool.map(_assemble, [(places.root, str(own))] * 8))
    assert len(paths) == 1
    assert os.listdir(os.path.dirname(paths.pop())).__len__() == 1


def old(path: str) -> float:
    return os.stat(path).st_ctime + 3601


def test_leftovers_of_a_killed_assembly_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / (TEMPORARY + "x")
    (left / "lib64").mkdir(parents=True)
    (tmp_path / "compute-12345678").mkdir()
    remove_leftovers(str(tmp_path))
    assert left.exists(), "one that was just made may have no lock yet"
    monkeypatch.setattr(time, "time", lambda: old(str(left)))
    lock = os.open(left, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    remove_leftovers(str(tmp_path))
    assert left.exists(), "its assembly is going on"
    os.close(lock)
    remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == ["compute-12345678"]


def test_unused_trees_are_collected(places: Places, files: DriverFiles) -> None:
    trees = [assemble(places, files, [name]).path for name in ("compute", "utility", "video")]
    latest = max(map(old, trees))
    assert collect(places, set(), now=latest - 3600) == []
    assert collect(places, {trees[0]}, now=latest) == sorted(trees[1:])
    assert [os.path.isdir(path) for path in trees] == [True, False, False]
    assert collect(places, set(), now=latest) == [trees[0]]
    assert os.listdir(places.driver_trees) == []


@needs_root
@pytest.mark.parametrize("what", ["", "/bin/nvidia-smi"])
def test_a_mounted_tree_stays(
    places: Places, files: DriverFiles, tmp_path: Path, what: str
) -> None:
    """In whatever mount namespace, and whatever of it is mounted: a mount follows the directory."""
    tree: DriverTree = assemble(places, files, ["utility"])
    target = tmp_path / "target"
    if what:
        target.write_bytes(b"")
    else:
        target.mkdir()
    command = f"mount -n --bind {tree.path}{what} {target} && echo && exec sleep 60"
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", command], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert collect(places, set(), now=old(tree.path)) == []
    finally:
        holder.kill()
        holder.communicate()
    assert collect(places, set(), now=old(tree.path)) == [tree.path]


def test_roots_of_mounts_as_the_kernel_writes_them(
    places: Places, files: DriverFiles, tmp_path: Path
) -> None:
    tree = assemble(places, files, ["utility"])
    process = tmp_path / "proc/1"
    (process / "ns").mkdir(parents=True)
    (process / "ns/mnt").write_bytes(b"")
    root = f"/var/lib{tree.path.removeprefix(places.lib)}"
    for line, kept in (
        (f"1 1 0:5 {root}//deleted /x rw - ext4 /dev/x rw\n", True),
        (f"1 1 0:5 {root}/lib64 /x rw - ext4 /dev/x rw\n", True),
        (f"1 1 0:5 /x {root} rw - ext4 /dev/x rw\n", False),
        (f"1 1 0:5 {root}0 /x rw - ext4 /dev/x rw\n", False),
    ):
        tree = assemble(places, files, ["utility"])
        (process / "mountinfo").write_text(line)
        removed = collect(places, set(), str(tmp_path / "proc"), old(tree.path))
        assert removed == ([] if kept else [tree.path]), line


def test_nothing_is_removed_where_mounts_can_t_be_read(
    places: Places, files: DriverFiles, tmp_path: Path
) -> None:
    tree = assemble(places, files, ["utility"])
    assert collect(places, set(), str(tmp_path / "absent"), old(tree.path)) == []
    proc = Path(tempfile.mkdtemp())
    try:
        for name in ("1", "2"):
            (proc / name).mkdir()
            (proc / name / "mountinfo").write_bytes(b"\n")
        for path in (proc, proc / "1", proc / "2"):
            path.chmod(0o755)
        (proc / "1/mountinfo").chmod(0)
        user = os.geteuid()
        os.seteuid(65534 if user == 0 else user)
        try:
            assert mountinfos(str(proc)) is None
        finally:
            os.seteuid(user)
        (proc / "1/mountinfo").chmod(0o644)
        assert mountinfos(str(proc)) == [b"\n", b"\n"]
    finally:
        shutil.rmtree(proc)


def test_unused_loader_caches_are_collected(places: Places, tmp_path: Path) -> None:
    os.makedirs(places.loader_caches)
    for name in ("used", "unused", "young"):
        Path(places.loader_caches, name).write_bytes(b"")
    for name in ("used", "unused"):
        os.utime(Path(places.loader_caches, name), (0, 0))
    process = tmp_path / "proc/1"
    (process / "ns").mkdir(parents=True)
    (process / "ns/mnt").write_bytes(b"")
    (process / "mountinfo").write_text("1 1 0:5 /run/loader-cache/used /etc/x rw - tmpfs t rw\n")
    removed = collect_loader_caches(places, str(tmp_path / "proc"))
    assert removed == [places.loader_caches + "/unused"]
