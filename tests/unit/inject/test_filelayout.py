"""Where each of the driver's files goes in images of every distribution."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.host.ldsocache import BITS_32, X86_64, LoaderCache, write
from gpushim.host.model import DriverTree
from gpushim.inject.container import Container
from gpushim.inject.filelayout import file_layout, listing
from gpushim.inject.gpus import FILE_OPTIONS
from gpushim.inject.loadercache import LoaderCacheResult
from gpushim.oci.edits import Edits, Mount
from gpushim.oci.rootfs import RootFs

FILES = {
    "lib64": ["libcuda.so.550.1", "vdpau/libvdpau_nvidia.so.550.1", "gbm/nvidia-drm_gbm.so"],
    "lib": ["libcuda.so.550.1"],
    "bin": ["nvidia-smi", "nvidia-debugdump"],
}
LINKS = {"lib64": ["libcuda.so.1", "libcuda.so"], "lib": ["libcuda.so.1"]}
LIBRARIES = sorted(FILES["lib64"] + LINKS["lib64"])
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
Layout = Callable[..., LoaderCacheResult]


@pytest.fixture
def tree(tmp_path: Path) -> DriverTree:
    for directory, names in FILES.items():
        for name in names:
            path = tmp_path / "tree" / directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        for name in LINKS.get(directory, []):
            (tmp_path / "tree" / directory / name).symlink_to("libcuda.so.550.1")
    return DriverTree(str(tmp_path / "tree"), ["libcuda.so.1"], ["libcuda.so.1"])


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.mkdir()
    return path


@pytest.fixture
def lay_out(tree: DriverTree, image: Path) -> Layout:
    def call(
        mounts: dict[str, str] | None = None,
        edits: Edits | None = None,
        compat: str = "",
        machine: str = "x86_64",
    ) -> LoaderCacheResult:
        container = Container(str(image), False, [], mounts or {}, False, False, [])
        with RootFs(str(image)) as root:
            container.look_into(root)
            try:
                return file_layout(root, container, tree, machine, edits or Edits(), compat)
            finally:
                container.look_away()

    return call


def put(image: Path, *paths: str) -> None:
    for path in paths:
        place = image / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")


def debian(image: Path) -> None:
    put(image, f"{MULTIARCH}/libc.so.6", "/usr/lib64/ld-linux-x86-64.so.2")
    (image / "lib").symlink_to("usr/lib")
    (image / "lib64").symlink_to("usr/lib64")


def old_debian(image: Path) -> None:
    """As before the merge of / and /usr."""
    put(image, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2")
    put(image, f"{MULTIARCH}/libz.so.1")


def distroless(image: Path) -> None:
    put(image, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2")


def fedora(image: Path) -> None:
    put(image, "/usr/lib64/libc.so.6", "/usr/lib64/ld-linux-x86-64.so.2", "/usr/lib/os-release")
    (image / "lib").symlink_to("usr/lib")
    (image / "lib64").symlink_to("usr/lib64")


def fedora_with_32_bits(image: Path) -> None:
    fedora(image)
    put(image, "/usr/lib/libc.so.6")


def arch(image: Path) -> None:
    put(image, "/usr/lib/libc.so.6", "/usr/lib/ld-linux-x86-64.so.2")
    for name in ("lib", "lib64"):
        (image / name).symlink_to("usr/lib")
    (image / "usr/lib64").symlink_to("lib")


def arch_with_multilib(image: Path) -> None:
    arch(image)
    put(image, "/usr/lib32/libc.so.6")


def debian_with_i386(image: Path) -> None:
    debian(image)
    put(image, "/usr/lib/i386-linux-gnu/libc.so.6")


def ubuntu_with_lib32(image: Path) -> None:
    """The package libc6-i386."""
    debian(image)
    put(image, "/usr/lib32/libc.so.6")


def musl(image: Path) -> None:
    put(image, "/lib/ld-musl-x86_64.so.1")


def busybox_with_glibc(image: Path) -> None:
    put(image, "/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2")


def empty(image: Path) -> None:
    pass


def strange(image: Path) -> None:
    """What no image has; nothing is followed out of it, nothing breaks."""
    put(image, "/usr/lib64")
    (image / "lib").symlink_to("../../../../../../usr/lib")


@pytest.mark.parametrize(
    ("distribution", "expected", "expected32"),
    [
        (debian, MULTIARCH, "/usr/lib/i386-linux-gnu"),
        (old_debian, MULTIARCH, "/usr/lib/i386-linux-gnu"),
        (distroless, "/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu"),
        (debian_with_i386, MULTIARCH, "/usr/lib/i386-linux-gnu"),
        (ubuntu_with_lib32, MULTIARCH, "/usr/lib32"),
        (fedora, "/usr/lib64", "/usr/lib"),
        (fedora_with_32_bits, "/usr/lib64", "/usr/lib"),
        (arch, "/usr/lib", "/usr/lib32"),
        (arch_with_multilib, "/usr/lib", "/usr/lib32"),
        (musl, "/usr/lib", "/usr/lib32"),
        (busybox_with_glibc, "/lib", "/usr/lib"),
        (empty, "/usr/lib64", "/usr/lib"),
        (strange, "/usr/lib64", "/usr/lib"),
    ],
)
def test_the_directory_of_the_distribution(
    image: Path,
    tree: DriverTree,
    lay_out: Layout,
    distribution: Callable[[Path], None],
    expected: str,
    expected32: str,
) -> None:
    distribution(image)
    result = lay_out()
    found = {mount.container_path: mount.host_path for mount in result.mounts}
    wanted = {f"{expected}/{name}": f"{tree.path}/lib64/{name}" for name in LIBRARIES}
    wanted |= {
        f"{expected32}/{name}": f"{tree.path}/lib/{name}" for name in FILES["lib"] + LINKS["lib"]
    }
    wanted |= {f"/usr/bin/{name}": f"{tree.path}/bin/{name}" for name in FILES["bin"]}
    assert found == wanted
    assert all(mount.options == FILE_OPTIONS for mount in result.mounts)
    assert bool(result.warnings) is (distribution is musl)
    where = [expected, expected32] if distribution in (empty, strange) else []
    assert result.library_path == where


def test_an_arm_machine(image: Path, lay_out: Layout) -> None:
    put(image, "/usr/lib/aarch64-linux-gnu/libc.so.6", "/lib/ld-linux-aarch64.so.1")
    paths = [mount.container_path for mount in lay_out(machine="aarch64").mounts]
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.1" in paths
    assert "/usr/lib/arm-linux-gnueabihf/libcuda.so.1" in paths


def test_it_takes_the_place_of_the_one_mount(
    image: Path, tree: DriverTree, lay_out: Layout
) -> None:
    """What else is mounted stays, and nothing has two mounts."""
    debian(image)
    edits = Edits()
    vulkan = Mount("/host/nvidia_icd.json", "/etc/vulkan/icd.d/nvidia_icd.json", FILE_OPTIONS)
    gbm = Mount("/host/gbm", f"{MULTIARCH}/gbm/nvidia-drm_gbm.so", FILE_OPTIONS)
    edits.mounts = [
        Mount(tree.path, "/usr/local/nvidia", FILE_OPTIONS),
        Mount(f"{tree.path}/bin/nvidia-smi", "/usr/bin/nvidia-smi", FILE_OPTIONS),
        vulkan,
        gbm,
    ]
    result = lay_out(edits=edits)
    assert edits.mounts == [vulkan, gbm]
    paths = [mount.container_path for mount in edits.mounts + result.mounts]
    assert sorted(paths) == sorted(set(paths))
    assert "/usr/bin/nvidia-smi" in paths


@pytest.mark.parametrize(
    ("mounts", "hidden"),
    [
        ({f"{MULTIARCH}/libcuda.so.1": "bind"}, [f"{MULTIARCH}/libcuda.so.1"]),
        ({"/lib/x86_64-linux-gnu/libcuda.so.1": "bind"}, [f"{MULTIARCH}/libcuda.so.1"]),
        ({"/usr/bin": "bind"}, [f"/usr/bin/{name}" for name in FILES["bin"]]),
        ({MULTIARCH: "bind"}, [f"{MULTIARCH}/{name}" for name in LIBRARIES]),
        ({"/usr/lib": "tmpfs"}, []),
        ({"/proc": "proc", "/data": "bind"}, []),
    ],
)
def test_what_the_user_mounts_stays_the_users(
    image: Path, lay_out: Layout, mounts: dict[str, str], hidden: list[str]
) -> None:
    debian(image)
    every = {mount.container_path for mount in lay_out().mounts}
    left = {mount.container_path for mount in lay_out(mounts).mounts}
    assert every - left == set(hidden)


@pytest.mark.parametrize(
    ("links", "mounts", "hidden", "warns"),
    [
        ({MULTIARCH: "/opt/lib"}, {"/opt/lib": "bind"}, LIBRARIES, True),
        ({MULTIARCH: "/opt/lib"}, {"/opt": "bind"}, LIBRARIES, True),
        ({MULTIARCH: "/opt/lib"}, {"/opt/lib": "tmpfs"}, [], False),
        ({MULTIARCH: "/opt/lib"}, {"/opt/lib/libcuda.so.1": "bind"}, ["libcuda.so.1"], False),
        (
            {MULTIARCH: "/opt/lib", "/opt/lib/vdpau": "/vol"},
            {"/vol": "bind"},
            ["vdpau/libvdpau_nvidia.so.550.1"],
            False,
        ),
        (
            {MULTIARCH: "/opt/lib", "/opt/lib/libcuda.so.1": "/vol/mine"},
            {"/vol": "bind"},
            ["libcuda.so.1"],
            False,
        ),
    ],
)
def test_a_volume_behind_a_link(
    image: Path,
    lay_out: Layout,
    links: dict[str, str],
    mounts: dict[str, str],
    hidden: list[str],
    warns: bool,
) -> None:
    """A missing mount point would be made in the volume, on the host."""
    put(image, "/opt/lib/libc.so.6")
    for path, target in links.items():
        (image / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (image / path.lstrip("/")).symlink_to(target)
    every = {mount.container_path for mount in lay_out().mounts}
    result = lay_out(mounts)
    assert every - {mount.container_path for mount in result.mounts} == {
        f"/opt/lib/{name}" for name in hidden
    }
    place = "/usr/local/nvidia/lib64"
    assert result.library_path == [place] * warns
    moved = {m.container_path for m in result.mounts if m.container_path.startswith(place)}
    assert moved == {f"{place}/{name}" for name in hidden if warns}
    said = f"in {place} and found through LD_LIBRARY_PATH only, because /opt/lib,"
    assert any(said in warning for warning in result.warnings) is warns


def test_programs_behind_a_link(image: Path, lay_out: Layout) -> None:
    debian(image)
    (image / "usr/bin").symlink_to("../vol")
    result = lay_out({"/vol": "bind"})
    paths = [mount.container_path for mount in result.mounts]
    assert paths
    assert not [path for path in paths if path.startswith("/usr/bin")]
    assert result.warnings == ["The driver's files for /usr/bin are left out: it lies in a volume."]


def test_32_bit_libraries_behind_a_link(image: Path, lay_out: Layout) -> None:
    debian_with_i386(image)
    os.rename(image / "usr/lib/i386-linux-gnu", image / "vol")
    (image / "usr/lib/i386-linux-gnu").symlink_to("/vol")
    result = lay_out({"/vol": "bind"})
    paths = [mount.container_path for mount in result.mounts]
    assert not [path for path in paths if path.startswith("/vol")]
    assert "/usr/local/nvidia/lib/libcuda.so.1" in paths
    assert result.library_path == ["/usr/local/nvidia/lib"]


def test_a_copy_in_a_volume_is_not_covered(image: Path, lay_out: Layout) -> None:
    debian(image)
    put(image, "/etc/ld.so.cache", "/opt/old/libcuda.so.1")
    (image / "etc/ld.so.cache").write_bytes(
        cache((X86_64, "libcuda.so.1", "/opt/old/libcuda.so.1"))
    )
    result = lay_out({"/opt/old": "bind"})
    assert "/opt/old/libcuda.so.1" not in [mount.container_path for mount in result.mounts]
    assert not result.notes


def test_a_directory_in_the_place_of_a_file(image: Path, lay_out: Layout) -> None:
    debian(image)
    (image / MULTIARCH.lstrip("/") / "libcuda.so.1").mkdir()
    result = lay_out()
    assert f"{MULTIARCH}/libcuda.so.1" not in [mount.container_path for mount in result.mounts]
    assert result.warnings == [
        f"{MULTIARCH}/libcuda.so.1 of the driver is left out: the image has a folder there."
    ]


def cache(*entries: tuple[int, str, str]) -> bytes:
    table = [(flags, name.encode(), path.encode(), 0, 0) for flags, name, path in entries]
    return write(LoaderCache(table, b"ldconfig"))


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ((X86_64, "libcuda.so.1", "/opt/old/libcuda.so.1"), True),
        ((BITS_32, "libcuda.so.1", "/opt/old/libcuda.so.1"), False),
        ((X86_64, "libcudart.so.1", "/opt/old/libcuda.so.1"), False),
        ((X86_64, "libcuda.so.1", "/opt/gone/libcuda.so.1"), False),
        ((X86_64, "libcuda.so.1", f"{MULTIARCH}/libcuda.so.1"), False),
        ((X86_64, "libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1"), False),
        ((X86_64, "libcuda.so.1", "opt/old/libcuda.so.1"), False),
    ],
)
def test_a_copy_that_the_cache_prefers(
    image: Path, tree: DriverTree, lay_out: Layout, entry: tuple[int, str, str], covered: bool
) -> None:
    debian(image)
    put(image, "/opt/old/libcuda.so.1", f"{MULTIARCH}/libcuda.so.1", "/etc/ld.so.cache")
    (image / "etc/ld.so.cache").write_bytes(cache(entry))
    result = lay_out()
    over = [m for m in result.mounts if m.container_path == "/opt/old/libcuda.so.1"]
    assert [m.host_path for m in over] == [f"{tree.path}/lib64/libcuda.so.1"] * covered
    assert bool(result.notes) is covered
    assert len({m.container_path for m in result.mounts}) == len(result.mounts)


def test_a_copy_behind_a_link_is_covered_where_it_is(image: Path, lay_out: Layout) -> None:
    debian(image)
    put(image, "/opt/real/libcuda.so.535", "/etc/ld.so.cache")
    (image / "opt/old").symlink_to("/opt/real")
    (image / "opt/real/libcuda.so.1").symlink_to("libcuda.so.535")
    (image / "etc/ld.so.cache").write_bytes(
        cache((X86_64, "libcuda.so.1", "/opt/old/libcuda.so.1"))
    )
    assert "/opt/real/libcuda.so.535" in [mount.container_path for mount in lay_out().mounts]


def test_copies_that_the_loader_meets_first(image: Path, lay_out: Layout) -> None:
    """Without a cache: outside /usr, and for certain processors; not one that it meets later."""
    old_debian(image)
    copies = [
        "/lib/x86_64-linux-gnu/libcuda.so.1",
        f"{MULTIARCH}/glibc-hwcaps/x86-64-v3/libcuda.so.1",
    ]
    put(image, *copies, "/usr/lib/libcuda.so.1", "/usr/lib64/libcuda.so.1")
    paths = [mount.container_path for mount in lay_out().mounts]
    assert [path for path in paths if path in copies] == copies
    assert not {"/usr/lib/libcuda.so.1", "/usr/lib64/libcuda.so.1"} & set(paths)


def test_libraries_of_the_image_that_are_preferred(image: Path, lay_out: Layout) -> None:
    """Forward compatibility: its copies stay, and the loader is led to them."""
    debian(image)
    put(image, "/usr/local/cuda-12.6/compat/libcuda.so.1", "/etc/ld.so.cache")
    (image / "usr/local/cuda").symlink_to("cuda-12.6")
    compat = "/usr/local/cuda/compat"
    (image / "etc/ld.so.cache").write_bytes(
        cache((X86_64, "libcuda.so.1", f"{compat}/libcuda.so.1"))
    )
    result = lay_out(compat=compat)
    assert result.library_path == [compat]
    assert not [m for m in result.mounts if m.container_path.startswith("/usr/local")]


@pytest.mark.parametrize("content", [b"", b"garbage libcuda.so.1\0", None])
def test_a_cache_that_nobody_can_read(image: Path, lay_out: Layout, content: bytes | None) -> None:
    debian(image)
    put(image, "/etc/ld.so.cache")
    if content is None:
        (image / "etc/ld.so.cache").unlink()
        os.mkfifo(image / "etc/ld.so.cache")
    else:
        (image / "etc/ld.so.cache").write_bytes(content)
    result = lay_out()
    assert len(result.mounts) == len(LIBRARIES) + 4
    assert not result.warnings


def test_links_that_lead_in_circles(image: Path, lay_out: Layout) -> None:
    (image / "lib").symlink_to("lib")
    (result,) = [lay_out()]
    assert "too many symbolic links" in result.warnings[0]


def test_a_listing(tree: DriverTree, tmp_path: Path) -> None:
    assert listing(f"{tree.path}/lib64") == [
        "gbm/nvidia-drm_gbm.so",
        "libcuda.so",
        "libcuda.so.1",
        "libcuda.so.550.1",
        "vdpau/libvdpau_nvidia.so.550.1",
    ]
    assert listing(str(tmp_path / "gone")) == []
