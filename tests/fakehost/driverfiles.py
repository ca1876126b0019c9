"""The driver's files that are no libraries: programs, firmware, and files that loaders read."""

from __future__ import annotations

from pathlib import Path

from . import compiler, libraries
from .description import Description
from .tree import File, Folder, Link, Socket, Tree, text

_SCRIPTS = Path(__file__).parent / "sh"
_TOOLS = ("nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control",
          "nvidia-cuda-mps-server", "nvidia-xconfig", "nvidia-settings", "nvidia-ngx-updater",
          "nvidia-powerd", "nvidia-sleep.sh")  # fmt: skip


def _program(data: bytes) -> File:
    return File(data, 0o755)


def program_tree(description: Description) -> Tree:
    """/usr/bin and /usr/sbin. modprobe and nvidia-modprobe act on the root that they lie in."""
    tree: Tree = {
        f"usr/bin/{name}": _program(compiler.stub("tool", "", f"{name} {description.driver}"))
        for name in _TOOLS
    }
    if description.nvswitches:
        tree["usr/bin/nv-fabricmanager"] = _program(compiler.stub("tool", "", "nv-fabricmanager"))
        for name in ("nvidia-imex", "nvidia-imex-ctl"):
            tree[f"usr/bin/{name}"] = _program(compiler.stub("tool", "", name))
    tree["usr/bin/nvidia-smi"] = _program(compiler.template("smi"))
    tree["usr/bin/nvidia-modprobe"] = _program((_SCRIPTS / "nvidia-modprobe").read_bytes())
    tree["usr/sbin/modprobe"] = _program((_SCRIPTS / "modprobe").read_bytes())
    return tree


def _manifests(description: Description) -> Tree:
    """Vulkan's: Fedora and RHEL have the machine in the name and the library's path in the text."""
    own = description.layout in ("fedora", "rhel")
    directory = f"/{libraries.LAYOUTS[description.layout][0]}/" if own else ""
    suffix = ".x86_64" if own else ""
    return {
        f"usr/share/vulkan/icd.d/nvidia_icd{suffix}.json": _icd(f"{directory}libGLX_nvidia.so.0"),
        f"usr/share/vulkansc/icd.d/nvidia_icd{suffix or '_vksc'}.json": _icd(
            f"{directory}libnvidia-vksc-core.so.1"
        ),
    }


def _icd(library: str, kind: str = "ICD", version: str = "1.3.277") -> File:
    return text(
        f'{{\n    "file_format_version" : "1.0.0",\n    "{kind}": {{\n'
        f'        "library_path": "{library}",\n        "api_version" : "{version}"\n    }}\n}}\n'
    )


def data_tree(description: Description) -> Tree:
    """Firmware and the files by which loaders find the driver."""
    driver = description.driver
    tree: Tree = {
        f"usr/lib/firmware/nvidia/{driver}/gsp_ga10x.bin": text(f"firmware ga10x {driver}\n"),
        f"usr/lib/firmware/nvidia/{driver}/gsp_tu10x.bin": text(f"firmware tu10x {driver}\n"),
        "etc/OpenCL/vendors/nvidia.icd": text("libnvidia-opencl.so.1\n"),
        f"usr/share/nvidia/nvidia-application-profiles-{driver}-key-documentation": text("keys\n"),
    }
    if not description.graphics:
        return tree
    tree |= _manifests(description)
    tree |= {
        "usr/share/vulkan/implicit_layer.d/nvidia_layers.json": _icd("libGLX_nvidia.so.0", "layer"),
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json": _icd("libEGL_nvidia.so.0"),
        "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json": _icd(
            "libnvidia-egl-wayland.so.1"
        ),
        "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json": _icd("libnvidia-egl-gbm.so.1"),
        "usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json": _icd("libnvidia-egl-xcb.so.1"),
        "usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json": _icd(
            "libnvidia-egl-xlib.so.1"
        ),
        f"usr/share/nvidia/nvidia-application-profiles-{driver}-rc": text("profiles\n"),
        "usr/share/nvidia/nvoptix.bin": text(f"optix {driver}\n"),
        "usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf": text('Section "OutputClass"\n'),
    }
    return tree


def userspace_tree(description: Description, state: str) -> Tree:
    """All files of the driver's packages."""
    tree = libraries.library_tree(
        description.layout,
        description.driver,
        state,
        lib32=description.lib32,
        graphics=description.graphics,
    )
    tree |= program_tree(description)
    tree |= data_tree(description)
    if description.graphics:
        for name in ("_nvngx.dll", "nvngx.dll"):
            tree[f"{libraries.LAYOUTS[description.layout][0]}/nvidia/wine/{name}"] = text(
                f"{name} {description.driver}\n"
            )
    tree["var/lib/fakehost/libdir"] = text(libraries.LAYOUTS[description.layout][0])
    return tree


def distribution_tree(description: Description) -> Tree:
    """What is there without a driver: the loader's configuration and other packages' libraries."""
    names = {"debian": "Debian GNU/Linux 12 (bookworm)", "ubuntu": "Ubuntu 24.04.2 LTS",
             "fedora": "Fedora Linux 41", "rhel": "Red Hat Enterprise Linux 9.5",
             "suse": "openSUSE Leap 15.6", "arch": "Arch Linux"}  # fmt: skip
    wide, narrow = libraries.LAYOUTS[description.layout]
    tree = libraries.unrelated_tree(description.layout)
    tree |= {
        "etc/os-release": text(
            f'ID={description.layout}\nPRETTY_NAME="{names[description.layout]}"\n'
        ),
        "etc/ld.so.conf": text("include /etc/ld.so.conf.d/*.conf\n"),
        "etc/ld.so.conf.d/fakehost.conf": text(f"/{wide}\n/{narrow}\n"),
        "lib": Link("usr/lib"),
        "bin": Link("usr/bin"),
        "sbin": Link("usr/sbin"),
        narrow: Folder(),
        "tmp": Folder(0o1777),
        "run/nvidia-persistenced/socket": Socket(),
    }
    if description.nvswitches:
        tree["run/nvidia-fabricmanager/socket"] = Socket()
    if wide == "usr/lib64":
        tree["lib64"] = Link("usr/lib64")
    return tree
