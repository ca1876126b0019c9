"""A container's root file system, which the container's image fills as it likes.

Nothing in it is trusted: paths are walked component by component beneath an open descriptor of the
root directory, no symbolic link is ever followed by the kernel, and only regular files of a
bounded size are read. Paths given to the methods are absolute in the container ("/etc/x").
"""

from __future__ import annotations

import posix
from _stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG
from errno import EACCES, EISDIR, ELOOP, ENODATA, ENOTDIR, ENOTSUP, EPERM
from posix import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_PATH

from gpushim.errors import GpushimError, why

_MOST_LINKS = 40  # as the kernel's own limit for one path
_WALK = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
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


class RootFs:
    """An open root directory. `path` is what the spec says, `fd` stays open until `close`.

    All methods raise RootFsError, and nothing else, for what they find in it or can't do there.
    """

    __slots__ = ("fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.fd = posix.open(path, posix.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError as error:
            raise RootFsError("/", why(error), error.errno or 0) from None

    def close(self) -> None:
        posix.close(self.fd)

    def __enter__(self) -> RootFs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_directory(self, parts: list[str], path: str) -> int:
        """A descriptor of the directory; FileNotFoundError if a component is missing."""
        fd = posix.open(".", _WALK, dir_fd=self.fd)
        for part in parts:
            try:
                deeper = posix.open(part, _WALK, dir_fd=fd)
            except FileNotFoundError:
                raise
            except OSError as error:
                # The kernel says ENOTDIR of a link too.
                reason = "a part of its path is a symbolic link or no folder"
                if error.errno not in (ENOTDIR, ELOOP):
                    reason = why(error)
                raise RootFsError(path, reason, error.errno or 0) from None
            finally:
                posix.close(fd)
            fd = deeper
        return fd

    def _status(self, path: str) -> posix.stat_result | None:
        """What is at `path`, a link as itself; None if nothing is."""
        parts = split(path)
        if not parts:
            return posix.fstat(self.fd)
        try:
            fd = self._open_directory(parts[:-1], path)
        except FileNotFoundError:
            return None
        try:
            return posix.stat(parts[-1], dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None
        finally:
            posix.close(fd)

    def exists(self, path: str) -> bool:
        """Whether there is anything at `path`, be it a dangling link."""
        return self._status(path) is not None

    def is_directory(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and S_ISDIR(status.st_mode)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if it is absent."""
        try:
            fd = self._open_directory(split(path), path)
        except FileNotFoundError:
            return []
        try:
            readable = posix.open(".", posix.O_RDONLY | O_DIRECTORY | O_CLOEXEC, dir_fd=fd)
            try:
                return sorted(posix.listdir(readable))
            finally:
                posix.close(readable)
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None
        finally:
            posix.close(fd)

    def read_regular(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file of at most `limit` bytes; None if it is absent."""
        parts = _file_parts(path)
        try:
            directory = self._open_directory(parts[:-1], path)
        except FileNotFoundError:
            return None
        try:
            # Opening a device can have effects, so look first; and again at what was opened.
            _require_regular(path, posix.stat(parts[-1], dir_fd=directory, follow_symlinks=False))
            fd = posix.open(parts[-1], _READ, dir_fd=directory)
            try:
                status = posix.fstat(fd)
                _require_regular(path, status)
                return _read(fd, path, limit, status.st_size)
            finally:
                posix.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None
        finally:
            posix.close(directory)

    def replace(self, path: str, data: bytes) -> None:
        """Write a regular file as a whole: a new file in the place of the old one.

        It gets the old one's mode, owner and SELinux label; where there was none, 0644 and the
        directory's owner. The directory must exist.
        """
        parts = _file_parts(path)
        try:
            directory = self._open_directory(parts[:-1], path)
        except FileNotFoundError as error:
            raise RootFsError(path, "its folder does not exist", error.errno or 0) from None
        try:
            _replace(directory, parts[-1], path, data)
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None
        finally:
            posix.close(directory)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it that are missing, owned as the root directory is."""
        parts = split(path)
        owner = posix.fstat(self.fd)
        for end in range(1, len(parts) + 1):
            try:
                posix.close(self._open_directory(parts[:end], path))
            except FileNotFoundError:
                self._make_one(parts[:end], path, owner)

    def _make_one(self, parts: list[str], path: str, owner: posix.stat_result) -> None:
        above = self._open_directory(parts[:-1], path)
        try:
            posix.mkdir(parts[-1], 0o755, dir_fd=above)
            fd = posix.open(parts[-1], posix.O_RDONLY | O_DIRECTORY | O_NOFOLLOW, dir_fd=above)
            try:
                posix.fchmod(fd, 0o755)  # whatever the umask
                _give(fd, owner.st_uid, owner.st_gid)
            finally:
                posix.close(fd)
        except FileExistsError:
            pass  # another create was faster
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None
        finally:
            posix.close(above)

    def resolve_in_root(self, path: str) -> list[str]:
        """The components of `path` after every symbolic link, as seen by the container.

        "/bin/x" is ["usr", "bin", "x"] in an image whose /bin is a link to usr/bin. ".." never
        leads out of the root. Components that do not exist are kept as they are.
        """
        todo = _components(path)[::-1]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del done[-1:]
                continue
            target = self._link_target("/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise RootFsError(path, "it leads through too many symbolic links", ELOOP)
            if target.startswith("/"):
                done = []
            todo += _components(target)[::-1]
        return done

    def _link_target(self, path: str) -> str | None:
        """Where the link at `path`, whose directories are no links, leads; None if it is none."""
        parts = path.split("/")
        fd = -1
        try:
            fd = self._open_directory(parts[:-1], path)
            status = posix.stat(parts[-1], dir_fd=fd, follow_symlinks=False)
            return posix.readlink(parts[-1], dir_fd=fd) if S_ISLNK(status.st_mode) else None
        except FileNotFoundError:
            return None
        except RootFsError as error:
            if error.errno == ENOTDIR:
                return None  # beneath a file there is nothing
            raise
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None
        finally:
            if fd >= 0:
                posix.close(fd)

    def read_only(self) -> bool:
        """Whether the file system, or this mount of it, takes no writes."""
        return bool(posix.fstatvfs(self.fd).f_flag & posix.ST_RDONLY)


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def split(path: str) -> list[str]:
    """The components of a path, which must have no ".."."""
    parts = _components(path)
    if ".." in parts:
        raise RootFsError(path, "its path leads upwards", EACCES)
    return parts


def _file_parts(path: str) -> list[str]:
    parts = split(path)
    if not parts:
        raise RootFsError(path, "it is a folder", EISDIR)
    return parts


def _require_regular(path: str, status: posix.stat_result) -> None:
    if S_ISLNK(status.st_mode):
        raise RootFsError(path, "it is a symbolic link", ELOOP)
    if not S_ISREG(status.st_mode):
        raise RootFsError(path, "it is not a regular file")


def _read(fd: int, path: str, limit: int, size: int) -> bytes:
    chunks: list[bytes] = []
    left = limit + 1
    while size <= limit and left > 0:
        chunk = posix.read(fd, min(left, max(size, 4096) + 1))
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    raise RootFsError(path, f"it is larger than {limit} bytes")


def _replace(directory: int, name: str, path: str, data: bytes) -> None:
    try:
        old = posix.stat(name, dir_fd=directory, follow_symlinks=False)
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
