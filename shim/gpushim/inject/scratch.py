"""A directory of ours in a container's root, which is gone before the container starts."""

from __future__ import annotations

import posix
from posix import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW

from gpushim.errors import why
from gpushim.oci.rootentry import RootFsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.oci.rootfs import RootFs

_OPEN = posix.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC


class Scratch:
    """A new directory in the directory `above` of the root. Raises RootFsError.

    path: as it is seen from outside. Its name is one that nobody else can have mounted anything
    at, and on removal neither links nor mounts are entered.
    """

    def __init__(self, root: RootFs, above: str) -> None:
        inside = f"{above}/.gpushim-{posix.urandom(8).hex()}"
        if root.exists(inside) or not root.is_directory(above):
            raise RootFsError(inside, f"{above} is no folder that takes it")
        root.make_directory(inside)
        self.path = root.path + inside
        try:
            self.device = posix.stat(self.path, follow_symlinks=False).st_dev
        except OSError as error:
            raise RootFsError(inside, why(error), error.errno or 0) from None

    def remove(self) -> None:
        """Removes it with all that is in it and of its file system. Raises OSError."""
        above, _, name = self.path.rpartition("/")
        descriptor = posix.open(above, _OPEN)
        try:
            _remove(descriptor, name, self.device)
        finally:
            posix.close(descriptor)


def _remove(above: int, name: str, device: int) -> None:
    """Removes a directory and what it holds; leaves what is mounted in it."""
    descriptor = posix.open(name, _OPEN, dir_fd=above)
    try:
        if posix.fstat(descriptor).st_dev != device:
            return
        for inner in posix.listdir(descriptor):
            try:
                posix.unlink(inner, dir_fd=descriptor)
            except (IsADirectoryError, PermissionError):
                _remove(descriptor, inner, device)
    finally:
        posix.close(descriptor)
    posix.rmdir(name, dir_fd=above)
