"""The machine's GPUs, as NVIDIA's kernel module and sysfs tell of them.

/proc/driver/nvidia/gpus/<bus id>/information is written by nv_procfs_read_gpu_info in NVIDIA's
kernel-open/nvidia/nv-procfs.c: lines of "Label: \\t value".
"""

from __future__ import annotations

import os
import re

from ..errors import harmless
from . import procfiles
from .model import HEALTHY, Gpu
from .pcitree import numa_node

_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UUID_UNKNOWN = "the driver does not know its UUID yet"


def directory(proc_root: str) -> str:
    """Where the driver lists the GPUs, each as a directory that is named by its bus id."""
    return proc_root + "/driver/nvidia/gpus"


def read(proc_root: str, sys_root: str) -> list[Gpu]:
    """All GPUs in the order of their bus ids, with what is wrong with each as its health.

    GPUs that the driver was told to exclude are left out, as NVML leaves them out of its count.
    One without a known minor has -1 there. Nothing is raised for a GPU that is broken.
    """
    where = directory(proc_root)
    ids = [name for name in procfiles.names(where) if _BUS_ID.fullmatch(name.lower())]
    found: list[Gpu] = []
    for name in sorted(ids, key=bus_order):
        fields = information(procfiles.text(f"{where}/{name}/information"))
        if fields.get("GPU Excluded", "").lower() != "yes":
            found.append(_gpu(len(found), name.lower(), fields, sys_root))
    return _with_doubles_marked(found)


def bus_order(bus_id: str) -> tuple[int, int, int, int]:
    """Domain, bus, device and function as numbers: NVML and nvidia-smi count in this order."""
    match = _BUS_ID.fullmatch(bus_id.lower())
    assert match, bus_id
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return domain, bus, device, function


def information(text: str | None) -> dict[str, str]:
    """Label -> value of an information file; empty if there was nothing to read."""
    fields: dict[str, str] = {}
    for line in (text or "").split("\n"):
        label, colon, value = line.partition(":")
        if colon:
            fields.setdefault(label.strip(), value.strip())
    return fields


def valid_uuid(text: str) -> bool:
    """Whether this is a UUID that can be kept and matched. One with `?` in it never is."""
    return bool(_UUID.fullmatch(text))


def _gpu(index: int, bus_id: str, fields: dict[str, str], sys_root: str) -> Gpu:
    uuid = fields.get("GPU UUID", "").lower().replace("gpu-", "GPU-", 1)
    minor = fields.get("Device Minor", "")
    wrong = []
    if not fields:
        wrong.append("the driver's information on it can't be read")
    else:
        if "?" in uuid:
            wrong.append(UUID_UNKNOWN)
        elif not valid_uuid(uuid):
            wrong.append("the driver's information on it has no valid UUID")
        if not _is_minor(minor):
            wrong.append("the driver's information on it has no valid minor number")
    return Gpu(
        index=index,
        uuid=uuid if valid_uuid(uuid) else "",
        minor=int(minor) if _is_minor(minor) else -1,
        bus_id=bus_id,
        model=harmless(fields.get("Model", "").encode("utf-8", "replace").decode())[:100],
        numa_node=numa_node(sys_root, bus_id),
        health="; ".join(wrong) or HEALTHY,
    )


def _is_minor(text: str) -> bool:
    # Linux has 20 bits for a minor number; 254 and 255 are nvidia-modeset and nvidiactl.
    return text.isascii() and text.isdecimal() and len(text) < 8 and int(text) not in (254, 255)


def _with_doubles_marked(found: list[Gpu]) -> list[Gpu]:
    """Two GPUs that claim the same UUID or minor can't be told apart: neither is granted."""
    for gpu in found:
        for other in found:
            if other is gpu or gpu.health != HEALTHY:
                continue
            if (gpu.uuid and gpu.uuid == other.uuid) or (gpu.minor == other.minor != -1):
                words = "it has the same UUID or minor number as"
                gpu.health = f"{words} {other.bus_id}"
                if other.health == HEALTHY:
                    other.health = f"{words} {gpu.bus_id}"
    return found


def nvidia_devices(sys_root: str) -> list[str] | None:
    """Bus ids of NVIDIA's display controllers on the PCI bus; None where sysfs does not tell.

    Vendor 0x10de and class 0x03xxxx: they are there without any driver.
    """
    devices = sys_root + "/bus/pci/devices"
    if not os.path.isdir(devices):
        return None
    found = []
    for bus_id in procfiles.names(devices):
        vendor = (procfiles.text(f"{devices}/{bus_id}/vendor") or "").strip()
        kind = (procfiles.text(f"{devices}/{bus_id}/class") or "").strip()
        if vendor == "0x10de" and kind.startswith("0x03"):
            found.append(bus_id)
    return found
