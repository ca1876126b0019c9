"""Whose a container's root file system is: its own, the host's, or one that others may share."""

from __future__ import annotations

import posix

from gpushim.oci.rootfs import RootFs

# Storage drivers of Docker that give a container a plain directory or subvolume of its own.
_DOCKER_DRIVERS = {"vfs": "dir", "btrfs": "subvolumes", "zfs": "graph"}
_OVERLAYS = (b"overlay", b"fuse.fuse-overlayfs")
_SUBVOLUME_INODE = 256  # of the top of every btrfs subvolume
_MOUNTINFO = "/proc/self/mountinfo"


def is_host_root(root: RootFs) -> bool:
    """Whether it is the host's own root directory."""
    here, host = posix.fstat(root.fd), posix.stat("/")
    return (here.st_dev, here.st_ino) == (host.st_dev, host.st_ino)


def private(root: RootFs, container_id: str, mountinfo: str = _MOUNTINFO) -> bool:
    """Whether this root directory is the container's alone, so that it may be written to.

    It is if it is a mount point of its own (what Docker, Podman, containerd and CRI-O make of
    overlay and most other storage), if it lies on an overlay that is not the host's own root, or
    if Docker's record of the container names it as its layer. A plain directory may be shared by
    any number of containers, and so may a btrfs subvolume, which looks like a mount to stat(2).
    """
    here = posix.fstat(root.fd)
    above = posix.stat("..", dir_fd=root.fd, follow_symlinks=False)
    if here.st_dev != above.st_dev and here.st_ino != _SUBVOLUME_INODE:
        return True
    path = posix.readlink(f"/proc/self/fd/{root.fd}")
    if _is_docker_layer(path, container_id):
        return True
    device = f"{posix.major(here.st_dev)}:{posix.minor(here.st_dev)}"
    on_host_root = here.st_dev == posix.stat("/").st_dev
    return _private_by_mounts(_read(mountinfo), path, "" if on_host_root else device)


def _private_by_mounts(mountinfo: bytes, path: str, device: str) -> bool:
    """Whether `path` is a mount point, or `device` ("major:minor", "" for none) an overlay."""
    wanted = escape(path)
    number = device.encode()
    if wanted not in mountinfo and (not number or number not in mountinfo):
        return False
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) < 10 or b"-" not in fields:
            continue
        if fields[4] == wanted:
            return True
        # proc_pid_mountinfo(5): optional fields end with "-", then comes the file system's type.
        if number and fields[2] == number and fields[fields.index(b"-") + 1] in _OVERLAYS:
            return True
    return False


def escape(path: str) -> bytes:
    """`path` as /proc/self/mountinfo writes it: blanks and backslashes as octal numbers."""
    raw = path.encode("utf-8", "surrogateescape").replace(b"\\", b"\\134")
    return raw.replace(b" ", b"\\040").replace(b"\t", b"\\011").replace(b"\n", b"\\012")


def _is_docker_layer(path: str, container_id: str) -> bool:
    """Whether Docker recorded `path` as the layer of this container, and of no other.

    <data root>/<driver>/<its directory>/<layer>, and the layer's name in
    <data root>/image/<driver>/layerdb/mounts/<container id>/mount-id (moby, layer/filestore.go).
    """
    parts = path.rsplit("/", 3)
    if len(parts) < 4 or not container_id or "/" in container_id or container_id in (".", ".."):
        return False
    data_root, driver, directory, layer = parts
    if _DOCKER_DRIVERS.get(driver) != directory:
        return False
    record = f"{data_root}/image/{driver}/layerdb/mounts/{container_id}/mount-id"
    try:
        return _read(record).decode("utf-8", "surrogateescape") == layer
    except OSError:
        return False


def _read(path: str) -> bytes:
    fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    try:
        chunks = []
        while chunk := posix.read(fd, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        posix.close(fd)
