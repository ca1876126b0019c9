"""The snapshot: what refresh found out, kept as one file that each create reads and checks.

/run/gpushim/host.json is {"format": 1, "finished": seconds, "fingerprint": ..., "inventory": ...,
"config": ..., "problems": [sentence, ...]}; finished is on CLOCK_BOOTTIME. Where it no longer
holds, a child process with the interpreter that gpushim was installed with makes it anew, one at
a time. What that child found out incompletely goes into host.partial.json and serves only those
who were already waiting for it.
"""

from __future__ import annotations

import posix
import time

from .config import Config
from .errors import GpushimError
from .host import fingerprint, statefiles
from .host.model import Inventory
from .oci.files import make_directories, write_whole
from .oci.jsontext import dumps
from .places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = statefiles.FORMAT

_LOCK_SECONDS = 300.0
_POLL_SECONDS = 0.01


class Snapshot:
    """What this machine is and how gpushim is configured.

    finished: when refresh was done, in seconds of CLOCK_BOOTTIME; problems: sentences on what is
    amiss; kept: whether later creates will find it, which is so unless it is incomplete or the
    state directory can't be written.
    """

    __slots__ = ("config", "finished", "inventory", "kept", "problems")

    def __init__(
        self,
        inventory: Inventory,
        config: Config,
        finished: float,
        problems: list[str],
        kept: bool = True,
    ) -> None:
        self.inventory = inventory
        self.config = config
        self.finished = finished
        self.problems = problems
        self.kept = kept

    def has_tree(self, key: str) -> bool:
        """Whether the driver tree for a capability key is there, in the file and on disk."""
        tree = self.inventory.trees.get(key)
        return tree is not None and statefiles.is_directory(tree.path)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "finished": self.finished,
            "inventory": self.inventory.to_json(),
            "config": self.config.to_json(),
            "problems": self.problems,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], kept: bool = True) -> Snapshot:
        """Raises KeyError, TypeError or the like for what `to_json` did not make."""
        return cls(
            Inventory.from_json(data["inventory"]),
            Config.from_json(data["config"]),
            data["finished"],
            data["problems"],
            kept,
        )


def now() -> float:
    """Seconds since boot, those of suspension included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def load(places: Places) -> Snapshot | None:
    """The kept snapshot; None if there is none, it can't be read, or it no longer holds.

    Raises GpushimError if a newer version of gpushim wrote it.
    """
    data = statefiles.read(places.snapshot)
    try:
        if data is None or not fingerprint.holds(data["fingerprint"]):
            return None
        return Snapshot.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def obtain(places: Places, key: str) -> Snapshot:
    """The snapshot that holds now, with the driver tree for a capability key.

    Runs a refresh if there is none yet. Raises GpushimError with the reason if it fails.
    """
    found = load(places)
    if found is not None and found.has_tree(key):
        return found
    return _refreshed(places, key, [], started=None)


def refresh_again(places: Places, key: str, reason: str, minors: list[int]) -> Snapshot:
    """A snapshot that was finished after this call began.

    For when the one at hand proved wrong: a device node is missing, or a GPU that is asked for is
    unknown or ill. reason: a few words for the log; minors: of the GPUs whose nodes are needed.
    Raises GpushimError with the reason if it fails.
    """
    return _refreshed(places, key, minors, started=now(), reason=reason)


def keep_config(places: Places, config: Config, stamp: Any) -> None:
    """Keeps the configuration by itself, for when nothing else of a snapshot can be found out.

    stamp: what `fingerprint.file_stamp` said of its file before it was read. Raises OSError.
    """
    data = {"format": FORMAT, "stamp": stamp, "config": config.to_json()}
    write_whole(places.read_config, dumps(data).encode("ascii"), 0o644)


def known_config(places: Places) -> Config | None:
    """The configuration, if it was read since its file was edited last; None if not."""
    for state in (places, statefiles.own_places(places)):
        data = statefiles.read(state.read_config)
        try:
            if data is not None and data["stamp"] == fingerprint.file_stamp(places.config):
                return Config.from_json(data["config"])
        except (KeyError, TypeError):
            continue
    return None


def partial_path(places: Places) -> str:
    return places.run + "/host.partial.json"


def _refreshed(
    places: Places, key: str, minors: list[int], started: float | None, reason: str = ""
) -> Snapshot:
    """Wait for a refresh that serves, or run one.

    started: a kept snapshot serves only if it was finished after this; None: any that holds.
    """
    import fcntl

    began = now()
    state = statefiles.own_places(places)
    lock = _open_lock(state)
    request = _request(key, minors)
    try:
        deadline = began + _LOCK_SECONDS
        seen: list[tuple[int, int]] = []
        while lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                pass
            if now() > deadline:
                raise GpushimError(
                    "Another refresh of this machine's inventory has not ended in "
                    f"{_LOCK_SECONDS:g} seconds.",
                )
            # Another refreshes: what it finds serves all who wait, without a turn at the lock.
            if (there := _identities(state)) != seen:
                seen = there
                found = _serving(state, key, request, began, started)
                if found is not None:
                    return found
            time.sleep(_POLL_SECONDS)
        found = _serving(state, key, request, began, started)
        if found is not None:
            return found
        return _run_child(places, state, key, minors, reason, lock)
    finally:
        if lock is not None:
            posix.close(lock)


def _serving(
    state: Places, key: str, request: str, began: float, started: float | None
) -> Snapshot | None:
    """A snapshot that somebody else's refresh left, if it serves; None if not.

    Raises the GpushimError that somebody else's refresh met with the very same request.
    """
    found = load(state)
    if found is not None and found.has_tree(key) and (started is None or found.finished >= started):
        return found
    data = statefiles.read(partial_path(state))
    try:
        if data is None or data["boot"] != fingerprint.boot_id() or data["finished"] < began:
            return None
        if "error" in data:
            if data["request"] == request:
                raise GpushimError(data["error"]["sentence"], data["error"]["hint"])
            return None
        found = Snapshot.from_json(data["snapshot"], kept=False)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    return found if found.has_tree(key) else None


def _identities(state: Places) -> list[tuple[int, int]]:
    found = []
    for path in (state.snapshot, partial_path(state)):
        try:
            facts = posix.stat(path)
        except OSError:
            continue
        found.append((facts.st_ino, facts.st_mtime_ns))
    return found


def _request(key: str, minors: list[int]) -> str:
    """What is asked of a refresh, as text: an error is shared only with those who ask the same."""
    return f"{key} {','.join(str(minor) for minor in sorted(minors))}"


def _run_child(
    places: Places, state: Places, key: str, minors: list[int], reason: str, lock: int | None
) -> Snapshot:
    from .host import refresh_process

    arguments = ["--root", places.root, "--run", state.run, "--lib", state.lib]
    arguments += ["--capabilities", key, "--minors", ",".join(str(minor) for minor in minors)]
    arguments += ["--reason", reason]
    program = refresh_process.interpreter(places.installation)
    result = refresh_process.run(program, arguments, lock)
    return Snapshot.from_json(result["snapshot"], kept=result["kept"])


def _open_lock(state: Places) -> int | None:
    """The lock file of refresh, open; None where the state directory can't be made or written."""
    try:
        make_directories(state.run)
        flags = posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
        return posix.open(state.refresh_lock, flags, 0o600)
    except OSError:
        return None
