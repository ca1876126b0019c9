"""Which devices a wish gets: filter, then score. Pure but for the one question to each lease.

Every finished container leaves its lease behind, so some are dead; one is asked whether its
container lives only if the answer depends on it, since asking costs as much as reading a file.
"""

from __future__ import annotations

from gpushim.allocate.filter import Slot, Table, misfit
from gpushim.allocate.grant import Grant, grant_named
from gpushim.allocate.lease import EXCLUSIVE, Booking
from gpushim.allocate.wish import LINK, SPREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpushim.allocate.filter import RealUse
    from gpushim.allocate.lease import Lease
    from gpushim.allocate.refusal import Refusal
    from gpushim.allocate.wish import Wish
    from gpushim.host.model import Gpu, MigDevice

    Links = Sequence[Sequence[int]]

_UNBOUNDED = 1 << 62


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
        return _pick_shared(wish, count, fit, table, links)
    if wish.mig:
        return _pick_mig(wish, count, fit, table)
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


def _pick_mig(wish: Wish, count: int, fit: Sequence[Slot], table: Table) -> list[Slot] | None:
    """The smallest MIG devices that fit, on the GPU of which most are taken (SPREAD: fewest)."""
    from gpushim.allocate.profiles import measures

    free: list[Slot] = []
    sized = [(measures(slot.mig.profile), slot) for slot in fit if slot.mig]
    for size in sorted({size for size, _ in sized}):
        # Larger ones are not even looked at while there are smaller ones.
        if len(free) < count:
            free += [slot for own, slot in sized if own == size and table.is_free(slot, wish)]
    if len(free) < count:
        return None
    sizes = {slot.uuid: size for size, slot in sized}
    taken = _taken_parts(table)
    sign = 1 if wish.placement == SPREAD else -1
    chosen: list[Slot] = []
    while len(chosen) < count:
        best = min(
            free,
            key=lambda slot: (sizes[slot.uuid], sign * taken[slot.gpu.index], slot.place()),
        )
        free.remove(best)
        chosen.append(best)
        taken[best.gpu.index] += 1
    return chosen


def _taken_parts(table: Table) -> dict[int, int]:
    """Index of a GPU -> how many of its MIG devices are in use, if all leases are alive."""
    taken = {slot.gpu.index: 0 for slot in table.slots}
    for slot in table.slots:
        if slot.mig is not None and slot.in_use():
            taken[slot.gpu.index] += 1
    return taken


def _pick_shared(
    wish: Wish, count: int, fit: Sequence[Slot], table: Table, links: Links
) -> list[Slot] | None:
    if wish.placement not in (LINK, SPREAD):
        return _pack(wish, count, fit, table)
    table.look(fit)
    free = [slot for slot in fit if slot.is_free(wish)]
    if len(free) < count:
        return None
    if wish.placement == LINK and not wish.mig:
        from gpushim.allocate.placement import linked

        chosen = linked([slot.gpu for slot in free], count, links, wish.numa != "off")
        return [slot for slot in free if slot.gpu in chosen]
    return sorted(free, key=lambda slot: (_size(slot), _emptiness(slot, wish)))[:count]


def _pack(wish: Wish, count: int, fit: Sequence[Slot], table: Table) -> list[Slot] | None:
    """The fullest devices that have room, so that whole ones stay free for who needs a whole one.

    All leases are taken for alive as long as it makes no difference: each device that is chosen
    because somebody uses it has one lease that was seen alive, and before one is chosen that nobody
    uses, all leases on those that seem too full were asked. So the loop ends, and it begins anew
    only after a dead lease was found.
    """
    while True:
        before = table.dead
        free = [slot for slot in fit if slot.is_free(wish)]
        full = [slot for slot in fit if slot not in free and not slot.kept]
        if len(free) < count:
            if not table.look(full):
                return None
            continue
        chosen = sorted(free, key=lambda slot: (_size(slot), _fullness(slot, wish)))[:count]
        for slot in chosen:
            table.any_lives(slot.entries)
        if not all(slot.in_use() for slot in chosen):
            table.look(full)
        if table.dead == before:
            return chosen


def _size(slot: Slot) -> tuple[int, int, int]:
    if slot.mig is None:
        return 0, 0, 0
    from gpushim.allocate.profiles import measures

    return measures(slot.mig.profile)


def _fullness(slot: Slot, wish: Wish) -> tuple[bool, int, int, tuple[int, int]]:
    """What devices are sorted by to have the fullest first: used at all, then what is left.

    By bytes left, so that of those that nobody uses a small one comes before a large one.
    """
    memory = _UNBOUNDED if slot.capacity is None else slot.capacity - slot.used()
    compute = 100 - slot.compute()
    by_compute = wish.compute > 0 and not (wish.memory or wish.memory_percent)
    left = (compute, memory) if by_compute else (memory, compute)
    return (not slot.in_use(), *left, slot.place())


def _emptiness(slot: Slot, wish: Wish) -> tuple[float, float, int, tuple[int, int]]:
    """What devices are sorted by to have the emptiest first: the part that is booked or used.

    Where a wish says no amount, how many share a device tells more than what they booked.
    """
    memory = slot.used() / slot.capacity if slot.capacity else 0.0
    part = max(memory, slot.compute() / 100)
    holders = float(len(slot.entries))
    busy = 0
    if slot.real is not None:
        holders += len(slot.real.processes)
        busy = slot.real.busy or 0
    amount = wish.memory or wish.memory_percent or wish.compute
    first, second = (part, holders) if amount else (holders, part)
    return first, second, busy, slot.place()


def _named(wish: Wish, gpus: Sequence[Gpu], table: Table) -> Choice | Refusal:
    """The devices that the request names, or all that there are."""
    found = grant_named(wish.request, gpus, {})
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
