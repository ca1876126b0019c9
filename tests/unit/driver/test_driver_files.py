"""Which files of the driver are found, and what for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from gpushim.errors import GpushimError
from gpushim.host.drivercatalogue import LIBRARIES
from gpushim.host.driverfiles import find, userspace_versions
from gpushim.host.driverlist import DriverFiles

from tests.fakehost import Description, FakeHost, build, write_library
from tests.unit.driver.conftest import VERSION

ALL = ["compute", "utility", "video", "graphics", "display", "ngx", "compat32"]


@pytest.fixture(scope="session")
def files(host: FakeHost) -> DriverFiles:
    return find(str(host.driver_root), VERSION)


def stems(files: DriverFiles, capabilities: list[str], bits: int = 64) -> set[str]:
    return {library.stem for library in files.libraries_for(capabilities, bits)}


@pytest.mark.parametrize(
    ("capability", "there", "not_there"),
    [
        ("utility", ["libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"], ["libcuda"]),
        ("compute", ["libcuda", "libnvidia-gpucomp", "libnvidia-nvvm"], ["libnvidia-ml"]),
        ("video", ["libnvcuvid", "libvdpau_nvidia", "libnvidia-encode"], ["libcuda", "libnvoptix"]),
        ("graphics", ["libGLX_nvidia", "libnvoptix", "libnvidia-egl-gbm"], ["libcuda"]),
        ("display", ["libGLX_nvidia", "libnvidia-gtk3"], ["libcuda", "libnvcuvid"]),
        ("ngx", ["libnvidia-ngx"], ["libcuda", "libnvidia-ml"]),
    ],
)
def test_libraries_by_capability(
    files: DriverFiles, capability: str, there: list[str], not_there: list[str]
) -> None:
    found = stems(files, [capability])
    assert found >= set(there)
    assert not found & set(not_there)


def test_compat32_is_about_the_other_capabilities(files: DriverFiles) -> None:
    assert stems(files, ["compat32"]) == stems(files, ["compat32"], 32) == set()
    assert stems(files, ["compute"], 32) == set()
    both = stems(files, ["compute", "compat32"], 32)
    assert "libcuda" in both
    assert not both & {"libnvidia-ml", "libGLX_nvidia"}


def test_every_library_of_the_driver_is_found(files: DriverFiles, host: FakeHost) -> None:
    directory = host.library_directory
    expected = {
        path.name
        for path in [*directory.glob(f"lib*.so.{VERSION}"), *directory.glob("vdpau/*.so.*.*.*")]
        if not path.is_symlink()
    }
    found = {library.name for library in files.libraries_for(ALL, 64)}
    assert len(expected) > 30
    assert found >= expected
    assert {"libnvidia-egl-gbm.so.1.1.1", "libnvidia-api.so.1"} <= found
    others = {name for name in found if name.split(".so")[0] not in LIBRARIES}
    assert not others, "unknown names go with any capability: give them a place in the catalogue"


def test_libraries_of_others_are_left_alone(files: DriverFiles) -> None:
    names = {library.name for library in files.libraries}
    assert not [name for name in names if "container" in name or "libOpenCL" in name]


@pytest.mark.parametrize("layout", ["debian", "ubuntu", "fedora", "rhel", "suse", "arch"])
@pytest.mark.parametrize("ldcache", [True, False])
def test_every_distribution(tmp_path: Path, layout: str, ldcache: bool) -> None:
    host = build(tmp_path, Description(driver=VERSION, layout=layout, ldcache=ldcache))
    found = find(str(host.driver_root), VERSION)
    for bits in (64, 32):
        cuda = [lib for lib in found.libraries_for(ALL, bits) if lib.stem == "libcuda"]
        assert [lib.soname for lib in cuda] == ["libcuda.so.1"]
    assert {binary.name for binary in found.binaries_for(ALL)} >= {"nvidia-smi", "nvidia-xconfig"}
    assert str(host.library_directory) in found.directories
    targets = {mount.container_path for mount in found.extra_mounts}
    icd = "nvidia_icd.x86_64.json" if layout in ("fedora", "rhel") else "nvidia_icd.json"
    assert targets >= {
        "/etc/OpenCL/vendors/nvidia.icd",
        f"/etc/vulkan/icd.d/{icd}",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/nvidia/nvoptix.bin",
        "/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so",
        "/usr/lib64/xorg/modules/drivers/nvidia_drv.so",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    }
    assert all(os.path.isfile(path) and not os.path.islink(path) for path in found.paths)


def test_binaries_by_capability(files: DriverFiles) -> None:
    def names(*capabilities: str) -> set[str]:
        return {binary.name for binary in files.binaries_for(capabilities)}

    assert names("utility") == {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"}
    assert names("compute") == {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"}
    assert names("compat32") == set()


def test_another_version_has_no_files_of_this_one(host: FakeHost) -> None:
    found = find(str(host.driver_root), "560.35.03")
    assert not [library for library in found.libraries if VERSION in library.name]
    assert not found.firmware


def test_links_are_resolved_beneath_the_driver_root(tmp_path: Path) -> None:
    """Debian's alternatives, in the root of a containerised driver: /etc there, not here."""
    real = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    write_library(real / f"libcuda.so.{VERSION}", "libcuda.so.1")
    (tmp_path / "usr/lib/nvidia/current").mkdir(parents=True)
    (tmp_path / "usr/lib/nvidia/current/nvidia-smi").write_bytes(b"#!")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/etc/alternatives/nvidia--nvidia-smi")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/nvidia--nvidia-smi").symlink_to(
        "/usr/lib/nvidia/current/nvidia-smi"
    )
    outside = tmp_path / "usr/lib/x86_64-linux-gnu" / f"libnvidia-ml.so.{VERSION}"
    outside.symlink_to("/../../../../../../../../etc/passwd")
    found = find(str(tmp_path), VERSION)
    assert [lib.path for lib in found.libraries] == [str(real / f"libcuda.so.{VERSION}")]
    assert [binary.path for binary in found.binaries] == [
        str(tmp_path / "usr/lib/nvidia/current/nvidia-smi")
    ]


def test_a_directory_that_only_the_loader_knows(tmp_path: Path) -> None:
    from tests.unit.driver import ldconfig

    ldconfig.library(tmp_path, f"opt/odd/libcuda.so.{VERSION}", "libcuda.so.1")
    assert not find(str(tmp_path), VERSION).libraries
    ldconfig.run(tmp_path, ["/opt/odd"])
    assert [lib.name for lib in find(str(tmp_path), VERSION).libraries] == [f"libcuda.so.{VERSION}"]
    (tmp_path / "etc/ld.so.cache").write_bytes(b"garbage")
    assert not find(str(tmp_path), VERSION).libraries


def test_files_that_are_no_libraries_are_left_out(tmp_path: Path) -> None:
    directory = tmp_path / "usr/lib64"
    write_library(directory / f"libcuda.so.{VERSION}", "libcuda.so.1")
    (directory / f"libnvidia-ml.so.{VERSION}").write_bytes(b"text")
    (directory / f"libnvidia-cfg.so.{VERSION}").symlink_to("absent")
    os.mkfifo(directory / f"libnvcuvid.so.{VERSION}")
    assert [lib.stem for lib in find(str(tmp_path), VERSION).libraries] == ["libcuda"]
    assert not find(str(tmp_path), VERSION, machine="aarch64").libraries


def test_versions(tmp_path: Path, host: FakeHost) -> None:
    """The sentence on a mismatch names both versions (B50)."""
    root = tmp_path / "root"
    shutil.copytree(host.library_directory, root / "usr/lib64", symlinks=True)
    assert userspace_versions(str(root)) == [VERSION]
    write_library(root / "usr/lib64/libcuda.so.560.35.03", "libcuda.so.1")
    write_library(root / "usr/lib64/libnvidia-ml.so.90.1", "libnvidia-ml.so.1")
    assert userspace_versions(str(root)) == ["560.35.03", VERSION, "90.1"]
    assert userspace_versions(str(tmp_path)) == []


def test_a_driver_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GpushimError, match=r"driver root .* does not exist"):
        find(str(tmp_path / "absent"), VERSION)


def test_debians_places(tmp_path: Path) -> None:
    """What its packages have without the links of its alternatives, as in a driver container."""
    current = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    write_library(current / f"libnvoptix.so.{VERSION}", "libnvoptix.so.1")
    for path in (
        current / "nvoptix.bin",
        current / "nvidia/wine/_nvngx.dll",
        tmp_path / "etc/nvidia/current/nvidia-drm-outputclass.conf",
        tmp_path / "usr/lib/nvidia/current/nvidia_drv.so",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    found = find(str(tmp_path), VERSION)
    sources = {mount.container_path: mount.host_path for mount in found.extra_mounts}
    assert sources["/usr/share/nvidia/nvoptix.bin"] == str(current / "nvoptix.bin")
    assert sources["/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf"].startswith(
        str(tmp_path / "etc")
    )
    assert "/usr/lib/xorg/modules/drivers/nvidia_drv.so" in sources
    assert [module.name for module in found.modules_for(["ngx"])] == ["nvidia/wine/_nvngx.dll"]
    assert str(current / "nvidia/wine/_nvngx.dll") in found.paths
