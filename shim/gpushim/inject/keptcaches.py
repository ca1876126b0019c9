"""Merged loader caches that are kept, so that an image's next container finds its own made."""

from __future__ import annotations

import posix
import time

from gpushim.oci.files import digest_of, make_directories, read_small, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.places import Places

LARGEST = 8 << 20

_MOST_KEPT = 64
_LONG_AGO = 3600.0


def path_of(places: Places, cache: bytes | None, target: str) -> str:
    """Where what is merged of this image's cache (None: it has none) and a target is kept.

    target: all that the merged cache depends on besides (see loadercache.Target.identity).
    """
    content = f"{target}\n{cache is None}\n".encode("utf-8", "surrogateescape") + (cache or b"")
    return f"{places.loader_caches}/{digest_of(content)}"


def read(path: str) -> bytes | None:
    """A kept cache; None if there is none."""
    try:
        posix.utime(path)  # so that it is not collected before it is mounted
        return read_small(path, LARGEST)
    except OSError:
        return None


def keep(path: str, merged: bytes) -> str:
    """Keeps a merged cache; its path, or "" if that failed, which only a mount has to know."""
    directory = path.rpartition("/")[0]
    try:
        make_directories(directory)
        _make_room(directory)
        write_whole(path, merged, 0o644)
    except OSError:
        return ""
    return path


def _make_room(directory: str) -> None:
    """Drops merged caches that no create took for an hour, once there are many images' ones.

    A container that has one mounted keeps it: what is mounted outlives its name.
    """
    names = posix.listdir(directory)
    if len(names) < _MOST_KEPT:
        return
    for name in names:
        path = f"{directory}/{name}"
        try:
            if time.time() - posix.stat(path).st_mtime > _LONG_AGO:
                posix.unlink(path)
        except FileNotFoundError:
            pass  # another create was faster
