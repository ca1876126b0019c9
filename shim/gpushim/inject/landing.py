"""Where a mount of the spec lands: through the links of the image, maybe in a volume of the user's.

A low-level runtime resolves each destination in the container's root, with what was mounted before
in its place (runc by filepath-securejoin, crun by openat2). A mount point that is missing is then
made where that leads, which in a volume is a directory of the host's.
"""

from __future__ import annotations

import posix
from errno import ENOTDIR
from posix import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpushim.oci.rootfs import RootFs

    # An open directory; where a link leads; "" for anything else; None for nothing that is known.
    Entry = int | str | None

_WALK = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
_MOST_LINKS = 40  # as the kernel's own limit for one path


class Landing:
    """The directories of one root that were looked at, open until `close`; mounts hide the image.

    mounts: where they are, links resolved -> type. The root itself is its owner's to close.
    """

    __slots__ = ("_entries", "mounts")

    def __init__(self, root: RootFs) -> None:
        self._entries: dict[str, Entry] = {"": root.fd}
        self.mounts: dict[str, str] = {}

    def close(self) -> None:
        for path, entry in self._entries.items():
            if path and isinstance(entry, int):
                posix.close(entry)
        self._entries = {}

    def mount(self, mounts: Mapping[str, str], plain: Collection[str] = ()) -> None:
        """Takes mounts into account, destination -> type, in the order in which they are made.

        plain: destinations that count as they are, without a look at what leads to them.
        """
        for destination, kind in mounts.items():
            path = destination if destination in plain else self.of(destination)
            self.mounts[path] = kind
            self._hide(path)

    def of(self, path: str) -> str:
        """`path` without links, as far as the image is seen there; the rest stays as it is.

        A path with too many links stays, too: the low-level runtime refuses it.
        """
        todo = _components(path)
        done = ""
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            entry = self.look(done, part)
            if not isinstance(entry, str) or not entry:
                done = f"{done}/{part}"
                continue
            links += 1
            if links > _MOST_LINKS:
                return path
            if entry[0] == "/":
                done = ""
            todo += _components(entry)
        return done or "/"

    def look(self, directory: str, name: str) -> Entry:
        """What the image has there; directory: without links, "" for the root."""
        path = f"{directory}/{name}"
        if path in self._entries:
            return self._entries[path]
        above = self._entries.get(directory)
        # Nothing lies in what is no directory; what lies in a mount is not the image's.
        entry = _look(above, name) if isinstance(above, int) else None
        self._entries[path] = entry
        return entry

    def _hide(self, path: str) -> None:
        """From now on nothing that the image has at `path` or beneath it counts."""
        if isinstance(self._entries.get(path), int):
            # Beneath anything but an open directory nothing of the image's was seen.
            for other in [it for it in self._entries if it.startswith(path + "/")] + [path]:
                entry = self._entries.pop(other)
                if isinstance(entry, int):
                    posix.close(entry)
        self._entries[path] = None


def _components(path: str) -> list[str]:
    """The components of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _look(directory: int, name: str) -> Entry:
    try:
        return posix.open(name, _WALK, dir_fd=directory)
    except OSError as error:
        if error.errno != ENOTDIR:  # which the kernel says of a link, too
            return None
    except ValueError:
        return None  # a name that no file can have
    try:
        return posix.readlink(name, dir_fd=directory)
    except OSError:
        return ""
