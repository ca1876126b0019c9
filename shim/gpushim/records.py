"""What was decided for each live container, for exec, explain and ps.

A directory per container id. In it, named by the crc32 of the runtime root and by the creator's
pid and start time, `<name>.json` (0600, it holds environment values) and a symbolic link
`<name>.state` to the low-level runtime's own state directory. A record whose link leads nowhere
and whose creator has gone belongs to a container that is gone, and is dropped. Since no name ever
comes again, dropping one can't hit a record that another create writes at the same moment.
"""

from __future__ import annotations

import binascii
import errno
import posix
import time

from gpushim.oci.files import make_directories, read_small, write_whole
from gpushim.oci.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

FORMAT = 1
_YOUNG_SECONDS = 60


class Record:
    """The decision for one container; `data` is plain JSON.

    Keys: format, id, state_root, runtime (path of the low-level runtime), bundle, creator ([pid,
    start time in clock ticks since boot]), request, grant, edits, env (what exec adds), created
    (seconds since the epoch), warnings, notes (what was written into the root, for one).
    """

    __slots__ = ("data", "path")

    def __init__(self, path: str, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data


def write(directory: str, container_id: str, state_root: str, data: dict[str, Any]) -> None:
    """Keeps `data` as the record of one container, in place of an earlier one of the same name.

    Raises OSError if it cannot be kept.
    """
    folder = f"{directory}/{container_id}"
    pid, started = data.get("creator", (0, 0))
    name = f"{_root_key(state_root)}-{pid}-{started}"
    former = [other for other in _of_root(folder, state_root) if other != name]
    # The link comes second: until there is state, the creator's life is what keeps the record.
    record = {"format": FORMAT, "id": container_id, "state_root": state_root, **data}
    _write(folder, f"{name}.json", dumps(record).encode("ascii"))
    try:
        posix.symlink(f"{state_root}/{container_id}", f"{folder}/{name}.state")
    except FileExistsError:
        pass
    for other in former:
        _drop(folder, other)


def _write(folder: str, file: str, data: bytes) -> None:
    for last in (False, False, False, True):
        make_directories(folder)
        try:
            write_whole(f"{folder}/{file}", data, 0o600)
            return
        except FileNotFoundError:
            # Another create, which collects, found the directory empty and removed it.
            if last:
                raise
        except OSError:
            _remove_if_empty(folder)
            raise


def find(directory: str, container_id: str, state_root: str) -> Record | None:
    """The record of one container; None where there is none or it is not readable as one."""
    folder = f"{directory}/{container_id}"
    # There are two for a moment while a new one is written; the later creator's is the right one.
    for name in sorted(_of_root(folder, state_root), key=_creator, reverse=True):
        record = _read(f"{folder}/{name}.json")
        if record is not None:
            return record
    return None


def remove(directory: str, container_id: str, state_root: str) -> None:
    """Drops one container's record; nothing happens if there is none."""
    folder = f"{directory}/{container_id}"
    for name in _of_root(folder, state_root):
        _drop(folder, name)


def every(directory: str) -> Iterator[Record]:
    """The records of all containers that live (or are being made)."""
    for folder in _folders(directory):
        for name in _in(folder):
            record = _read(f"{folder}/{name}.json")
            if record is not None and _alive(folder, name):
                yield record


def collect(directory: str) -> None:
    """Drops the records of containers that are gone."""
    for folder in _folders(directory):
        names = _in(folder)
        for name in names:
            if not _alive(folder, name):
                _drop(folder, name)
        if not names and _is_old(folder):
            _remove_if_empty(folder)  # a create was killed before it wrote


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since boot (proc(5), stat field 22); 0 if it is gone."""
    try:
        stat = read_small(f"/proc/{pid}/stat", 4096).decode("ascii", "replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _root_key(state_root: str) -> str:
    return f"{binascii.crc32(state_root.encode('utf-8', 'surrogateescape')):08x}"


def _creator(name: str) -> tuple[int, int]:
    """Start time and pid of the process that wrote the record `name`; zeros for another name."""
    words = name.split("-")
    if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
        return int(words[2][:18]), int(words[1][:18])
    return 0, 0


def _in(folder: str) -> list[str]:
    """The records in one container's directory, whole or not."""
    try:
        return sorted({file.partition(".")[0] for file in posix.listdir(folder)})
    except OSError:
        return []


def _of_root(folder: str, state_root: str) -> list[str]:
    key = _root_key(state_root) + "-"
    return [name for name in _in(folder) if name.startswith(key)]


def _folders(directory: str) -> list[str]:
    try:
        return [f"{directory}/{container_id}" for container_id in posix.listdir(directory)]
    except OSError:
        return []


def _alive(folder: str, name: str) -> bool:
    """Whether the container still has state, or its creator is still at work."""
    try:
        posix.stat(f"{folder}/{name}.state")
        return True
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            return True
    started, pid = _creator(name)
    return started > 0 and start_time(pid) == started


def _read(path: str) -> Record | None:
    try:
        data = loads(read_small(path, 16 << 20).decode("utf-8", "surrogateescape"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return None
    return Record(path, data)


def _drop(folder: str, name: str) -> None:
    """Removes all files of a record, also what a killed writer left, and an empty directory."""
    try:
        for file in posix.listdir(folder):
            if file.partition(".")[0] == name:
                try:
                    posix.unlink(f"{folder}/{file}")
                except OSError:
                    pass
    except OSError:
        pass
    _remove_if_empty(folder)


def _is_old(folder: str) -> bool:
    """Whether it is so long since a directory changed that no create is about to write there."""
    try:
        return posix.stat(folder).st_mtime < time.time() - _YOUNG_SECONDS
    except OSError:
        return False


def _remove_if_empty(folder: str) -> None:
    try:
        posix.rmdir(folder)
    except OSError:
        pass
