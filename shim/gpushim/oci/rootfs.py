"""A container's root file system, which the container's image fills as it likes.

Nothing in it is trusted: paths are walked component by component beneath an open descriptor of the
root directory, no symbolic link is ever followed by the kernel, and only regular files of a
bounded size are read. Paths given to the methods are absolute in the container ("/etc/x").
"""

from __future__ import annotations

import posix
from _stat import S_ISDIR, S_ISLNK
from errno import EACCES, EISDIR, ELOOP, ENOENT, ENOTDIR
from posix import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_PATH

from gpushim.errors import why
from gpushim.oci import rootentry
from gpushim.oci.rootentry import RootFsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

_MOST_LINKS = 40  # as the kernel's own limit for one path
_MOST_STEPS = 256
_WALK = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC


class RootFs:
    """An open root directory. `path` is what the spec says, `fd` stays open until `close`.

    So do the directories that were walked through, and what is no link is asked once: a create
    looks at the same few again and again. All methods raise RootFsError, and nothing else, for what
    they find in it or can't do there.
    """

    __slots__ = ("_directories", "_plain", "fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._directories: dict[str, int] = {}
        self._plain: set[str] = set()
        try:
            self.fd = posix.open(path, posix.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError as error:
            raise RootFsError("/", why(error), error.errno or 0) from None

    def close(self) -> None:
        for fd in (self.fd, *self._directories.values()):
            posix.close(fd)
        self._directories = {}

    def __enter__(self) -> RootFs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _directory(self, parts: list[str], path: str) -> int:
        """The descriptor of a directory; FileNotFoundError if a component is missing."""
        fd, key = self.fd, ""
        for part in parts:
            key = f"{key}/{part}"
            deeper = self._directories.get(key, -1)
            if deeper < 0:
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
                self._directories[key] = deeper
            fd = deeper
        return fd

    def _at(self, path: str, parts: list[str], action: Callable[[int], T]) -> T | None:
        """What `action` returns for the open directory; None if anything it needs is absent."""
        try:
            return action(self._directory(parts, path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RootFsError(path, why(error), error.errno or 0) from None

    def _status(self, path: str) -> posix.stat_result | None:
        """What is at `path`, a link as itself; None if nothing is."""
        parts = split(path)
        if not parts:
            return posix.fstat(self.fd)
        return self._at(path, parts[:-1], lambda fd: rootentry.look(fd, parts[-1]))

    def exists(self, path: str) -> bool:
        """Whether there is anything at `path`, be it a dangling link."""
        return self._status(path) is not None

    def is_directory(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and S_ISDIR(status.st_mode)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if it is absent."""
        return self._at(path, split(path), rootentry.names) or []

    def read_regular(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file of at most `limit` bytes; None if it is absent."""
        parts = _file_parts(path)
        return self._at(path, parts[:-1], lambda fd: rootentry.read(fd, parts[-1], path, limit))

    def open_regular(self, path: str) -> int | None:
        """A descriptor of a regular file, which the caller closes; None if it is absent."""
        parts = _file_parts(path)
        return self._at(path, parts[:-1], lambda fd: rootentry.open_regular(fd, parts[-1], path))

    def replace(self, path: str, data: bytes) -> None:
        """Write a regular file as a whole: a new file in the place of the old one.

        It gets the old one's mode, owner and SELinux label; where there was none, 0644 and the
        directory's owner. The directory must exist.
        """
        parts = _file_parts(path)
        if not self._at(path, parts[:-1], lambda fd: rootentry.replace(fd, parts[-1], path, data)):
            raise RootFsError(path, "its folder does not exist", ENOENT)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it that are missing, owned as the root directory is."""
        parts = split(path)
        for end in range(1, len(parts) + 1):
            if self._at(path, parts[:end], posix.fstat) is None:
                self._make_one(parts[:end], path)

    def _make_one(self, parts: list[str], path: str) -> None:
        owner = posix.fstat(self.fd)
        self._at(path, parts[:-1], lambda fd: rootentry.make_directory(fd, parts[-1], owner))

    def resolve_in_root(self, path: str) -> list[str]:
        """The components of `path` after every symbolic link, as seen by the container.

        "/bin/x" is ["usr", "bin", "x"] in an image whose /bin is a link to usr/bin. ".." never
        leads out of the root. Components that do not exist are kept as they are.
        """
        todo = _components(path)[::-1]
        done: list[str] = []
        links = steps = 0
        while todo:
            steps += 1
            if links > _MOST_LINKS or steps > _MOST_STEPS:
                raise RootFsError(path, "it leads through too many symbolic links", ELOOP)
            part = todo.pop()
            if part == "..":
                del done[-1:]
                continue
            place = "/".join([*done, part])
            target = None if place in self._plain else self._link_target(place)
            if target is None:
                self._plain.add(place)
                done.append(part)
                continue
            links += 1
            if target.startswith("/"):
                done = []
            todo += _components(target)[::-1]
        return done

    def _link_target(self, path: str) -> str | None:
        """Where the link at `path`, whose directories are no links, leads; None if it is none."""
        parts = path.split("/")

        def read(fd: int) -> str | None:
            is_link = S_ISLNK(rootentry.look(fd, parts[-1]).st_mode)
            return posix.readlink(parts[-1], dir_fd=fd) if is_link else None

        try:
            return self._at(path, parts[:-1], read)
        except RootFsError as error:
            if error.errno == ENOTDIR:
                return None  # beneath a file there is nothing
            raise

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
