"""How the driver's libraries become visible, in every kind of root file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.host.ldsocache import BITS_32, X86_64, LoaderCache, parse, write
from gpushim.host.model import DriverTree
from gpushim.inject.compat import Compat
from gpushim.inject.loadercache import (
    MOUNT_OPTIONS,
    LoaderCacheResult,
    Target,
    includes_drop_ins,
    make_visible,
)
from gpushim.oci.rootfs import RootFs
from gpushim.places import Places

PLACE = "/usr/local/nvidia"
LIBZ = (X86_64, b"libz.so.1", b"/lib/libz.so.1", 0, 0)
IMAGE = write(LoaderCache([LIBZ], b"ldconfig of the image"))
INCLUDE = b"include /etc/ld.so.conf.d/*.conf\n"
Apply = Callable[..., LoaderCacheResult]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small Debian-like root."""
    path = tmp_path / "root"
    (path / "etc/ld.so.conf.d").mkdir(parents=True)
    (path / "etc/ld.so.conf").write_bytes(INCLUDE)
    (path / "etc/ld.so.cache").write_bytes(IMAGE)
    (path / "usr/lib64").mkdir(parents=True)
    (path / "usr/lib").mkdir(parents=True)
    (path / "lib64").symlink_to("usr/lib64")
    (path / "lib").symlink_to("usr/lib")
    (path / "usr/lib64/ld-linux-x86-64.so.2").write_bytes(b"")
    return path


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(str(tmp_path / "installation"))
    os.makedirs(os.path.dirname(found.run))
    return found


@pytest.fixture
def apply(root: Path, places: Places) -> Apply:
    def call(
        may_write: bool = True,
        is_host_root: bool = False,
        libraries32: tuple[str, ...] = (),
        machine: str = "x86_64",
        place: str = PLACE,
        compat: Compat | None = None,
    ) -> LoaderCacheResult:
        tree = DriverTree("/tree", ["libnvidia-ml.so.1", "libcuda.so.1"], list(libraries32))
        with RootFs(str(root)) as opened:
            target = Target(tree, place, machine, compat)
            return make_visible(opened, target, may_write, is_host_root, places)

    return call


def entries(data: bytes) -> dict[tuple[int, str], str]:
    return {
        (flags, name.decode()): path.decode() for flags, name, path, _, _ in parse(data).entries
    }


def written(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def is_silent(result: LoaderCacheResult) -> bool:
    return not (result.library_path or result.mounts or result.warnings or result.notes)


def test_a_private_root_gets_a_merged_cache(root: Path, apply: Apply) -> None:
    (root / "etc/ld.so.cache").chmod(0o640)
    assert is_silent(apply())
    assert entries((root / "etc/ld.so.cache").read_bytes()) == {
        (X86_64, "libz.so.1"): "/lib/libz.so.1",
        (X86_64, "libcuda.so.1"): f"{PLACE}/lib64/libcuda.so.1",
        (X86_64, "libnvidia-ml.so.1"): f"{PLACE}/lib64/libnvidia-ml.so.1",
    }
    assert stat.S_IMODE((root / "etc/ld.so.cache").stat().st_mode) == 0o640
    drop_in = root / "etc/ld.so.conf.d/00-gpushim.conf"
    assert drop_in.read_text() == f"{PLACE}/lib64\n"
    assert (root / "etc/ld.so.conf").read_bytes() == INCLUDE


def test_32_bit_libraries_have_their_own_directory(root: Path, apply: Apply) -> None:
    apply(libraries32=("libcuda.so.1",))
    found = entries((root / "etc/ld.so.cache").read_bytes())
    assert found[BITS_32, "libcuda.so.1"] == f"{PLACE}/lib/libcuda.so.1"
    drop_in = root / "etc/ld.so.conf.d/00-gpushim.conf"
    assert drop_in.read_text() == f"{PLACE}/lib64\n{PLACE}/lib\n"
    apply()
    assert (BITS_32, "libcuda.so.1") not in entries((root / "etc/ld.so.cache").read_bytes())
    assert drop_in.read_text() == f"{PLACE}/lib64\n"


def test_a_second_time_nothing_is_written(root: Path, apply: Apply) -> None:
    """A stopped container is started again (B05)."""
    apply()
    inodes = {path: path.stat().st_ino for path in root.rglob("*")}
    assert is_silent(apply())
    assert {path: path.stat().st_ino for path in root.rglob("*")} == inodes


@pytest.mark.parametrize(("readonly_parts", "cache"), [(["etc"], IMAGE), (["etc"], None)])
def test_a_root_that_is_not_ours_alone_gets_a_mount(
    root: Path, apply: Apply, places: Places, readonly_parts: list[str], cache: bytes | None
) -> None:
    """root.readonly, or a plain directory that others may share (B09)."""
    if cache is None:
        (root / "etc/ld.so.cache").unlink()
    before = written(root)
    result = apply(may_write=False)
    assert written(root) == before
    (mount,) = result.mounts
    assert (mount.container_path, mount.options) == ("/etc/ld.so.cache", list(MOUNT_OPTIONS))
    source = Path(mount.host_path)
    assert source.parent == Path(places.loader_caches)
    assert stat.S_IMODE(source.stat().st_mode) == 0o644
    assert (X86_64, "libcuda.so.1") in entries(source.read_bytes())
    assert not result.warnings
    again = apply(may_write=False).mounts[0].host_path
    assert (again, os.listdir(places.loader_caches)) == (mount.host_path, [source.name])


def test_old_merged_caches_make_room(apply: Apply, places: Places) -> None:
    directory = Path(places.loader_caches)
    directory.mkdir(parents=True)
    for number in range(80):
        (directory / str(number)).touch()
        if number >= 3:
            os.utime(directory / str(number), (0, 0))
    apply(may_write=False)
    kept = {path.name for path in directory.iterdir()}
    assert len(kept) == 4
    assert {"0", "1", "2"} < kept


def test_a_cache_that_is_merged_already_needs_no_mount(apply: Apply) -> None:
    apply()
    assert is_silent(apply(may_write=False))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("has_cache", [True, False])
def test_a_file_system_without_writes(root: Path, apply: Apply, has_cache: bool) -> None:
    if not has_cache:
        (root / "etc/ld.so.cache").unlink()
    os.system(f"mount -n --bind {root} {root} && mount -n -o remount,ro,bind {root}")
    try:
        result = apply()
    finally:
        os.system(f"umount -n {root}")
    assert bool(result.mounts) is has_cache
    assert bool(result.warnings) is not has_cache
    assert any("read-only" in note for note in result.notes)


def test_nowhere_to_write(apply: Apply, places: Places) -> None:
    os.rmdir(os.path.dirname(places.run))
    Path(os.path.dirname(places.run)).write_bytes(b"")
    result = apply(may_write=False)
    assert result.library_path == [f"{PLACE}/lib64"]
    assert result.warnings


def test_the_host_s_own_root_is_never_touched(root: Path, apply: Apply, places: Places) -> None:
    before = written(root)
    result = apply(is_host_root=True)
    assert (written(root), os.path.exists(places.run)) == (before, False)
    assert not result.mounts
    assert result.library_path == [f"{PLACE}/lib64"]
    assert "host's own root" in result.warnings[0]


def fifo(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    os.mkfifo(root / "etc/ld.so.cache")


def garbage(root: Path) -> None:
    (root / "etc/ld.so.cache").write_bytes(b"garbage")


def too_large(root: Path) -> None:
    with open(root / "etc/ld.so.cache", "r+b") as file:
        file.truncate(64 << 20)


def linked_cache(root: Path) -> None:
    (root / "etc/ld.so.cache").rename(root / "etc/real")
    (root / "etc/ld.so.cache").symlink_to("real")


def linked_etc(root: Path) -> None:
    (root / "etc").rename(root / "real")
    (root / "etc").symlink_to("real")


def directory(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    (root / "etc/ld.so.cache").mkdir()


def etc_is_a_file(root: Path) -> None:
    (root / "etc").rename(root / "real")
    (root / "etc").write_bytes(b"")


@pytest.mark.parametrize(
    "spoil", [fifo, garbage, too_large, linked_cache, linked_etc, directory, etc_is_a_file]
)
@pytest.mark.parametrize("may_write", [True, False])
def test_a_cache_that_can_t_be_used(
    root: Path, apply: Apply, spoil: Callable[[Path], None], may_write: bool
) -> None:
    spoil(root)
    before = sorted(root.rglob("*"))
    result = apply(may_write=may_write)
    assert sorted(root.rglob("*")) == before
    assert not result.mounts
    assert result.library_path == [f"{PLACE}/lib64"]
    (warning,) = result.warnings
    assert warning.startswith("The driver's libraries are found through LD_LIBRARY_PATH only")


def test_another_machine_s_loader(apply: Apply) -> None:
    assert "s390x" in apply(machine="s390x").warnings[0]


def to_musl(root: Path) -> None:
    (root / "usr/lib64/ld-linux-x86-64.so.2").unlink()
    (root / "usr/lib/ld-musl-x86_64.so.1").write_bytes(b"")


def test_musl(root: Path, apply: Apply) -> None:
    """musl knows no cache, and the driver's programs need glibc (B12)."""
    to_musl(root)
    before = written(root)
    result = apply()
    assert written(root) == before
    assert result.library_path == [f"{PLACE}/lib64"]
    assert "compatibility layer" in result.warnings[0]


def test_musl_with_a_stand_in_for_glibc(root: Path, apply: Apply) -> None:
    to_musl(root)
    (root / "usr/lib64/ld-linux-x86-64.so.2").write_bytes(b"gcompat")
    (root / "etc/ld.so.cache").unlink()
    result = apply()
    assert result.library_path
    assert "compatibility layer" not in result.warnings[0]


def test_glibc_with_musl_installed_too(root: Path, apply: Apply) -> None:
    (root / "usr/lib/ld-musl-x86_64.so.1").write_bytes(b"")
    assert is_silent(apply())


def test_an_image_without_a_cache(root: Path, apply: Apply) -> None:
    """Distroless: loader and libc, but neither cache nor ldconfig (B11)."""
    for path in ("etc/ld.so.cache", "etc/ld.so.conf"):
        (root / path).unlink()
    (root / "etc/ld.so.conf.d").rmdir()
    assert is_silent(apply())
    assert os.listdir(root / "etc") == ["ld.so.cache"]
    assert len(parse((root / "etc/ld.so.cache").read_bytes()).entries) == 2


def test_a_root_without_etc(root: Path, apply: Apply) -> None:
    """From scratch (B11): it works, leaves the least, and the second time is like the first."""
    linked_etc(root)
    (root / "etc").unlink()
    for _ in range(2):
        assert is_silent(apply())
        assert os.listdir(root / "etc") == ["ld.so.cache"]


@pytest.mark.parametrize("ldconfig", ["sbin/ldconfig", "usr/bin/ldconfig", None])
def test_a_missing_ld_so_conf_is_made_where_ldconfig_may_run(
    root: Path, apply: Apply, ldconfig: str | None
) -> None:
    (root / "etc/ld.so.conf").unlink()
    if ldconfig:
        (root / "etc/ld.so.conf.d").rmdir()
        (root / ldconfig).parent.mkdir(parents=True, exist_ok=True)
        (root / ldconfig).write_bytes(b"")
    assert is_silent(apply())
    assert (root / "etc/ld.so.conf").read_bytes() == INCLUDE
    assert (root / "etc/ld.so.conf.d/00-gpushim.conf").read_text() == f"{PLACE}/lib64\n"


def test_an_ld_so_conf_without_include_stays_as_it_is(root: Path, apply: Apply) -> None:
    (root / "etc/ld.so.conf").write_text("/opt/lib\n")
    result = apply()
    assert (root / "etc/ld.so.conf").read_text() == "/opt/lib\n"
    assert os.listdir(root / "etc/ld.so.conf.d") == []
    assert (X86_64, "libcuda.so.1") in entries((root / "etc/ld.so.cache").read_bytes())
    assert "does not include" in result.notes[0]
    assert not result.warnings


@pytest.mark.parametrize("path", ["etc/ld.so.conf", "etc/ld.so.conf.d"])
def test_a_linked_configuration_is_left_alone(root: Path, apply: Apply, path: str) -> None:
    (root / path).rename(root / "real")
    (root / path).symlink_to("/real")
    before = sorted(root.rglob("*"))
    result = apply()
    assert sorted(root.rglob("*")) == before
    assert (X86_64, "libcuda.so.1") in entries((root / "etc/ld.so.cache").read_bytes())
    assert "symbolic link" in result.notes[0]


def test_a_committed_image_is_merged_anew(root: Path, apply: Apply) -> None:
    """With another driver's names, and at another place in the container (B14)."""
    old = [(X86_64, b"libold.so.1", f"{PLACE}/lib64/libold.so.1".encode(), 0, 0)]
    old += [(BITS_32, b"libold.so.1", f"{PLACE}/lib/libold.so.1".encode(), 0, 0), LIBZ]
    (root / "etc/ld.so.cache").write_bytes(write(LoaderCache(old)))
    apply()
    assert not [key for key in entries((root / "etc/ld.so.cache").read_bytes()) if "old" in key[1]]
    apply(place="/opt/gpushim/nvidia")
    data = (root / "etc/ld.so.cache").read_bytes()
    found = entries(data)
    assert found[X86_64, "libcuda.so.1"] == "/opt/gpushim/nvidia/lib64/libcuda.so.1"
    assert PLACE.encode() not in data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (INCLUDE, True),
        (b"include ld.so.conf.d/*.conf", True),
        (b"/opt/lib\n\tinclude   /x/*.conf ld.so.conf.d/*.conf # all\n", True),
        (b"# include ld.so.conf.d/*.conf\n", False),
        (b"/opt/lib # include ld.so.conf.d/*.conf\n", False),
        (b"include /etc/ld.so.conf.d/x.conf\n", False),
        (b"", False),
        (b"\xff\xfe\0", False),
    ],
)
def test_includes(text: bytes, expected: bool) -> None:
    assert includes_drop_ins(text) is expected


COMPAT = "/usr/local/cuda-12.8/compat"


def compat(*libraries: str) -> Compat:
    found = Compat(COMPAT, "570.124.06")
    found.libraries = list(libraries)
    found.said = "Said of it."
    return found


def test_a_newer_libcuda_of_the_image_comes_first(root: Path, apply: Apply) -> None:
    result = apply(compat=compat("libnvidia-nvvm.so.4", "libcuda.so.1"))
    cache = parse((root / "etc/ld.so.cache").read_bytes())
    found = [(name.decode(), path.decode()) for _, name, path, _, _ in cache.entries]
    assert found == [
        ("libz.so.1", "/lib/libz.so.1"),
        ("libnvidia-nvvm.so.4", f"{COMPAT}/libnvidia-nvvm.so.4"),
        ("libnvidia-ml.so.1", f"{PLACE}/lib64/libnvidia-ml.so.1"),
        ("libcuda.so.1", f"{COMPAT}/libcuda.so.1"),
        ("libcuda.so.1", f"{PLACE}/lib64/libcuda.so.1"),
    ]
    drop_in = root / "etc/ld.so.conf.d/00-gpushim.conf"
    assert drop_in.read_text() == f"{COMPAT}\n{PLACE}/lib64\n"
    assert "Said of it." in result.notes
    assert not result.warnings


def test_it_is_as_ldconfig_would_have_it(root: Path, apply: Apply) -> None:
    """What an ldconfig in the container makes of the drop-in is what is there already."""
    from tests.unit.driver import ldconfig

    ldconfig.library(root, f"{COMPAT[1:]}/libcuda.so.570.124.06", "libcuda.so.1")
    ldconfig.library(root, f"{PLACE[1:]}/lib64/libcuda.so.550.163.01", "libcuda.so.1")
    ldconfig.library(root, f"{PLACE[1:]}/lib64/libnvidia-ml.so.550.163.01", "libnvidia-ml.so.1")
    (root / "etc/ld.so.cache").write_bytes(ldconfig.run(root, []))
    (root / "etc/ld.so.conf").write_bytes(INCLUDE)
    apply(compat=compat("libcuda.so.1"))
    ours = ldconfig.printed(root / "etc/ld.so.cache")
    directories = (root / "etc/ld.so.conf.d/00-gpushim.conf").read_text().split()
    ldconfig.run(root, directories)
    assert ours == ldconfig.printed(root / "etc/ld.so.cache")


def test_one_that_can_not_be_used_is_taken_out(root: Path, apply: Apply) -> None:
    """The image's own cache names it, or an earlier create on another board did."""
    theirs = [
        (X86_64, b"libnvidia-nvvm.so.4", COMPAT.encode() + b"/libnvidia-nvvm.so.4", 0, 0),
        (X86_64, b"libcuda.so.1", COMPAT.encode() + b"/libcuda.so.1", 0, 0),
    ]
    (root / "etc/ld.so.cache").write_bytes(write(LoaderCache([LIBZ, *theirs])))
    unused = compat()
    unused.warning = "A warning."
    result = apply(compat=unused)
    assert set(entries((root / "etc/ld.so.cache").read_bytes()).values()) == {
        "/lib/libz.so.1",
        f"{PLACE}/lib64/libcuda.so.1",
        f"{PLACE}/lib64/libnvidia-ml.so.1",
    }
    assert (root / "etc/ld.so.conf.d/00-gpushim.conf").read_text() == f"{PLACE}/lib64\n"
    assert (result.warnings, result.notes) == (["A warning."], ["Said of it."])


def test_a_search_path_has_it_first(apply: Apply) -> None:
    result = apply(is_host_root=True, compat=compat("libcuda.so.1"))
    assert result.library_path == [COMPAT, f"{PLACE}/lib64"]


def test_kept_caches_tell_it_apart(apply: Apply) -> None:
    plain = apply(may_write=False).mounts[0].host_path
    first = apply(may_write=False, compat=compat("libcuda.so.1")).mounts[0].host_path
    assert len({plain, first, apply(may_write=False, compat=compat()).mounts[0].host_path}) == 3
