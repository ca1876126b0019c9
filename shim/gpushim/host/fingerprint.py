"""Whether the machine is still the one that a snapshot was taken of.

Taken by refresh, compared by every create that asks for a GPU, which costs one stat for each file
and one read for each GPU. What is compared: regular files by inode, size and time of change;
directories that were searched by inode and time; files of /proc by content and directories there
by their listing, since times and inodes mean nothing in it. No time here tells a changed boot:
its id does.
"""

from __future__ import annotations

import posix

from .. import __version__
from . import procfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# The kernel's own, whatever the configured proc root is: state in /run must not outlive the boot.
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

# The lines of a GPU's information that identify it. The others (interrupt, firmware, video BIOS)
# change with every first and last use of a GPU that no persistence daemon keeps awake.
_IDENTITY = ("Model", "GPU UUID", "Bus Location", "Device Minor", "GPU Excluded")


def take(proc_root: str, files: Iterable[str], directories: Iterable[str]) -> dict[str, Any]:
    """The present fingerprint, as plain data that JSON can hold.

    files: absolute paths of regular files, of which those that are absent count as well;
    directories: absolute paths of those that were searched.
    """
    return {
        "version": __version__,
        "proc": proc_root,
        "texts": {path: procfiles.text(path) for path in _texts(proc_root)},
        "gpus": _gpus(proc_root),
        "mig": mig_instances(proc_root),
        "files": {path: file_stamp(path) for path in files},
        "directories": {path: _directory(path) for path in directories},
    }


def holds(fingerprint: dict[str, Any]) -> bool:
    """Whether everything is as it was when the fingerprint was taken.

    Raises KeyError, TypeError or the like for what `take` did not make.
    """
    proc_root = fingerprint["proc"]
    if fingerprint["version"] != __version__:
        return False
    stat = posix.stat
    for path, fact in fingerprint["files"].items():
        try:
            found = stat(path)
        except OSError:
            if fact is not None:
                return False
            continue
        if fact != [found.st_ino, found.st_size, found.st_mtime_ns]:
            return False
    for path, fact in fingerprint["directories"].items():
        if _directory(path) != fact:
            return False
    for path, text in fingerprint["texts"].items():
        if procfiles.text(path) != text:
            return False
    return bool(
        fingerprint["gpus"] == _gpus(proc_root) and fingerprint["mig"] == mig_instances(proc_root)
    )


def boot_id() -> str:
    """What tells this boot from others."""
    return procfiles.text(_BOOT_ID) or ""


def _texts(proc_root: str) -> tuple[str, ...]:
    return (
        _BOOT_ID,
        proc_root + "/driver/nvidia/version",
        proc_root + "/driver/nvidia/params",
    )


def file_stamp(path: str) -> list[int] | None:
    """What tells a regular file from a changed one: inode, size, time; None if it is absent."""
    try:
        found = posix.stat(path)
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _directory(path: str) -> list[int] | None:
    try:
        found = posix.stat(path)
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns]


def _gpus(proc_root: str) -> dict[str, str | None]:
    """Directory of each GPU the driver lists -> what identifies it there."""
    where = proc_root + "/driver/nvidia/gpus"
    found: dict[str, str | None] = {}
    for name in procfiles.names(where):
        text = procfiles.text(f"{where}/{name}/information")
        found[name] = None if text is None else identity(text)
    return found


def identity(information: str) -> str:
    """The lines that identify a GPU, of its information file."""
    return "\n".join([line for line in information.split("\n") if line.startswith(_IDENTITY)])


def mig_instances(proc_root: str) -> list[str]:
    """Every GPU instance and compute instance there is: "gpu0/gi1", "gpu0/gi1/ci0".

    The driver lists them as gpu<minor>/mig/gi<n>/ci<n> beneath capabilities (NVIDIA's MIG user
    guide, "Device nodes and capabilities"). What this can't show is MIG mode itself while there
    are no instances, and one that was made anew under the same numbers with another profile.
    """
    where = proc_root + "/driver/nvidia/capabilities"
    found = []
    for gpu in procfiles.names(where):
        if not gpu.startswith("gpu"):
            continue
        for instance in procfiles.names(f"{where}/{gpu}/mig"):
            if not instance.startswith("gi"):
                continue
            found.append(f"{gpu}/{instance}")
            for compute in procfiles.names(f"{where}/{gpu}/mig/{instance}"):
                if compute.startswith("ci"):
                    found.append(f"{gpu}/{instance}/{compute}")
    return found
