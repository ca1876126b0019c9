"""One entry of an open directory in a container's root file system: reading and replacing it.

The directory is given as a descriptor, the entry as a plain name; `path` is what error messages
call it. All raise RootFsError for an entry that is not what it has to be, and OSError.
"""

from __future__ import annotations

import posix
from _stat import S_IMODE, S_ISLNK, S_ISREG
from errno import ELOOP, ENODATA, ENOTSUP, EPERM
from posix import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW

from gpushim.errors import GpushimError

_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | O_NOFOLLOW | O_CLOEXEC
_CREATE = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | O_NOFOLLOW | O_CLOEXEC
_LABEL = "security.selinux"


class RootFsError(GpushimError):
    """Something in the container's root file system is not what it has to be.

    errno: of the OSError behind it, 0 if there was none.
    """

    def __init__(self, path: str, reason: str, errno: int = 0) -> None:
        super().__init__(f"{path} in the container's root file system can't be used: {reason}.")
        self.errno = errno


def _require_regular(path: str, status: posix.stat_result) -> None:
    if S_ISLNK(status.st_mode):
        raise RootFsError(path, "it is a symbolic link", ELOOP)
    if not S_ISREG(status.st_mode):
        raise RootFsError(path, "it is not a regular file")


def look(directory: int, name: str) -> posix.stat_result:
    """What the entry is, a link as itself."""
    return posix.stat(name, dir_fd=directory, follow_symlinks=False)


def make_directory(directory: int, name: str, owner: posix.stat_result) -> None:
    """Make a directory, owned as `owner` is, if there is none yet."""
    try:
        posix.mkdir(name, 0o755, dir_fd=directory)
    except FileExistsError:
        return  # another create was faster
    fd = posix.open(name, posix.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=directory)
    try:
        posix.fchmod(fd, 0o755)  # whatever the umask
        _give(fd, owner.st_uid, owner.st_gid)
    finally:
        posix.close(fd)


def names(directory: int) -> list[str]:
    """The names of the entries, sorted."""
    fd = posix.open(".", posix.O_RDONLY | O_DIRECTORY | O_CLOEXEC, dir_fd=directory)
    try:
        return sorted(posix.listdir(fd))
    finally:
        posix.close(fd)


def open_regular(directory: int, name: str, path: str) -> int:
    """A descriptor of a regular file, for reading."""
    # Opening a device can have effects, so look first; and again at what was opened.
    _require_regular(path, look(directory, name))
    fd = posix.open(name, _READ, dir_fd=directory)
    try:
        _require_regular(path, posix.fstat(fd))
    except RootFsError:
        posix.close(fd)
        raise
    return fd


def read(directory: int, name: str, path: str, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    fd = open_regular(directory, name, path)
    try:
        size = posix.fstat(fd).st_size
        chunks: list[bytes] = []
        left = limit + 1
        while size <= limit and left > 0:
            chunk = posix.read(fd, min(left, max(size, 4096) + 1))
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            left -= len(chunk)
        raise RootFsError(path, f"it is larger than {limit} bytes")
    finally:
        posix.close(fd)


def replace(directory: int, name: str, path: str, data: bytes) -> bool:
    """Put a new file in the place of the old one, with its mode, owner and label; then True."""
    try:
        old = look(directory, name)
        _require_regular(path, old)
        owner, mode = old, S_IMODE(old.st_mode)
        label = _label(directory, name)
    except FileNotFoundError:
        owner, mode, label = posix.fstat(directory), 0o644, b""
    temporary = f".{name}.gpushim-{posix.urandom(6).hex()}"
    fd = posix.open(temporary, _CREATE, 0o600, dir_fd=directory)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[posix.write(fd, view) :]
            _give(fd, owner.st_uid, owner.st_gid)
            posix.fchmod(fd, mode)  # after the owner, whose change takes set-id bits away
            if label:
                _set_label(fd, label)
        finally:
            posix.close(fd)
        posix.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        posix.unlink(temporary, dir_fd=directory)
        raise
    return True


def _give(fd: int, uid: int, gid: int) -> None:
    status = posix.fstat(fd)
    if (status.st_uid, status.st_gid) != (uid, gid):
        posix.fchown(fd, uid, gid)


def _label(directory: int, name: str) -> bytes:
    fd = posix.open(name, _READ, dir_fd=directory)
    try:
        return posix.getxattr(fd, _LABEL)
    except OSError as error:
        if error.errno in (ENODATA, ENOTSUP, EPERM):
            return b""
        raise
    finally:
        posix.close(fd)


def _set_label(fd: int, label: bytes) -> None:
    try:
        posix.setxattr(fd, _LABEL, label)
    except OSError as error:
        if error.errno not in (ENOTSUP, EPERM):
            raise
