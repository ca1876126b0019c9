"""Where refresh keeps what it found out, and reading it back with its owner checked."""

from __future__ import annotations

import posix
from _stat import S_ISDIR, S_ISREG

from ..errors import GpushimError
from ..oci import jsontext
from ..oci.files import read_small
from ..places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1

_MAXIMUM_BYTES = 16 << 20


def own_places(places: Places) -> Places:
    """Where this user's state is kept: at `places` for root, else in the user's own directories.

    Root in a user namespace (rootless Podman) is that namespace's owner, not root.
    """
    if posix.geteuid() == 0 and not _in_user_namespace():
        return places
    own = Places(places.root)
    runtime = _variable(b"XDG_RUNTIME_DIR") or f"/run/user/{posix.getuid()}"
    data = _variable(b"XDG_DATA_HOME") or _variable(b"HOME") + "/.local/share"
    own.run = runtime + "/gpushim"
    own.lib = data + "/gpushim"
    return own


def read(path: str) -> dict[str, Any] | None:
    """A state file's content if it is one of this format that can be trusted; else None.

    Trusted is what root or this user owns and nobody else can write. Raises GpushimError for a
    newer format.
    """
    try:
        descriptor = posix.open(
            path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOFOLLOW
        )
    except OSError:
        return None
    try:
        facts = posix.fstat(descriptor)
        if not S_ISREG(facts.st_mode) or facts.st_mode & 0o022 or not _trusted(facts.st_uid):
            return None
        if facts.st_size > _MAXIMUM_BYTES:
            return None
        content = posix.read(descriptor, facts.st_size + 1)
        data = jsontext.loads(content.decode("ascii"))
        number = data["format"]
        if number > FORMAT:
            raise GpushimError(
                f"{path} was written by a newer gpushim (its format is {number}, not {FORMAT}).",
                "Upgrade gpushim, or remove the file.",
            )
        return data if number == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        posix.close(descriptor)


def _trusted(uid: int) -> bool:
    # In a user namespace, the machine's root is an owner that has no name there.
    return uid in (0, posix.geteuid()) or (uid == 65534 and _in_user_namespace())


def _in_user_namespace() -> bool:
    try:
        return read_small("/proc/self/uid_map", 4096).split() != [b"0", b"0", b"4294967295"]
    except OSError:
        return False


def is_directory(path: str) -> bool:
    """Whether there is a directory at `path`, or a link to one."""
    try:
        return S_ISDIR(posix.stat(path).st_mode)
    except OSError:
        return False


def _variable(name: bytes) -> str:
    return posix.environ.get(name, b"").decode("utf-8", "surrogateescape")
