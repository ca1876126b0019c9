"""Which devices a wish gets: filter, then score. Pure but for the one question to each lease.

Every finished container leaves its lease behind, so some are dead; one is asked whether its
container lives only if the answer depends on it, since asking costs as much as reading a file.
"""

from __future__ import annotations

from gpushim.allocate.filter import Slot, Table, misfit
from gpushim.allocate.grant import Grant, grant_named
from gpushim.allocate.lease import EXCLUSIVE, Booking
from gpushim.allocate.wish import LINK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpushim.allocate.filter import RealUse
    from gpushim.allocate.lease import Lease
    from gpushim.allocate.refusal import Refusal
    from gpushim.allocate.wish import Wish
    from gpushim.host.model import Gpu, MigDevice

    Links = Sequence[Sequence[int]]


class Choice:
    """Devices that were found, in PCI bus order, and what is booked of each.

    bookings: (GPU, MIG device or None for the whole GPU, booking); notes: sentences on what `all`
    leaves out.
    """

    __slots__ = ("bookings", "notes")

    def __init__(
        self, bookings: list[tuple[Gpu, MigDevice | None, Booking]], notes: list[str]
    ) -> None:
        self.bookings = bookings
        self.notes = notes

    def grant(self, capabilities: list[str]) -> Grant:
        """The same devices as a grant."""
        return Grant(
            [gpu for gpu, mig, _ in self.bookings if mig is None],
            capabilities,
            [(gpu, mig) for gpu, mig, _ in self.bookings if mig is not None],
            self.notes,
        )


def _all_live(lease: Lease) -> bool:
    return True


def choose(
    wish: Wish,
    gpus: Sequence[Gpu],
    leases: Sequence[Lease],
    *,
    real: Mapping[str, RealUse] | None = None,
    links: Links = (),
    kept_out: Mapping[str, str] | None = None,
    preferred: Collection[str] = (),
    reserve: int = 0,
    alive: Callable[[Lease], bool] = _all_live,
) -> Choice | Refusal:
    """The devices that a wish gets, or why there are not enough.

    leases: of others; of the same container's former one, give the devices as `preferred`, which
    are taken before all others if there are enough of them; real: UUID -> what processes without a
    booking use, None if nobody looked; links: the matrix of host/topology.py; kept_out: UUID -> why
    a device is not given, KEPT_OUT for those that no waiting gets; reserve: bytes that the driver
    keeps of each GPU of which NVML did not tell; alive: whether a lease's container lives, asked at
    most once for each lease and only if it matters. Raises Unavailable for a name that is no
    working device here.
    """
    table = Table(gpus, leases, real, kept_out or {}, reserve, alive)
    if wish.count is None:
        return _named(wish, gpus, table)
    slots = [slot for slot in table.slots if (slot.mig is not None) == bool(wish.mig)]
    fit = [slot for slot in slots if not misfit(slot, wish)]
    chosen = None
    if len(fit) >= wish.count:
        same = [slot for slot in fit if slot.uuid in preferred]
        if len(same) >= wish.count:
            chosen = _pick(wish, wish.count, same, table, links)
        if chosen is None:
            chosen = _pick(wish, wish.count, fit, table, links)
    if chosen is None:
        return _refusal(wish, slots or table.slots, table, never=len(fit) < wish.count)
    return _choice(wish, chosen, [])


def _choice(wish: Wish, slots: Sequence[Slot], notes: list[str]) -> Choice:
    bookings = [
        (slot.gpu, slot.mig, Booking(slot.uuid, wish.mode, *_amounts(wish, slot)))
        for slot in sorted(slots, key=Slot.place)
    ]
    return Choice(bookings, notes)


def _amounts(wish: Wish, slot: Slot) -> tuple[int, int]:
    return wish.memory_of(slot.capacity), wish.compute


def _refusal(wish: Wish, slots: Sequence[Slot], table: Table, never: bool) -> Refusal:
    from gpushim.allocate.refusal import Refusal

    # What is told of them has to be true of each.
    table.look(slots)
    free = [slot for slot in slots if not misfit(slot, wish) and slot.is_free(wish)]
    return Refusal(wish, slots, free, never)


def _pick(
    wish: Wish, count: int, fit: Sequence[Slot], table: Table, links: Links
) -> list[Slot] | None:
    """`count` of the devices that fit, of those that are free; None if too few are."""
    if wish.mode != EXCLUSIVE:
        from gpushim.allocate.picks import pick_shared

        return pick_shared(wish, count, fit, table, links)
    if wish.mig:
        from gpushim.allocate.picks import pick_mig

        return pick_mig(wish, count, fit, table)
    free = [slot for slot in fit if table.is_free(slot, wish)]
    if len(free) < count:
        return None
    from gpushim.allocate.placement import linked, spaced

    gpus = [slot.gpu for slot in free]
    if wish.placement == LINK:
        chosen = linked(gpus, count, links, wish.numa != "off")
    else:
        taken = [slot.gpu for slot in fit if slot not in free]
        chosen = spaced(gpus, count, taken, links, wish.placement)
    return [slot for slot in free if slot.gpu in chosen]


def _named(wish: Wish, gpus: Sequence[Gpu], table: Table) -> Choice | Refusal:
    """The devices that the request names, or all that there are."""
    found = grant_named(wish.request, gpus)
    uuids = set(found.uuids())
    slots = [slot for slot in table.slots if slot.uuid in uuids]
    fit = [slot for slot in slots if not misfit(slot, wish)]
    free = [slot for slot in fit if table.is_free(slot, wish)]
    notes = found.warnings
    if wish.every() and wish.mode != EXCLUSIVE:
        if not free:
            return _refusal(wish, slots, table, never=not fit)
        return _choice(wish, free, notes + _left_out(wish, slots, free, table))
    # Who wants every GPU to itself wants those that fit; who names some wants these.
    wanted = fit if wish.every() else slots
    if len(free) < len(wanted) or (slots and not wanted):
        return _refusal(wish, slots, table, never=len(fit) < len(wanted) or not fit)
    return _choice(wish, free, notes)


def _left_out(wish: Wish, slots: Sequence[Slot], free: Sequence[Slot], table: Table) -> list[str]:
    """A sentence for each device that `all` does not give because somebody has it."""
    left = [slot for slot in slots if slot not in free and (slot.kept or not misfit(slot, wish))]
    if not left:
        return []
    from gpushim.allocate.refusal import left_out

    table.look(left)
    return [left_out(slot, wish) for slot in left]
