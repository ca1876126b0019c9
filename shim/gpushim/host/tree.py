"""The driver tree: the files of one driver version and one set of capabilities in one directory.

A container gets it as one read-only bind mount. Since that mount follows the directory, a tree is
never altered: it is assembled beside its place, renamed there, and removed only when no mount on
the machine shows it any more. Runs in refresh and administration only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable

from gpushim.errors import GpushimError, why
from gpushim.host.drivercatalogue import DEVELOPMENT_LINKS
from gpushim.host.driverlist import DriverFiles, Library
from gpushim.host.libraryorder import sort_names
from gpushim.host.model import DriverTree, ExtraMount, capability_key
from gpushim.host.treecollect import TEMPORARY, remove_leftovers
from gpushim.places import Places

_LAYOUT = "1"  # part of a tree's name: what is inside is arranged in this way
_FICLONE = 0x40049409  # linux/fs.h
_SELINUX = "/sys/fs/selinux"
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP)
_CANNOT_CLONE = (
    *(errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EPERM, errno.EBADF),
    *(errno.ENOSYS, errno.ETXTBSY, errno.EACCES),
)

Stamp = list[tuple[str, int, int, int]]  # path, inode, size, time of change in nanoseconds


def assemble(
    places: Places,
    files: DriverFiles,
    capabilities: Iterable[str],
    may_link: bool | None = None,
) -> DriverTree:
    """The tree for these capabilities, which is made if there is none of these very files.

    may_link: whether hard links may be used; by default not where SELinux is, whose labels belong
    to the file and not to its name. Raises GpushimError if a file has vanished or is being
    replaced, or if the tree can't be written.
    """
    wanted = sorted(set(capabilities))
    contents = _Contents(files, wanted)
    before = _stamp(contents.sources(), files.version)
    text = repr(
        (
            *(_LAYOUT, before, sorted(contents.links.items()), sorted(contents.files)),
            *([sorted(contents.texts.items())] if contents.texts else []),
        )
    )
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    parent = f"{places.driver_trees}/{files.version}"
    path = f"{parent}/{capability_key(wanted)}-{digest}"
    tree = DriverTree(path, contents.listed("lib64"), contents.listed("lib"))
    if os.path.isdir(path):
        return tree
    try:
        os.makedirs(parent, mode=0o755, exist_ok=True)
        remove_leftovers(parent)
        temporary = tempfile.mkdtemp(prefix=TEMPORARY, dir=parent)
        lock = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise GpushimError(f"The driver tree {path} can't be made: {why(error)}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        link = not os.path.isdir(_SELINUX) if may_link is None else may_link
        contents.write(temporary, link, files.version)
        if _stamp(contents.sources(), files.version) != before:
            raise GpushimError(
                f"The files of driver {files.version} are being replaced right now.",
                "Try again when the driver's installation has ended.",
            )
        _put(temporary, path)
    except OSError as error:
        raise GpushimError(f"The driver tree {path} can't be made: {why(error)}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)
    return tree


def sources(files: DriverFiles, capabilities: Iterable[str]) -> set[str]:
    """The files on the host that the tree for these capabilities is made of."""
    wanted = set(capabilities)
    rewritten = {
        mount.host_path
        for mount in files.extra_mounts
        if mount.in_tree and wanted.intersection(mount.capabilities)
    }
    return _Contents(files, sorted(wanted)).sources() | rewritten


def _put(temporary: str, path: str) -> None:
    """Rename the finished tree to its place, unless another process was faster."""
    os.chmod(temporary, 0o755)
    try:
        os.rename(temporary, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _stamp(sources: Iterable[str], version: str) -> Stamp:
    stamp: Stamp = []
    for path in sorted(sources):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise _vanished(path, version) from None
        except OSError as error:
            raise GpushimError(
                f"{path}, a file of NVIDIA's driver {version}, can't be used: {why(error)}."
            ) from None
        stamp.append((path, found.st_ino, found.st_size, found.st_mtime_ns))
    return stamp


def _vanished(path: str, version: str) -> GpushimError:
    return GpushimError(
        f"{path}, a file of NVIDIA's driver {version}, vanished while it was being used.",
        "If the driver is being installed or removed, try again when that has ended.",
    )


class _Contents:
    """What is in a tree, by path. files: sources on the host; links: targets; texts: contents."""

    def __init__(self, files: DriverFiles, capabilities: list[str]) -> None:
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.texts: dict[str, bytes] = {}
        self.names: dict[str, set[str]] = {"lib64": set(), "lib": set()}
        for bits, directory in ((64, "lib64"), (32, "lib")):
            for library in files.libraries_for(capabilities, bits):
                self._add_library(directory, library)
            for name, soname in files.links.items():
                if soname in self.names[directory]:
                    self._add_link(directory, name, soname)
                    self.names[directory].add(name)
        for binary in files.binaries_for(capabilities):
            self.files[f"bin/{binary.name}"] = binary.path
        for module in files.modules_for(capabilities):
            self.files[f"lib64/{module.name}"] = module.path
        for mounts, where in ((files.shared, "share"), (files.firmware, "firmware")):
            for mount in mounts:
                place = _place(mount)
                if not set(mount.capabilities).intersection(capabilities):
                    continue
                if mount.in_tree:
                    self.texts[mount.in_tree] = files.texts[mount.in_tree]
                if place:
                    self.files.setdefault(f"{where}/{place}", mount.host_path)

    def sources(self) -> set[str]:
        return set(self.files.values())

    def listed(self, directory: str) -> list[str]:
        """Names of the directory's libraries that belong into a loader cache, in its order.

        Those that ldconfig lists: every soname, or the file's name where it has none, and links
        without a version. Besides, the few names that programs ask for and ldconfig would find
        only in the loader's own directories (drivercatalogue.EXTRA_LINKS).
        """
        return sort_names(sorted(self.names[directory]))

    def _add_library(self, directory: str, library: Library) -> None:
        where = f"{directory}/{library.directory}" if library.directory else directory
        self.files[f"{where}/{library.name}"] = library.path
        soname = library.soname or library.name
        self._add_link(where, soname, library.name)
        names = self.names[directory]
        if not library.directory:
            names.add(soname)
        if library.stem not in DEVELOPMENT_LINKS:
            return
        development = f"{library.stem}.so"
        # libvdpau looks for its back end in a directory of its own, then for this plain name.
        target = f"{library.directory}/{library.name}" if library.directory else soname
        self._add_link(directory, development, target)
        if soname.startswith(development):
            names.add(development)

    def _add_link(self, directory: str, name: str, target: str) -> None:
        path = f"{directory}/{name}"
        if name != target and path not in self.files:
            self.links.setdefault(path, target)

    def write(self, root: str, may_link: bool, version: str) -> None:
        """Write everything beneath `root`, an empty directory."""
        for path in ("lib64", "lib", "bin", "share", "firmware"):
            _make_directories(root, path)
        back_end = self._gbm_back_end()
        for path, source in self.files.items():
            _make_directories(root, os.path.dirname(path))
            mode = 0o755 if path.startswith("bin/") else 0o644
            try:
                _provide(source, f"{root}/{path}", mode, may_link)
            except FileNotFoundError:
                raise _vanished(source, version) from None
        for path, text in self.texts.items():
            _make_directories(root, os.path.dirname(path))
            with open(f"{root}/{path}", "xb") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
        for path, target in (self.links | back_end).items():
            _make_directories(root, os.path.dirname(path))
            os.symlink(target, f"{root}/{path}")

    def _gbm_back_end(self) -> dict[str, str]:
        """libgbm looks for back ends in a directory of its own."""
        soname = "libnvidia-allocator.so.1"
        return {
            f"{directory}/gbm/nvidia-drm_gbm.so": f"../{soname}"
            for directory in ("lib64", "lib")
            if f"{directory}/{soname}" in self.links
        }


def _place(mount: ExtraMount) -> str:
    """Where a file with a fixed path lies in share or firmware; "" if it is a library."""
    for prefix in ("/usr/share/", "/etc/", "/lib/firmware/"):
        if mount.container_path.startswith(prefix):
            return mount.container_path[len(prefix) :]
    return ""


def _make_directories(root: str, path: str) -> None:
    done = root
    for part in path.split("/"):
        done = f"{done}/{part}"
        try:
            os.mkdir(done)
        except FileExistsError:
            continue
        os.chmod(done, 0o755)


def _provide(source: str, target: str, mode: int, may_link: bool) -> None:
    """Make `target` a file with the content of `source`: a clone, else a hard link, else a copy."""
    with open(source, "rb") as original:
        found = os.fstat(original.fileno())
        with open(target, "xb") as file:
            try:
                fcntl.ioctl(file.fileno(), _FICLONE, original.fileno())
                os.fchmod(file.fileno(), mode)
                return
            except OSError as error:
                if error.errno not in _CANNOT_CLONE:
                    raise
        if may_link and _may_share(found, mode) and _link(source, target):
            return
        with open(target, "wb") as file:
            shutil.copyfileobj(original, file, 1 << 20)
            os.fchmod(file.fileno(), mode)


def _may_share(found: os.stat_result, mode: int) -> bool:
    """Whether a file's own mode is fit for containers, since a hard link keeps it."""
    needed = mode & 0o555
    return found.st_mode & needed == needed and not found.st_mode & 0o7022


def _link(source: str, target: str) -> bool:
    os.unlink(target)
    try:
        os.link(source, target, follow_symlinks=False)
        return True
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        return False
