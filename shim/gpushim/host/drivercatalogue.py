"""Which file of NVIDIA's driver belongs to which driver capability, and where it may lie.

The grouping is that of libnvidia-container (src/nvc_info.c), which NVIDIA_DRIVER_CAPABILITIES was
made for, with what drivers 550 to 615 have added since. Paths are relative to the driver root.
"""

from __future__ import annotations

_UTILITY = ("utility",)
_COMPUTE = ("compute",)
_VIDEO = ("video",)
_GRAPHICS = ("graphics", "display")
_DISPLAY = ("display",)
_NGX = ("ngx",)
_COMPUTE_AND_GRAPHICS = ("compute", "graphics", "display")

ANY = ("utility", "compute", "video", "graphics", "display", "ngx")

# Name of a library up to ".so" -> the capabilities any of which call for it. One that is not
# listed here and has the driver's version goes with any capability: a newer driver's new library
# is most likely one that others need.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "libnvidia-ml": _UTILITY,
    "libnvidia-cfg": _UTILITY,
    "libnvidia-nscq": _UTILITY,
    "libnvsdm": _UTILITY,
    "libnvidia-sandboxutils": _UTILITY,
    "libcuda": _COMPUTE,
    "libcudadebugger": _COMPUTE,
    "libnvidia-opencl": _COMPUTE,
    "libnvidia-ptxjitcompiler": _COMPUTE,
    "libnvidia-fatbinaryloader": _COMPUTE,
    "libnvidia-compiler": _COMPUTE,
    "libnvidia-compiler-next": _COMPUTE,
    "libnvidia-pkcs11": _COMPUTE,
    "libnvidia-pkcs11-openssl3": _COMPUTE,
    "libnvidia-nvvm": _COMPUTE,
    "libnvidia-tileiras": _COMPUTE,
    "libnvcuextend": _COMPUTE,
    "libnvidia-gpucomp": _COMPUTE_AND_GRAPHICS,
    "libnvidia-allocator": _COMPUTE_AND_GRAPHICS,
    "libvdpau_nvidia": _VIDEO,
    "libnvidia-encode": _VIDEO,
    "libnvidia-opticalflow": _VIDEO,
    "libnvcuvid": _VIDEO,
    "libGLX_nvidia": _GRAPHICS,
    "libEGL_nvidia": _GRAPHICS,
    "libGLESv1_CM_nvidia": _GRAPHICS,
    "libGLESv2_nvidia": _GRAPHICS,
    "libnvidia-eglcore": _GRAPHICS,
    "libnvidia-glcore": _GRAPHICS,
    "libnvidia-glsi": _GRAPHICS,
    "libnvidia-tls": _GRAPHICS,
    "libnvidia-fbc": _GRAPHICS,
    "libnvidia-ifr": _GRAPHICS,
    "libnvidia-rtcore": _GRAPHICS,
    "libnvoptix": _GRAPHICS,
    "libnvidia-glvkspirv": _GRAPHICS,
    "libnvidia-cbl": _GRAPHICS,
    "libnvidia-vksc-core": _GRAPHICS,
    "libnvidia-vulkan-producer": _GRAPHICS,
    "libnvidia-present": _GRAPHICS,
    "libnvidia-api": _GRAPHICS,
    "libnvidia-egl-gbm": _GRAPHICS,
    "libnvidia-egl-wayland": _GRAPHICS,
    "libnvidia-egl-wayland2": _GRAPHICS,
    "libnvidia-egl-xcb": _GRAPHICS,
    "libnvidia-egl-xlib": _GRAPHICS,
    "libnvidia-gtk2": _DISPLAY,
    "libnvidia-gtk3": _DISPLAY,
    "libnvidia-wayland-client": _DISPLAY,
    "libglxserver_nvidia": _DISPLAY,
    "libnvidia-ngx": _NGX,
}

# Libraries with a version of their own, of which any is taken.
OWN_VERSION = frozenset(
    {
        "libnvidia-api",
        "libnvidia-egl-gbm",
        "libnvidia-egl-wayland",
        "libnvidia-egl-wayland2",
        "libnvidia-egl-xcb",
        "libnvidia-egl-xlib",
        "libnvsdm",
    }
)

BINARIES: dict[str, tuple[str, ...]] = {
    "nvidia-smi": _UTILITY,
    "nvidia-debugdump": _UTILITY,
    "nvidia-persistenced": _UTILITY,
    "nvidia-imex": _UTILITY,
    "nvidia-imex-ctl": _UTILITY,
    "nvidia-cuda-mps-control": _COMPUTE,
    "nvidia-cuda-mps-server": _COMPUTE,
    "nvidia-xconfig": _GRAPHICS,
    "nvidia-settings": _GRAPHICS,
    "nvidia-ngx-updater": _NGX,
}

# Libraries that the driver's installer gives a link without a version ("libcuda.so").
DEVELOPMENT_LINKS = frozenset(
    {
        "libcuda",
        "libnvcuvid",
        "libnvidia-allocator",
        "libnvidia-cfg",
        "libnvidia-encode",
        "libnvidia-fbc",
        "libnvidia-ml",
        "libnvidia-nvvm",
        "libnvidia-opticalflow",
        "libnvidia-ptxjitcompiler",
        "libvdpau_nvidia",
    }
)

# Link -> the soname that it leads to: programs ask for the libraries by these names too.
EXTRA_LINKS: dict[str, str] = {
    "libGLX_indirect.so.0": "libGLX_nvidia.so.0",
    "libnvidia-nvvm70.so.4": "libnvidia-nvvm.so.4",
}

# Debian and Ubuntu, Fedora and RHEL, SUSE and Arch, each with what it has for 32 bits.
_BASES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/i386-linux-gnu",
    "usr/lib/arm-linux-gnueabihf",
    "usr/lib64",
    "usr/lib",
    "usr/lib32",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib/i386-linux-gnu",
    "lib64",
    "lib",
    "lib32",
    "usr/local/lib64",
    "usr/local/lib",
)
LIBRARY_DIRECTORIES = tuple(
    base + below for base in _BASES for below in ("", "/nvidia/current", "/nvidia")
)
BINARY_DIRECTORIES = (
    "usr/bin",
    "usr/sbin",
    "bin",
    "sbin",
    "usr/local/bin",
    "usr/lib/nvidia/current",
    "opt/bin",
)

_SHARE = ("usr/share", "usr/local/share", "etc")

# Libraries for Windows programs under Wine and Proton, which look for them beneath the directory
# that libGLX_nvidia.so.0 was loaded from.
WINE_DIRECTORY = "nvidia/wine"
WINE_LIBRARIES = ("_nvngx.dll", "nvngx.dll", "nvngx_dlssg.dll")
WINE_CAPABILITIES = _NGX

# directories, file names, directories in the container, capabilities
ExtraFiles = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]

_EXTRA_FILES: tuple[ExtraFiles, ...] = (
    (("etc/OpenCL/vendors",), ("nvidia.icd",), ("/etc/OpenCL/vendors",), _COMPUTE),
    (
        tuple(share + "/vulkan/icd.d" for share in _SHARE),
        ("nvidia_icd.json", "nvidia_icd.x86_64.json", "nvidia_icd.aarch64.json"),
        ("/etc/vulkan/icd.d",),
        _GRAPHICS,
    ),
    (
        tuple(share + "/vulkan/implicit_layer.d" for share in _SHARE),
        ("nvidia_layers.json",),
        ("/etc/vulkan/implicit_layer.d",),
        _GRAPHICS,
    ),
    (
        tuple(share + "/vulkansc/icd.d" for share in _SHARE),
        ("nvidia_icd_vksc.json", "nvidia_icd.x86_64.json", "nvidia_icd.aarch64.json"),
        ("/etc/vulkansc/icd.d",),
        _GRAPHICS,
    ),
    (
        tuple(share + "/glvnd/egl_vendor.d" for share in _SHARE),
        ("10_nvidia.json",),
        ("/usr/share/glvnd/egl_vendor.d",),
        _GRAPHICS,
    ),
    (
        tuple(share + "/egl/egl_external_platform.d" for share in _SHARE),
        (
            "09_nvidia_wayland2.json",
            "10_nvidia_wayland.json",
            "15_nvidia_gbm.json",
            "20_nvidia_xcb.json",
            "20_nvidia_xlib.json",
        ),
        ("/usr/share/egl/egl_external_platform.d",),
        _GRAPHICS,
    ),
    (
        # Debian has it beside the library, with a link that its alternatives make.
        (
            *("usr/share/nvidia", "usr/lib/nvidia/current", "usr/local/share/nvidia"),
            *(base + "/nvidia/current" for base in _BASES),
        ),
        ("nvoptix.bin",),
        ("/usr/share/nvidia",),
        _GRAPHICS,
    ),
    (
        ("usr/share/X11/xorg.conf.d", "etc/X11/xorg.conf.d", "etc/nvidia/current"),
        ("10-nvidia.conf", "nvidia-drm-outputclass.conf"),
        ("/usr/share/X11/xorg.conf.d",),
        _DISPLAY,
    ),
)

# Where Xorg looks for modules: on Debian, Ubuntu and Arch, and on Fedora, RHEL and SUSE.
XORG_IN_CONTAINER = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules")
XORG_DIRECTORIES = tuple(
    base + below
    for base in _BASES
    for below in (
        "/xorg/modules/drivers",
        "/xorg/modules/extensions",
        "/xorg/modules",
        "/nvidia/xorg",
        "/nvidia/current",
        "/nvidia",
    )
)

# Where libgbm looks for back ends is fixed when it is built, and no place is common to all: the
# multiarch one of Debian and Ubuntu, that of Fedora, RHEL and SUSE, and Arch's.
GBM_BACK_END = "nvidia-drm_gbm.so"
GBM_LIBRARY = "libnvidia-allocator"
GBM_IN_CONTAINER = {
    "x86_64": ("/usr/lib/x86_64-linux-gnu/gbm", "/usr/lib64/gbm", "/usr/lib/gbm"),
    "aarch64": ("/usr/lib/aarch64-linux-gnu/gbm", "/usr/lib64/gbm", "/usr/lib/gbm"),
}

FIRMWARE_DIRECTORIES = (
    "lib/firmware/updates",
    "usr/lib/firmware/updates",
    "lib/firmware",
    "usr/lib/firmware",
)
FIRMWARE_CAPABILITIES = _GRAPHICS
GBM_CAPABILITIES = _GRAPHICS


def capabilities_of(stem: str) -> tuple[str, ...]:
    """The capabilities any of which call for the library `stem` (its name up to ".so")."""
    return LIBRARIES.get(stem, ANY)


def extra_files(version: str) -> tuple[ExtraFiles, ...]:
    """What has a fixed path in the container, for a driver of this version."""
    profiles = (
        f"nvidia-application-profiles-{version}-rc",
        f"nvidia-application-profiles-{version}-key-documentation",
    )
    share = ("usr/share/nvidia", "usr/local/share/nvidia")
    modules = tuple(place + "/drivers" for place in XORG_IN_CONTAINER)
    extensions = tuple(place + "/extensions" for place in XORG_IN_CONTAINER)
    return (
        *_EXTRA_FILES,
        (share, profiles, ("/usr/share/nvidia",), _GRAPHICS),
        (XORG_DIRECTORIES, ("nvidia_drv.so",), modules, _DISPLAY),
        (XORG_DIRECTORIES, ("libglxserver_nvidia.so",), extensions, _DISPLAY),
    )
