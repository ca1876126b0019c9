"""A ticket: who waits for which GPUs, or has some kept for a container that is still to come.

A ticket is {"format": 1, "id", "client": [pid, start time], "boot", "priority", "arrival", "since",
"count", "devices", "open", "keys": {key: text}, "sources", "container", "state_root", "name"}. Any
user may write one, so each member is checked when it is read.
"""

from __future__ import annotations

import posix
import time

from gpushim.allocate.liveness import Roots
from gpushim.errors import GpushimError
from gpushim.request import keys as own_keys
from gpushim.request.keyvalues import LAST_PRIORITY
from gpushim.request.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1

_DIGITS = "0123456789abcdef"
_ID_LENGTH = 16
_MOST_DEVICES = 1024
_MOST_GPUS = 9999


class NewerTicket(ValueError):
    """A later version's ticket."""


class Ticket:
    """A place in line.

    id: 16 hexadecimal digits; owner: uid of the file's owner; client: pid and start time (clock
    ticks since boot) of the process that waits, or that will start the container; boot: the boot's
    id; priority: greater goes first; arrival: nanoseconds of CLOCK_BOOTTIME; since: seconds since
    the epoch; request: what is waited for (no more of it than what decides on devices); container,
    state_root, name: of the container that waits or has redeemed it, else "".
    """

    __slots__ = (
        "arrival",
        "boot",
        "client",
        "container",
        "id",
        "name",
        "owner",
        "priority",
        "request",
        "since",
        "state_root",
    )

    def __init__(self, id: str, client: tuple[int, int], priority: int, request: Request) -> None:
        self.id = id
        self.client = client
        self.priority = priority
        self.request = request
        self.owner = posix.geteuid()
        self.boot = ""
        self.arrival = 0
        self.since = 0
        self.container = ""
        self.state_root = ""
        self.name = ""

    def turn(self) -> tuple[int, int, str]:
        """What tickets are sorted by: priority, then arrival."""
        return -self.priority, self.arrival, self.id

    def lease_id(self) -> str:
        """The id of the lease that keeps its GPUs."""
        return f"ticket-{self.id}"

    def to_json(self) -> dict[str, Any]:
        request = self.request
        return {
            "format": FORMAT,
            "id": self.id,
            "client": list(self.client),
            "boot": self.boot,
            "priority": self.priority,
            "arrival": self.arrival,
            "since": self.since,
            "count": request.count,
            "devices": request.devices,
            "open": request.open,
            "keys": {key: own_keys.text_of(key, value) for key, value in request.keys.items()},
            "sources": request.sources,
            "container": self.container,
            "state_root": self.state_root,
            "name": self.name,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], owner: int) -> Ticket:
        """The ticket that `to_json` made `data` of.

        Raises ValueError, KeyError or TypeError for anything else, NewerTicket for what a later
        version made.
        """
        number = data["format"]
        if not _is_count(number) or number < FORMAT:
            raise ValueError("format")
        if number > FORMAT:
            raise NewerTicket("format")
        pid, started = data["client"]
        priority = data["priority"]
        ticket = cls(data["id"], (pid, started), priority, _request(data))
        ticket.owner = owner
        ticket.arrival, ticket.since = data["arrival"], data["since"]
        if type(priority) is not int or abs(priority) > LAST_PRIORITY or not is_id(ticket.id):
            raise ValueError("priority or id")
        if not all(map(_is_count, (pid, started, ticket.arrival, ticket.since))):
            raise ValueError("client, arrival or since")
        for member in ("boot", "container", "state_root", "name"):
            text = data[member]
            if type(text) is not str:
                raise TypeError(member)
            setattr(ticket, member, text)
        return ticket


def _request(data: dict[str, Any]) -> Request:
    count, devices, texts = data["count"], data["devices"], data["keys"]
    sources, is_open = data["sources"], data["open"]
    if type(devices) is not list or len(devices) > _MOST_DEVICES or type(is_open) is not bool:
        raise TypeError("devices or open")
    if count is not None and (not _is_count(count) or not 0 < count <= _MOST_GPUS):
        raise ValueError("count")
    if type(texts) is not dict or type(sources) is not dict or "devices" not in sources:
        raise TypeError("keys or sources")
    if any(type(text) is not str for text in (*devices, *texts.values(), *sources.values())):
        raise TypeError("a text")
    request = Request(devices, [], sources)
    request.count, request.open = count, is_open
    for key, text in texts.items():
        try:
            request.keys[key] = own_keys.parse(key, text, "ticket")
        except GpushimError:
            raise ValueError("keys") from None
        sources.setdefault(key, "ticket")
    return request


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def is_id(text: object) -> bool:
    return isinstance(text, str) and len(text) == _ID_LENGTH and not text.strip(_DIGITS)


def new(request: Request, client: tuple[int, int], priority: int) -> Ticket:
    """A ticket of this moment, which is nowhere on record yet."""
    ticket = Ticket(posix.urandom(_ID_LENGTH // 2).hex(), client, priority, request)
    ticket.boot = Roots().boot
    ticket.arrival = arrival_now()
    ticket.since = int(time.time())
    return ticket


def arrival_now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
