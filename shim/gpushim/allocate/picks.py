"""Which of the devices that fit are taken for shared use, and which MIG devices.

Part of choosing; a create that takes whole GPUs for itself, or names them, needs none of it.
"""

from __future__ import annotations

from gpushim.allocate.wish import LINK, SPREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.choose import Links
    from gpushim.allocate.filter import Slot, Table
    from gpushim.allocate.wish import Wish

_UNBOUNDED = 1 << 62


def pick_shared(
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


def pick_mig(wish: Wish, count: int, fit: Sequence[Slot], table: Table) -> list[Slot] | None:
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
