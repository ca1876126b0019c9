"""What NVIDIA's kernel modules show under /proc, and /proc/devices.

Formats are those of nv-procfs.c and nv-caps.c in NVIDIA's open-gpu-kernel-modules (kernel-open)
and of the driver's README ("The /proc File System Entries").
"""

from __future__ import annotations

import re

from . import mig
from .description import UNKNOWN_UUID, Description, Gpu
from .tree import Folder, Tree, text

BASE_CHARACTER = (
    (1, "mem"), (4, "/dev/vc/0"), (4, "tty"), (4, "ttyS"), (5, "/dev/tty"), (5, "/dev/console"),
    (5, "/dev/ptmx"), (7, "vcs"), (10, "misc"), (13, "input"), (21, "sg"), (29, "fb"),
    (128, "ptm"), (136, "pts"), (180, "usb"), (189, "usb_device"), (226, "drm"), (239, "hidraw"),
    (254, "rtc"),
)  # fmt: skip
BASE_BLOCK = (
    (7, "loop"),
    (8, "sd"),
    (9, "md"),
    (11, "sr"),
    (253, "device-mapper"),
    (259, "blkext"),
)
NVIDIA_MAJOR = 195


def major_version(driver: str) -> int:
    """550 of 550.163.01."""
    return int(driver.partition(".")[0])


def kernel_driver(description: Description) -> str:
    """The version of the loaded kernel module."""
    return description.kernel_driver or description.driver


def chardevs(description: Description) -> dict[str, list[tuple[int, str]]]:
    """The lines that each module adds to /proc/devices. 550 gave up the name nvidia-frontend."""
    old = major_version(kernel_driver(description)) < 550
    main = [(NVIDIA_MAJOR, "nvidia-frontend")] if old else [
        (NVIDIA_MAJOR, "nvidia"), (NVIDIA_MAJOR, "nvidiactl"),
    ]  # fmt: skip
    main.append((description.caps_major, "nvidia-caps"))
    main.append((description.nvswitch_major, "nvidia-nvswitch"))
    main.append((description.nvswitch_major - 2, "nvidia-nvlink"))
    main.append((description.nvswitch_major - 3, "nvidia-caps-imex-channels"))
    return {
        "nvidia": main,
        "nvidia_uvm": [(description.uvm_major, "nvidia-uvm")],
        "nvidia_modeset": [] if old else [(NVIDIA_MAJOR, "nvidia-modeset")],
        "nvidia_drm": [],
    }


def devices_text(lines: list[tuple[int, str]]) -> str:
    """/proc/devices with these character devices."""
    character = "".join(f"{major:3d} {name}\n" for major, name in sorted(lines, key=lambda x: x[0]))
    block = "".join(f"{major:3d} {name}\n" for major, name in BASE_BLOCK)
    return f"Character devices:\n{character}\nBlock devices:\n{block}"


def version_text(description: Description) -> str:
    """/proc/driver/nvidia/version."""
    version = kernel_driver(description)
    name = (
        f"NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (fakehost@fakehost)"
        if description.open_module
        else f"NVIDIA UNIX x86_64 Kernel Module  {version}"
    )
    return (
        f"NVRM version: {name}  Tue Apr  8 12:41:17 UTC 2025\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) \n"
    )


def params_text(description: Description) -> str:
    """/proc/driver/nvidia/params, with NVIDIA's defaults for all but the device files."""
    numbers = {
        "ResmanDebugLevel": 4294967295, "RmLogonRC": 1,
        "ModifyDeviceFiles": description.modify_device_files,
        "DeviceFileUID": 0, "DeviceFileGID": description.device_gid,
        "DeviceFileMode": description.device_mode,
        "InitializeSystemMemoryAllocations": 1, "UsePageAttributeTable": 4294967295,
        "EnableMSI": 1, "EnablePCIeGen3": 0, "MemoryPoolSize": 0, "KMallocHeapMaxSize": 0,
        "VMallocHeapMaxSize": 0, "IgnoreMMIOCheck": 0, "EnableStreamMemOPs": 0,
        "EnableUserNUMAManagement": 1, "NvLinkDisable": 0, "RmProfilingAdminOnly": 1,
        "PreserveVideoMemoryAllocations": 0, "EnableS0ixPowerManagement": 0,
        "S0ixPowerManagementVideoMemoryThreshold": 256, "DynamicPowerManagement": 3,
        "DynamicPowerManagementVideoMemoryThreshold": 200, "RegisterPCIDriver": 1,
        "EnablePCIERelaxedOrderingMode": 0, "EnableResizableBar": 0, "EnableGpuFirmware": 18,
        "EnableGpuFirmwareLogs": 2, "RmNvlinkBandwidthLinkCount": 0, "EnableDbgBreakpoint": 0,
        "OpenRmEnableUnsupportedGpus": 1, "DmaRemapPeerMmio": 1, "ImexChannelCount": 2048,
        "CreateImexChannel0": 0, "GrdmaPciTopoCheckOverride": 0,
    }  # fmt: skip
    texts = ("RegistryDwords", "RegistryDwordsPerDevice", "RmMsg", "GpuBlacklist",
             "TemporaryFilePath", "ExcludedGpus")  # fmt: skip
    lines = [f"{key}: {value}" for key, value in numbers.items()]
    return "\n".join([*lines, *(f'{key}: ""' for key in texts)]) + "\n"


def information_text(description: Description, gpu: Gpu, known: bool) -> str:
    """gpus/<bus id>/information; a UUID not known yet has question marks in it."""
    firmware = kernel_driver(description) if gpu.model.capability >= (7, 5) else "N/A"
    return (
        f"Model: \t\t {gpu.model.name}\n"
        f"IRQ:   \t\t {64 + gpu.index}\n"
        f"GPU UUID: \t {gpu.uuid if known else UNKNOWN_UUID}\n"
        f"Video BIOS: \t {gpu.model.vbios if known else '??.??.??.??.??'}\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 47 bits\n"
        "DMA Mask: \t 0x7fffffffffff\n"
        f"Bus Location: \t {gpu.bus}\n"
        f"Device Minor: \t {gpu.minor}\n"
        f"GPU Firmware: \t {firmware}\n"
        "GPU Excluded:\t No\n"
    )


def _capability(minor: int, mode: int = 0o444) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"


def _capabilities(gpus: list[Gpu]) -> Tree:
    """Capability files: mig/{config,monitor}, and two for each instance that is there."""
    tree: Tree = {
        "mig/config": text(_capability(mig.CONFIG_MINOR, 0o400), 0o400),
        "mig/monitor": text(_capability(mig.MONITOR_MINOR)),
        "fabric-imex-mgmt": text(_capability(4323, 0o400), 0o400),
    }
    for gpu in gpus:
        if not gpu.model.mig_gb:
            continue
        tree[f"gpu{gpu.minor}/mig"] = Folder()
        for device in gpu.mig:
            gi = f"gpu{gpu.minor}/mig/gi{device.gi}"
            tree[f"{gi}/access"] = text(_capability(device.gi_minor))
            tree[f"{gi}/ci{device.ci}/access"] = text(_capability(device.ci_minor))
    return tree


_NUMA = "Node: -1\nStatus: disabled\n"
_POWER = (
    "Runtime D3 status:          Disabled by default\n"
    "Video Memory:               Active\n\n"
    "GPU Hardware Support:\n Video Memory Self Refresh: Not Supported\n"
    " Video Memory Off:          Not Supported\n"
)


def driver_tree(description: Description, gpus: list[Gpu]) -> Tree:
    """All that the module nvidia itself shows, under proc/."""
    registry = text('Binary: ""\n')
    tree: Tree = {
        "driver/nvidia/version": text(version_text(description)),
        "driver/nvidia/params": text(params_text(description)),
        "driver/nvidia/registry": registry,
        "driver/nvidia/suspend": text("suspend hibernate resume\n"),
        "driver/nvidia/suspend_depth": text("default modeset uvm\n"),
        "driver/nvidia/warnings/README": text("Warnings of the driver would be here.\n"),
        "driver/nvidia/patches/README": text("Descriptions of patches would be here.\n"),
        "driver/nvidia-caps/mig-minors": text(mig.minors_text()),
        "driver/nvidia-caps/nvlink-minors": text("fabric-mgmt 0\n"),
        "driver/nvidia-caps/sys-minors": text("fabric-imex-mgmt 4323\n"),
        "driver/nvidia-nvlink/capabilities/fabric-mgmt": text(_capability(0, 0o400), 0o400),
        "driver/nvidia/gpus": Folder(),
    }
    if description.nvswitches:
        tree["driver/nvidia-nvswitch/permissions"] = text(
            "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\nDeviceFileModify: 1\n"
        )
    for gpu in gpus:
        place = f"driver/nvidia/gpus/{gpu.bus}"
        tree[f"{place}/information"] = text(
            information_text(description, gpu, known=not gpu.lazy_uuid)
        )
        tree[f"{place}/registry"] = registry
        tree[f"{place}/numa_status"] = text(_NUMA)
        tree[f"{place}/power"] = text(_POWER)
    for path, entry in _capabilities(gpus).items():
        tree[f"driver/nvidia/capabilities/{path}"] = entry
    return tree


def numeric(driver: str) -> tuple[int, ...]:
    """A driver version in a form that can be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", driver))
