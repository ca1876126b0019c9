"""Removing driver trees that nothing uses any more, and what a killed assembly has left."""

from __future__ import annotations

import fcntl
import os
import shutil
import time

from gpushim.oci.rootkind import escape
from gpushim.places import Places

# What the name of a tree that is not finished begins with.
TEMPORARY = ".assembling-"

_YOUNGEST = 3600.0  # seconds: a create may have chosen a tree and not mounted it yet
_UNLOCKED = 60.0  # seconds: an assembly locks its directory soon after it made it


def remove_leftovers(parent: str) -> None:
    """Remove what processes that were killed while they assembled a tree have left in `parent`.

    One that still assembles holds a lock on its directory.
    """
    for name in _names(parent):
        if not name.startswith(TEMPORARY):
            continue
        path = f"{parent}/{name}"
        try:
            if time.time() - os.stat(path).st_ctime < _UNLOCKED:
                continue
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(fd)


def collect(
    places: Places, keep: set[str], proc_root: str = "/proc", now: float | None = None
) -> list[str]:
    """Remove trees that nothing uses; returns the paths of those removed.

    Kept are those in `keep`, those younger than an hour, and those of which a mount of any
    process shows anything. If a process's mounts can't be read, nothing is removed. now: seconds
    of the epoch, by default the present time.
    """
    old = _old_trees(places, keep, time.time() if now is None else now)
    mounts = mountinfos(proc_root) if old else None
    if mounts is None:
        return []
    removed = [path for path in old if not any(_shows(text, path) for text in mounts)]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    for version in _names(places.driver_trees):
        try:
            os.rmdir(f"{places.driver_trees}/{version}")
        except OSError:
            pass  # it still has trees
    return removed


def collect_loader_caches(
    places: Places, proc_root: str = "/proc", now: float | None = None
) -> list[str]:
    """Remove merged loader caches that no mount shows; as `collect` does with trees.

    A create that takes one that is there renews its time.
    """
    moment = time.time() if now is None else now
    old = []
    for name in _names(places.loader_caches):
        path = f"{places.loader_caches}/{name}"
        if moment - os.stat(path).st_mtime > _YOUNGEST:
            old.append(path)
    mounts = mountinfos(proc_root) if old else None
    if mounts is None:
        return []
    removed = [path for path in old if not any(_shows(text, path) for text in mounts)]
    for path in removed:
        os.unlink(path)
    return removed


def _old_trees(places: Places, keep: set[str], now: float) -> list[str]:
    found = []
    for version in _names(places.driver_trees):
        parent = f"{places.driver_trees}/{version}"
        remove_leftovers(parent)
        for name in _names(parent):
            path = f"{parent}/{name}"
            try:
                age = now - os.stat(path).st_ctime
            except OSError:
                continue
            if not name.startswith(TEMPORARY) and path not in keep and age > _YOUNGEST:
                found.append(path)
    return found


def _shows(mountinfo: bytes, path: str) -> bool:
    """Whether a mount has `path`, or something in it, as its root.

    The root (fourth field, proc_pid_mountinfo(5)) counts from the top of its file system, and
    goes on with "//deleted" if it was removed, so only the last part of the path is compared,
    which holds a digest.
    """
    wanted = escape("/" + path.rpartition("/")[2])
    if wanted not in mountinfo:
        return False
    return any(
        (line.split(b" ")[3] + b"/").partition(wanted)[2][:1] == b"/"
        for line in mountinfo.splitlines()
        if line.count(b" ") > 3
    )


def mountinfos(proc_root: str) -> list[bytes] | None:
    """The mounts of every mount namespace that a process is in; None if any can't be read."""
    found: dict[object, bytes] = {}
    for name in _names(proc_root):
        if not name.isdigit():
            continue
        namespace: object = name
        try:
            namespace = os.stat(f"{proc_root}/{name}/ns/mnt").st_ino
        except OSError:
            pass  # not ours to see, though its mounts may be
        if namespace in found:
            continue
        try:
            with open(f"{proc_root}/{name}/mountinfo", "rb") as file:
                found[namespace] = file.read()
        except PermissionError:
            return None
        except OSError:
            pass  # it has ended, or is a zombie and has no mounts any more
    return list(found.values()) or None


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
