"""The snapshot: what refresh found out, kept as one file that each create reads and checks.

/run/gpushim/host.json is {"format": 1, "finished": seconds, "fingerprint": ..., "inventory": ...,
"config": ..., "problems": [sentence, ...]}; finished is on CLOCK_BOOTTIME. Where it no longer
holds, a child process with the interpreter that gpushim was installed with makes it anew, one at
a time. What that child found out incompletely goes into host.partial.json and serves only those
who were already waiting for it.
"""

from __future__ import annotations

import time

from .config import Config
from .host import fingerprint, statefiles
from .host.model import Inventory
from .oci.files import write_whole
from .oci.jsontext import dumps
from .places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = statefiles.FORMAT


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
    from .renew import renewed

    return renewed(places, key, [], started=None)


def refresh_again(places: Places, key: str, reason: str, minors: list[int]) -> Snapshot:
    """A snapshot that was finished after this call began.

    For when the one at hand proved wrong: a device node is missing, or a GPU that is asked for is
    unknown or ill. reason: a few words for the log; minors: of the GPUs whose nodes are needed.
    Raises GpushimError with the reason if it fails.
    """
    from .renew import renewed

    return renewed(places, key, minors, started=now(), reason=reason)


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
