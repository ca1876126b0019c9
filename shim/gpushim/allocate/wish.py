"""What an allocation has to find for a request: how many of what, and in which way they are booked.

What each way of asking becomes:

| asked for                                         | booked                                      |
|---------------------------------------------------|---------------------------------------------|
| a count                                           | exclusive; with allocate.counts = "spread"  |
|                                                   | shared on the least used                    |
| anything with memory, compute or mode=shared      | shared, as much as was said                 |
| mode=exclusive                                    | exclusive                                   |
| names (ids, UUIDs, CDI names)                     | open                                        |
| `all`                                             | all                                         |
| names from Swarm, or that request.visible-devices | exclusive                                   |
| makes a request like any other                    |                                             |
"""

from __future__ import annotations

from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, SHARED
from gpushim.request.request import ALL as EVERY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.request.request import Request

LINK, PACK, SPREAD = "link", "pack", "spread"
# What allocate.counts may be, besides "exclusive".
COUNTS_SPREAD = "spread"


class Wish:
    """What an allocation has to find.

    count: how many devices; None where the request names them, or wants every one of them; mode:
    how each is booked (one of lease.MODES); memory: bytes of each device, 0 for none said;
    memory_percent: of what can be booked of each, 0 for none said; compute: percent of each, 0 for
    none said; model: a shell pattern, or ""; capability: [operator, "8.0"], or []; mig: the profile
    that a MIG device has to have at least, or ""; placement: LINK, PACK or SPREAD; numa: "bind",
    "prefer" or "off"; over: whether what is open is given although somebody else holds it
    exclusively; optional: whether the container starts without; request: what all this is from.
    """

    __slots__ = (
        "capability",
        "compute",
        "count",
        "memory",
        "memory_percent",
        "mig",
        "mode",
        "model",
        "numa",
        "optional",
        "over",
        "placement",
        "request",
    )

    def __init__(self, request: Request, count: int | None, mode: str) -> None:
        self.request = request
        self.count = count
        self.mode = mode
        self.memory = 0
        self.memory_percent = 0
        self.compute = 0
        self.model = ""
        self.capability: list[str] = []
        self.mig = ""
        self.placement = LINK
        self.numa = "prefer"
        self.over = False
        self.optional = False

    def memory_of(self, capacity: int | None) -> int:
        """Bytes that are booked of a device on which `capacity` bytes can be booked in all."""
        if self.memory_percent:
            return (capacity or 0) * self.memory_percent // 100
        return self.memory

    def every(self) -> bool:
        """Whether it is for all devices there are."""
        return self.count is None and self.request.devices == [EVERY]


def wish_of(
    request: Request, counts: str = "exclusive", numa: str = "prefer", over: bool = False
) -> Wish:
    """The wish that a request comes down to.

    counts: the configuration's allocate.counts; numa: its limits.numa, for where the request says
    nothing; over: whether an open grant may be of what another container holds exclusively
    (request.grant-over-exclusive, or request.all-from-environment = "all").
    """
    keys = request.keys
    wish = Wish(request, request.count, _mode(request, counts))
    memory = keys.get("memory", 0)
    if isinstance(memory, str):
        wish.memory_percent = int(memory.rstrip("%"))
    else:
        wish.memory = memory
    wish.compute = keys.get("compute", 0)
    wish.model = keys.get("model", "")
    wish.capability = keys.get("compute-capability", [])
    wish.mig = keys.get("mig", "")
    wish.placement = keys.get("placement") or _placement(wish)
    wish.numa = keys.get("numa", numa)
    wish.over = over and wish.mode in (OPEN, ALL)
    wish.optional = keys.get("optional", False)
    return wish


def _mode(request: Request, counts: str) -> str:
    keys = request.keys
    if "mode" in keys:
        return EXCLUSIVE if keys["mode"] == "exclusive" else SHARED
    if "memory" in keys or "compute" in keys:
        return SHARED
    if request.count is not None:
        return SHARED if counts == COUNTS_SPREAD else EXCLUSIVE
    # An image has `all` in it by itself, so that it never books what others could not use then.
    if request.devices == [EVERY]:
        return ALL
    return OPEN if request.open else EXCLUSIVE


def _placement(wish: Wish) -> str:
    keys = wish.request.keys
    if wish.mode != SHARED:
        return LINK
    # Where nobody says how much of a GPU he needs, two on one are slower than two on two.
    return PACK if "memory" in keys or "compute" in keys else SPREAD


def size_words(size: int) -> str:
    """Bytes for a sentence: "20 GiB", "79.3 GiB", "512 MiB"."""
    unit, name = (1 << 30, "GiB") if size >= 1 << 30 else (1 << 20, "MiB")
    tenths = size * 10 // unit
    return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''} {name}"
