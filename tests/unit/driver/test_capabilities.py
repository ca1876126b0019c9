"""Each driver capability gives exactly its files: in the tree, and at fixed places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpushim.allocate.grant import Grant
from gpushim.host.driverfiles import find
from gpushim.host.model import DriverTree, Inventory
from gpushim.host.tree import assemble
from gpushim.inject.container import Container
from gpushim.inject.gpus import driver_edits
from gpushim.oci.edits import Edits
from gpushim.places import Places

from tests.fakehost import Description, FakeHost, build
from tests.unit.driver.conftest import VERSION

UTILITY = {
    *("libnvidia-ml.so", "libnvidia-ml.so.1", "libnvidia-cfg.so", "libnvidia-cfg.so.1"),
    *("libnvidia-nscq.so.2", "libnvidia-sandboxutils.so.1"),
}
COMPUTE = {
    *("libcuda.so", "libcuda.so.1", "libcudadebugger.so.1", "libnvidia-opencl.so.1"),
    *("libnvidia-ptxjitcompiler.so", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so"),
    *("libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4", f"libnvidia-pkcs11.so.{VERSION}"),
    *(f"libnvidia-pkcs11-openssl3.so.{VERSION}", f"libnvidia-gpucomp.so.{VERSION}"),
    *("libnvidia-allocator.so", "libnvidia-allocator.so.1"),
}
# Its soname lies in a directory of its own, where libvdpau looks.
VIDEO = {
    *("libnvcuvid.so", "libnvcuvid.so.1", "libnvidia-encode.so", "libnvidia-encode.so.1"),
    *("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1", "libvdpau_nvidia.so"),
}
GRAPHICS = {
    *("libGLX_nvidia.so.0", "libGLX_indirect.so.0", "libEGL_nvidia.so.0"),
    *("libGLESv1_CM_nvidia.so.1", "libGLESv2_nvidia.so.2", "libnvoptix.so.1"),
    *("libnvidia-fbc.so", "libnvidia-fbc.so.1", "libnvidia-vksc-core.so.1", "libnvidia-api.so.1"),
    *("libnvidia-allocator.so", "libnvidia-allocator.so.1", "libnvidia-egl-gbm.so.1"),
    *("libnvidia-egl-wayland.so.1", "libnvidia-egl-xcb.so.1", "libnvidia-egl-xlib.so.1"),
    *(
        f"libnvidia-{name}.so.{VERSION}"
        for name in (
            *("eglcore", "glcore", "glsi", "tls", "rtcore", "glvkspirv", "gpucomp"),
            "vulkan-producer",
        )
    ),
}
DISPLAY = {
    *GRAPHICS,
    *(f"libnvidia-{name}.so.{VERSION}" for name in ("gtk2", "gtk3", "wayland-client")),
}

SHARED = {
    *("/etc/vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/implicit_layer.d/nvidia_layers.json"),
    "/etc/vulkansc/icd.d/nvidia_icd_vksc.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    *(
        f"/usr/share/egl/egl_external_platform.d/{name}.json"
        for name in ("10_nvidia_wayland", "15_nvidia_gbm", "20_nvidia_xcb", "20_nvidia_xlib")
    ),
    "/usr/share/nvidia/nvoptix.bin",
    f"/usr/share/nvidia/nvidia-application-profiles-{VERSION}-rc",
    f"/usr/share/nvidia/nvidia-application-profiles-{VERSION}-key-documentation",
    *(
        f"{directory}/gbm/nvidia-drm_gbm.so"
        for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
    ),
    *(f"/lib/firmware/nvidia/{VERSION}/gsp_{chips}.bin" for chips in ("ga10x", "tu10x")),
}
XORG = {
    "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    *(f"{place}/xorg/modules/drivers/nvidia_drv.so" for place in ("/usr/lib", "/usr/lib64")),
    *(
        f"{place}/xorg/modules/extensions/libglxserver_nvidia.so"
        for place in ("/usr/lib", "/usr/lib64")
    ),
}
SMI = {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"}
MPS = {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"}
TOOLS = {"nvidia-settings", "nvidia-xconfig"}
OPENCL = {"/etc/OpenCL/vendors/nvidia.icd"}


@pytest.mark.parametrize(
    ("capabilities", "libraries", "programs", "fixed"),
    [
        (["utility"], UTILITY, SMI, {"/usr/bin/nvidia-smi"}),
        (["compute"], COMPUTE, MPS, OPENCL),
        (["video"], VIDEO, set(), set()),
        (["graphics"], GRAPHICS, TOOLS, SHARED),
        (["display"], DISPLAY, TOOLS, SHARED | XORG),
        (
            ["ngx"],
            {"libnvidia-ngx.so.1"},
            {"nvidia-ngx-updater"},
            set(),
        ),
        (["compat32"], set(), set(), set()),
        ([], set(), set(), set()),
        (
            ["compute", "utility", "video"],
            COMPUTE | UTILITY | VIDEO,
            SMI | MPS,
            OPENCL | {"/usr/bin/nvidia-smi"},
        ),
        (["graphics", "compute"], GRAPHICS | COMPUTE, TOOLS | MPS, SHARED | OPENCL),
    ],
)
def test_exactly_its_files(
    host: FakeHost,
    tmp_path: Path,
    capabilities: list[str],
    libraries: set[str],
    programs: set[str],
    fixed: set[str],
) -> None:
    tree, mounts = given(host, tmp_path, capabilities)
    assert set(tree.libraries) == libraries
    assert tree.libraries32 == []
    assert set(os.listdir(f"{tree.path}/bin")) == programs
    assert mounts.keys() == {*fixed, "/usr/local/nvidia"}
    assert all(os.path.isfile(mounts[path]) for path in fixed)
    wine = Path(tree.path, "lib64/nvidia/wine")
    assert wine.is_dir() is ("ngx" in capabilities)


COMPUTE32 = {
    *("libcuda.so", "libcuda.so.1", "libnvidia-opencl.so.1", "libnvidia-ptxjitcompiler.so"),
    *("libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so", "libnvidia-nvvm.so.4"),
    *("libnvidia-nvvm70.so.4", f"libnvidia-gpucomp.so.{VERSION}"),
    *("libnvidia-allocator.so", "libnvidia-allocator.so.1"),
}
GRAPHICS32 = {
    *("libGLX_nvidia.so.0", "libGLX_indirect.so.0", "libEGL_nvidia.so.0"),
    *("libGLESv1_CM_nvidia.so.1", "libGLESv2_nvidia.so.2"),
    *("libnvidia-fbc.so", "libnvidia-fbc.so.1"),
    *("libnvidia-allocator.so", "libnvidia-allocator.so.1"),
    *(
        f"libnvidia-{name}.so.{VERSION}"
        for name in ("eglcore", "glcore", "glsi", "tls", "glvkspirv", "gpucomp")
    ),
}


@pytest.mark.parametrize(
    ("capability", "libraries"),
    [
        ("compute", COMPUTE32),
        ("utility", {"libnvidia-ml.so", "libnvidia-ml.so.1"}),
        ("video", VIDEO),
        ("graphics", GRAPHICS32),
        ("display", GRAPHICS32),
        ("ngx", set()),
    ],
)
def test_32_bit_libraries(
    host: FakeHost, tmp_path: Path, capability: str, libraries: set[str]
) -> None:
    """compat32 adds to each capability what it has for 32 bits, and changes nothing else."""
    plain, fixed = given(host, tmp_path, [capability])
    tree, mounts = given(host, tmp_path, [capability, "compat32"])
    assert tree.libraries == plain.libraries
    assert set(tree.libraries32) == libraries
    assert mounts.keys() == fixed.keys()


def given(
    host: FakeHost, tmp_path: Path, capabilities: list[str]
) -> tuple[DriverTree, dict[str, str]]:
    """The tree, and host path by container path of the mounts."""
    files = find(str(host.driver_root), VERSION)
    tree = assemble(Places(str(tmp_path)), files, capabilities)
    inventory = Inventory(VERSION, [], {}, files.extra_mounts, [], False, "")
    container = Container("/r", False, [], {}, False, False, [])
    edits = Edits()
    driver_edits(edits, container, Grant([], capabilities), inventory, tree, [])
    if "utility" not in capabilities:
        assert "/usr/bin/nvidia-smi" not in {mount.container_path for mount in edits.mounts}
    return tree, {mount.container_path: mount.host_path for mount in edits.mounts}


@pytest.mark.parametrize(("layout", "changed"), [("debian", False), ("fedora", True)])
def test_manifests_that_name_a_path_of_the_host(tmp_path: Path, layout: str, changed: bool) -> None:
    """Fedora's name /usr/lib64/libGLX_nvidia.so.0, which no container has."""
    host = build(tmp_path / "host", Description(driver=VERSION, layout=layout))
    tree, mounts = given(host, tmp_path, ["graphics"])
    (icd,) = [path for path in mounts if path.startswith("/etc/vulkan/icd.d/")]
    assert '"library_path": "libGLX_nvidia.so.0"' in Path(mounts[icd]).read_text()
    assert mounts[icd].startswith(tree.path) is changed
    assert os.stat(mounts[icd]).st_mode & 0o777 == 0o644
    egl = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
    assert mounts[egl].startswith(str(host.root))
