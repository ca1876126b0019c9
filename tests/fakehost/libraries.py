"""The driver's libraries: file names, sonames, links and where distributions put them.

Names are those of NVIDIA-Linux-x86_64-550.163.01's manifest; places are those of the packages of
Debian, Ubuntu, RPM Fusion, openSUSE and Arch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import compiler
from .procfs import major_version, numeric
from .tree import File, Link, Tree, write_file

LAYOUTS = {  # 64-bit and 32-bit library directory
    "debian": ("usr/lib/x86_64-linux-gnu", "usr/lib/i386-linux-gnu"),
    "ubuntu": ("usr/lib/x86_64-linux-gnu", "usr/lib/i386-linux-gnu"),
    "fedora": ("usr/lib64", "usr/lib"),
    "rhel": ("usr/lib64", "usr/lib"),
    "suse": ("usr/lib64", "usr/lib"),
    "arch": ("usr/lib", "usr/lib32"),
}


@dataclass(frozen=True)
class Library:
    """A library file. `{v}` is the driver's version; a soname of "" is the file's own name."""

    name: str
    soname: str = ""
    bits32: bool = False
    development: bool = False
    graphics: bool = False


def _versioned(stem: str, soname: int | None = 1, **more: bool) -> Library:
    return Library(f"{stem}.so.{{v}}", "" if soname is None else f"{stem}.so.{soname}", **more)


_COMPUTE_AND_UTILITY = (
    _versioned("libcuda", bits32=True, development=True),
    _versioned("libcudadebugger"),
    _versioned("libnvidia-opencl", bits32=True),
    _versioned("libnvidia-gpucomp", None, bits32=True),
    _versioned("libnvidia-ptxjitcompiler", bits32=True, development=True),
    _versioned("libnvidia-allocator", bits32=True, development=True),
    _versioned("libnvidia-nvvm", 4, bits32=True, development=True),
    _versioned("libnvidia-pkcs11", None),
    _versioned("libnvidia-pkcs11-openssl3", None),
    _versioned("libnvidia-ml", bits32=True, development=True),
    _versioned("libnvidia-cfg", development=True),
    _versioned("libnvidia-nscq", 2),
    _versioned("libnvidia-ngx"),
    Library("libnvidia-sandboxutils.so.{v}", "libnvidia-sandboxutils.so.1"),
)
_VIDEO = (
    _versioned("libnvcuvid", bits32=True, development=True),
    _versioned("libnvidia-encode", bits32=True, development=True),
    _versioned("libnvidia-opticalflow", bits32=True, development=True),
    Library("vdpau/libvdpau_nvidia.so.{v}", "libvdpau_nvidia.so.1", bits32=True),
)
_GRAPHICS = (
    *(_versioned(f"libnvidia-{name}", None, bits32=True, graphics=True)
      for name in ("eglcore", "glcore", "tls", "glsi", "glvkspirv")),
    _versioned("libnvidia-rtcore", None, graphics=True),
    _versioned("libnvidia-fbc", bits32=True, development=True, graphics=True),
    _versioned("libnvoptix", graphics=True),
    _versioned("libGLX_nvidia", 0, bits32=True, graphics=True),
    _versioned("libEGL_nvidia", 0, bits32=True, graphics=True),
    _versioned("libGLESv1_CM_nvidia", 1, bits32=True, graphics=True),
    _versioned("libGLESv2_nvidia", 2, bits32=True, graphics=True),
    _versioned("libnvidia-vksc-core", 1, graphics=True),
    _versioned("libnvidia-gtk3", None, graphics=True),
    _versioned("libnvidia-gtk2", None, graphics=True),
    _versioned("libnvidia-wayland-client", None, graphics=True),
    _versioned("libnvidia-vulkan-producer", None, graphics=True),
    Library("libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-gbm.so.1", graphics=True),
    Library("libnvidia-egl-wayland.so.1.1.13", "libnvidia-egl-wayland.so.1", graphics=True),
    Library("libnvidia-egl-xcb.so.1.0.0", "libnvidia-egl-xcb.so.1", graphics=True),
    Library("libnvidia-egl-xlib.so.1.0.0", "libnvidia-egl-xlib.so.1", graphics=True),
    Library("libnvidia-api.so.1", "libnvidia-api.so.1", graphics=True),
    Library("nvidia/xorg/nvidia_drv.so", graphics=True),
    Library("nvidia/xorg/libglxserver_nvidia.so.{v}", "libglxserver_nvidia.so", graphics=True),
)  # fmt: skip
LIBRARIES = (*_COMPUTE_AND_UTILITY, *_VIDEO, *_GRAPHICS)

# Files of other packages, which nobody may take for the driver's.
_UNRELATED = (
    ("libc.so.6", ""), ("libm.so.6", ""), ("libGL.so.1.7.0", "libGL.so.1"),
    ("libEGL.so.1.1.0", "libEGL.so.1"), ("libGLX.so.0.0.0", "libGLX.so.0"),
    ("libGLdispatch.so.0.0.0", "libGLdispatch.so.0"), ("libOpenCL.so.1.0.0", "libOpenCL.so.1"),
    ("libvulkan.so.1.3.239", "libvulkan.so.1"), ("libvdpau.so.1.0.0", "libvdpau.so.1"),
    ("libnvidia-container.so.1.17.8", "libnvidia-container.so.1"),
    ("libnvidia-container-go.so.1.17.8", "libnvidia-container-go.so.1"),
    ("libcudart.so.12.4.127", "libcudart.so.12"), ("libgbm.so.1.0.0", "libgbm.so.1"),
)  # fmt: skip

# Entry points and the first driver that has them.
SINCE = {
    "nvmlDeviceSetMemoryLimits_v1": (615,), "nvmlDeviceGetMemoryLimits_v1": (615,),
    "nvmlDeviceGetGpuFabricInfo_v4": (615,), "nvmlDeviceGetTemperatureV": (570,),
    "nvmlDeviceGetMarginTemperature": (570,), "nvmlDeviceGetAddressingMode": (580,),
    "nvmlDeviceGetPlatformInfo": (565,), "nvmlDeviceGetGpuFabricInfoV": (545,),
    "nvmlDeviceGetNumaNodeId": (545,), "nvmlDeviceGetPciInfoExt": (535,),
    "nvmlDeviceGetCurrentClocksEventReasons": (535,), "nvmlDeviceGetMemoryInfo_v2": (510,),
    "nvmlDeviceGetComputeRunningProcesses_v3": (510,),
}  # fmt: skip


def _hidden(driver: str) -> tuple[str, ...]:
    version = numeric(driver)
    return tuple(name for name, first in SINCE.items() if version < first)


def _content(library: Library, file: str, bits: int, driver: str, state: str) -> bytes:
    base = file.rsplit("/", 1)[-1]
    if bits == 64 and base.startswith("libnvidia-ml.so."):
        return compiler.stateful("nvml", state, _hidden(driver))
    if base.startswith("libcuda.so."):
        if bits == 64:
            return compiler.stateful("cuda64", state)
        return compiler.stub("cuda32", library.soname, f"{base} {driver}")
    soname = library.soname.format(v=driver) or base
    return compiler.stub(f"stub{bits}", soname, f"{base} {driver} {bits}-bit")


def library_tree(layout: str, driver: str, state: str, *, lib32: bool, graphics: bool) -> Tree:
    """The driver's libraries and the links beside them, as a distribution's packages have them."""
    tree: Tree = {}
    for bits, directory in zip((64, 32), LAYOUTS[layout], strict=True):
        if bits == 32 and not lib32:
            continue
        for library in LIBRARIES:
            if (bits == 32 and not library.bits32) or (library.graphics and not graphics):
                continue
            file = library.name.format(v=driver)
            folder, _, base = f"{directory}/{file}".rpartition("/")
            tree[f"{folder}/{base}"] = File(_content(library, file, bits, driver, state))
            soname = library.soname or base
            if soname != base:
                tree[f"{folder}/{soname}"] = Link(base)
            if library.development:
                tree[f"{folder}/{base.split('.so')[0]}.so"] = Link(soname)
        if graphics:
            tree[f"{directory}/libGLX_indirect.so.0"] = Link(f"libGLX_nvidia.so.{driver}")
            tree[f"{directory}/gbm/nvidia-drm_gbm.so"] = Link("../libnvidia-allocator.so.1")
        if major_version(driver) < 570:
            tree[f"{directory}/libnvidia-nvvm70.so.4"] = Link(f"libnvidia-nvvm.so.{driver}")
    return tree


def unrelated_tree(layout: str) -> Tree:
    """Libraries of other packages in the same directory."""
    directory = LAYOUTS[layout][0]
    tree: Tree = {}
    for file, soname in _UNRELATED:
        tree[f"{directory}/{file}"] = File(compiler.stub("stub64", soname or file, file))
        if soname:
            tree[f"{directory}/{soname}"] = Link(file)
    return tree


def write_library(path: Path, soname: str, bits: int = 64, identity: str = "") -> None:
    """A stand-in for any library, for images and roots that tests put together themselves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, compiler.stub(f"stub{bits}", soname, identity or path.name))
