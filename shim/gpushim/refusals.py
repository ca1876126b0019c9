"""Why containers were refused or left without a GPU, for `gpushimctl explain`: the latest ones.

A refused container leaves no bundle and no state behind, and what Docker shows of a sentence is
gone with the terminal. Written for these few only, one file each.
"""

from __future__ import annotations

import posix
import time

from gpushim.host import statefiles
from gpushim.oci.files import make_directories, write_whole
from gpushim.oci.jsontext import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
_KEPT = 64


def write(directory: str, container_id: str, data: dict[str, Any]) -> None:
    """Keeps a refusal in place of an older one of the same id, and drops the oldest of too many.

    Only root may read it, since a request may hold what an environment had. Raises OSError.
    """
    make_directories(directory)
    posix.chmod(directory, 0o700)
    text = dumps({"format": FORMAT, "id": container_id, "refused": int(time.time()), **data})
    write_whole(f"{directory}/{container_id}", text.encode("ascii"), 0o600)
    names = posix.listdir(directory)
    if len(names) <= _KEPT:
        return
    by_age = sorted(names, key=lambda name: posix.stat(f"{directory}/{name}").st_mtime_ns)
    for name in by_age[: len(names) - _KEPT]:
        posix.unlink(f"{directory}/{name}")


def every(directory: str) -> list[dict[str, Any]]:
    """All refusals that can be read, the latest first."""
    try:
        names = posix.listdir(directory)
    except OSError:
        return []
    found = [statefiles.read(f"{directory}/{name}") for name in names]
    known = [data for data in found if data is not None and "sentence" in data]
    return sorted(known, key=lambda data: data.get("refused", 0), reverse=True)
