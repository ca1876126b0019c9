"""NVIDIA's kernel module: its version, its parameters, and loading it where it is not loaded."""

from __future__ import annotations

import os
import re
import time

from ..config import Config
from ..errors import GpushimError
from . import gpus, helpers, procfiles

# "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr ..." or
# "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build  (...)":
# pNVRM_ID of nv_procfs_read_version in NVIDIA's kernel-open/nvidia/nv-procfs.c.
_VERSION = re.compile(r"^NVRM version:.*?Kernel Module.*?\s(\d+(?:\.\d+)+)(?:\s|$)", re.MULTILINE)
_POLL_SECONDS = 0.1


class Params:
    """What /proc/driver/nvidia/params says of device nodes.

    text: the whole file, "" if there is none; modify_device_files: whether programs may make and
    change nodes; uid, gid, mode: what a node of the driver is to have. What the file does not say
    has the driver's default.
    """

    __slots__ = ("gid", "mode", "modify_device_files", "text", "uid")

    def __init__(self, text: str) -> None:
        values: dict[str, int] = {}
        for line in text.split("\n"):
            name, _, value = line.partition(":")
            if re.fullmatch(r" *[0-9]{1,10} *", value):
                values[name.strip()] = int(value)
        self.text = text
        self.modify_device_files = values.get("ModifyDeviceFiles", 1) != 0
        self.uid = values.get("DeviceFileUID", 0)
        self.gid = values.get("DeviceFileGID", 0)
        self.mode = values.get("DeviceFileMode", 0o666) & 0o777

    def without_modification(self) -> str:
        """The file with ModifyDeviceFiles: 0, for a container whose nodes are all made for it."""
        kept = [
            line
            for line in self.text.splitlines()
            if line.partition(":")[0].strip() != "ModifyDeviceFiles"
        ]
        return "\n".join(["ModifyDeviceFiles: 0", *kept]) + "\n"


def params(proc_root: str) -> Params:
    return Params(procfiles.text(proc_root + "/driver/nvidia/params") or "")


def version(proc_root: str) -> str:
    """The version of the loaded kernel module ("550.163.01"); "" if none is loaded.

    Raises GpushimError if the module gives a text with no version in it.
    """
    path = proc_root + "/driver/nvidia/version"
    text = procfiles.text(path)
    if text is None:
        return ""
    match = _VERSION.search(text)
    if not match:
        raise GpushimError(f"{path} holds no version of NVIDIA's kernel module.")
    return match.group(1)


def refuse_other_platforms(config: Config) -> None:
    """Raise GpushimError on WSL2 and Jetson, whose GPUs are reached in other ways."""
    proc = config.text("host.proc-root")
    root = config.text("host.driver-root").rstrip("/")
    if procfiles.names(gpus.directory(proc)):
        return
    if os.path.exists(root + "/etc/nv_tegra_release"):
        raise GpushimError(
            "This is a Jetson board (it has /etc/nv_tegra_release), whose GPU gpushim can't give "
            "to containers."
        )
    dxg = config.text("host.dev-root") + "/dxg"
    if os.path.exists(dxg) and not os.path.exists(proc + "/driver/nvidia"):
        raise GpushimError(
            f"This is WSL2 (it has {dxg} and no NVIDIA kernel module), whose GPUs gpushim can't "
            "give to containers."
        )


def ensure_loaded(config: Config) -> str:
    """The version of the kernel module, which is loaded first if it can be.

    Waits for it no longer than `host.driver-wait`. Raises GpushimError if it is still not there.
    """
    proc = config.text("host.proc-root")
    found = version(proc)
    if found:
        return found
    if gpus.nvidia_devices(config.text("host.sys-root")) == []:
        raise GpushimError("This machine has no NVIDIA GPU: none is on its PCI bus.")
    if not config.flag("host.load-driver"):
        raise GpushimError(
            "The NVIDIA driver is not loaded, and gpushim may not load it.",
            "Load it (modprobe nvidia), or set load-driver = true in the section [host].",
        )
    wait = config.seconds("host.driver-wait")
    deadline = time.monotonic() + wait
    problem = _load(config, deadline)
    while not (found := version(proc)):
        if time.monotonic() >= deadline:
            raise GpushimError(
                f"The NVIDIA driver is not loaded, and did not come up within {wait:g} seconds"
                f"{': ' + problem if problem else ''}.",
                "See `dmesg`, and whether the driver is installed for the running kernel.",
            )
        time.sleep(_POLL_SECONDS)
    return found


def _load(config: Config, deadline: float) -> str:
    """Try each way of loading the module; a clause on what went wrong, "" if nothing did."""
    directories = config.texts("host.helpers")
    problems = []
    for name, arguments in (("modprobe", ["nvidia"]), ("nvidia-modprobe", [])):
        program = helpers.find(directories, name)
        left = deadline - time.monotonic()
        if not program or left <= 0:
            continue
        problem = helpers.run([program, *arguments], left)
        if version(config.text("host.proc-root")):
            return ""
        problems.append(problem)
    if not problems:
        return f"neither modprobe nor nvidia-modprobe is in {', '.join(directories)}"
    return "; ".join(problem for problem in problems if problem)
