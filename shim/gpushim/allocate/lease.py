"""What a container has booked, and the one file that says so.

A lease is {"format": 1, "id", "state_root", "name", "engine", "runtime", "family", "cgroup",
"creator": [pid, start time], "boot", "since", "expires", "owner", "ticket", "bookings": [{"uuid",
"mode", "memory", "compute"}, ...], "labels": {name: value}}. Any user may write one, so each member
is checked when it is read.
"""

from __future__ import annotations

import binascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1

# How a device is booked. EXCLUSIVE: nobody else gets it; SHARED: as much of it as is booked; OPEN:
# named, as others may do, too, but it isn't chosen for exclusive use meanwhile; ALL: by `all`,
# which is in nobody's way.
EXCLUSIVE = "exclusive"
SHARED = "shared"
OPEN = "open"
ALL = "all"
MODES = (EXCLUSIVE, SHARED, OPEN, ALL)

# File names end at 255 bytes (NAME_MAX); an id that leaves no room is told by its digest.
_LONGEST_ID = 200
_TEXTS = (
    "id", "state_root", "name", "engine", "runtime", "family", "cgroup", "boot", "ticket",
)  # fmt: skip


class Booking:
    """One device of a lease.

    uuid: of a GPU or a MIG device; mode: one of MODES; memory: bytes booked, 0 where none were
    named; compute: percent of the device booked, 0 where none was named.
    """

    __slots__ = ("compute", "memory", "mode", "uuid")

    def __init__(self, uuid: str, mode: str, memory: int = 0, compute: int = 0) -> None:
        self.uuid = uuid
        self.mode = mode
        self.memory = memory
        self.compute = compute

    def to_json(self) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "mode": self.mode,
            "memory": self.memory,
            "compute": self.compute,
        }


class Lease:
    """What one container has booked, and how to tell whether it lives.

    id, state_root: the container's, the root of the low-level runtime's state as a real path;
    name: Docker's, or ""; engine: "docker", "podman" and so on, or ""; runtime: path of the
    low-level runtime; family: "runc" or "crun"; cgroup: cgroupsPath of the spec, or ""; creator:
    pid and start time (clock ticks since boot) of the process that booked and became the runtime;
    boot: the boot's id; since: seconds since the epoch; owner: uid of the file's owner; ticket: the
    one that was redeemed for it, or ""; labels: only those that a configured limit needs; path: of
    its file, "" as long as there is none.
    """

    __slots__ = (
        "bookings",
        "boot",
        "cgroup",
        "creator",
        "engine",
        "expires",
        "family",
        "id",
        "labels",
        "name",
        "owner",
        "path",
        "runtime",
        "since",
        "state_root",
        "ticket",
    )

    def __init__(
        self, id: str, state_root: str, creator: tuple[int, int], bookings: list[Booking]
    ) -> None:
        self.id = id
        self.state_root = state_root
        self.creator = creator
        self.bookings = bookings
        self.name = ""
        self.engine = ""
        self.runtime = ""
        self.family = ""
        self.cgroup = ""
        self.boot = ""
        self.since = 0
        self.expires = 0
        self.owner = 0
        self.ticket = ""
        self.labels: dict[str, str] = {}
        self.path = ""

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"format": FORMAT}
        for member in _TEXTS:
            data[member] = getattr(self, member)
        data["creator"] = list(self.creator)
        data["since"] = self.since
        data["expires"] = self.expires
        data["owner"] = self.owner
        data["bookings"] = [booking.to_json() for booking in self.bookings]
        data["labels"] = self.labels
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any], path: str = "", owner: int | None = None) -> Lease:
        """The lease that `to_json` made `data` of.

        owner: the file's, which outweighs what the data says. Raises ValueError, KeyError or
        TypeError for anything else, NewerFormat for what a later version made.
        """
        number = data["format"]
        if not _is_count(number) or number < FORMAT:
            raise ValueError("format")
        if number > FORMAT:
            raise NewerFormat(number)
        if type(data["bookings"]) is not list:
            raise TypeError("bookings")
        pid, started = data["creator"]
        bookings = [_booking(each) for each in data["bookings"]]
        lease = cls(data["id"], data["state_root"], (pid, started), bookings)
        for member in _TEXTS:
            text = data[member]
            if type(text) is not str:
                raise TypeError(member)
            setattr(lease, member, text)
        lease.since, lease.expires = data["since"], data["expires"]
        lease.owner = data["owner"] if owner is None else owner
        lease.labels = labels = data["labels"]
        for each in (pid, started, lease.since, lease.expires, lease.owner):
            if not _is_count(each):
                raise ValueError("creator, since, expires or owner")
        if type(labels) is not dict or any(type(value) is not str for value in labels.values()):
            raise TypeError("labels")
        lease.path = path
        return lease


class NewerFormat(ValueError):
    """A later version's lease; `number` is its format."""

    def __init__(self, number: int) -> None:
        super().__init__(f"format {number}")
        self.number = number


def _booking(data: dict[str, Any]) -> Booking:
    uuid, mode, memory, compute = data["uuid"], data["mode"], data["memory"], data["compute"]
    if type(uuid) is not str or mode not in MODES:
        raise ValueError("booking")
    if not _is_count(memory) or not _is_count(compute) or compute > 100:
        raise ValueError("booking")
    return Booking(uuid, mode, memory, compute)


def _is_count(value: object) -> bool:
    """Whether this is an integer that 64 bits hold; true and false are none."""
    return type(value) is int and 0 <= value < 1 << 63


def file_name(id: str, state_root: str, owner: int) -> str:
    """The name of a container's lease file, the same for each create of that container.

    The owner is in it since in a directory of everybody's nobody may replace another's file.
    """
    key = binascii.crc32(state_root.encode("utf-8", "surrogateescape"))
    shown = id
    if len(id.encode("utf-8", "surrogateescape")) > _LONGEST_ID:
        from gpushim.oci.files import digest_of

        shown = "=" + digest_of(id.encode("utf-8", "surrogateescape"))
    return f"{key:08x}-{owner}-{shown}.json"
