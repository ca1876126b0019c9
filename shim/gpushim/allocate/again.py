"""The very devices of a checkpoint, booked again: there is nothing to choose, only to allow."""

from __future__ import annotations

from gpushim.allocate.filter import Table
from gpushim.allocate.lease import EXCLUSIVE
from gpushim.allocate.wish import Wish
from gpushim.request.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpushim.allocate.filter import Slot
    from gpushim.allocate.lease import Booking, Lease
    from gpushim.host.model import Gpu


def in_the_way(
    bookings: Sequence[Booking],
    gpus: Sequence[Gpu],
    leases: Sequence[Lease],
    alive: Callable[[Lease], bool],
) -> list[tuple[Booking, Lease]]:
    """Of each booking that can't be made now, one lease of another container that is the reason.

    leases: those of others; alive: as `choose` has it. What is drained or kept out is no reason,
    since the container had its devices before.
    """
    table = Table(gpus, leases, None, {}, 0, alive)
    slots = {slot.uuid: slot for slot in table.slots}
    found = []
    for booking in bookings:
        slot = slots.get(booking.uuid)
        if slot is None or table.is_free(slot, _wish(booking)):
            continue
        found.append((booking, _first(slot, booking)))
    return found


def _wish(booking: Booking) -> Wish:
    wish = Wish(Request([], [], {}), None, booking.mode)
    wish.memory, wish.compute = booking.memory, booking.compute
    return wish


def _first(slot: Slot, booking: Booking) -> Lease:
    """Where nobody is in the way by itself, those who share leave too little."""
    return (slot.against(_wish(booking)) or slot.entries)[0][0]


def words(lease: Lease, uuid: str) -> str:
    """Who it is and how it has the device, for a sentence."""
    own = next((each for each in lease.bookings if each.uuid == uuid), lease.bookings[0])
    alone = " for itself" if own.mode == EXCLUSIVE else ""
    return f"{lease.name or lease.id} has it{alone}"
