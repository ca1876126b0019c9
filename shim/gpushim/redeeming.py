"""A create with a ticket: it gets what the ticket holds."""

from __future__ import annotations

from gpushim.allocate.choose import Choice
from gpushim.allocate.grant import Unavailable
from gpushim.allocate.tickets import hand_over, redeemable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpushim.allocate.book import Book
    from gpushim.allocate.lease import Lease
    from gpushim.asker import Asker
    from gpushim.host.model import Gpu, MigDevice
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot


def redeemed(
    book: Book,
    snapshot: Snapshot,
    request: Request,
    asker: Asker,
    lease_of: Callable[[Choice], Lease],
) -> tuple[Choice, Lease] | None:
    """What a ticket holds, as this container's own; None if it asks like any other.

    lease_of: makes the container's lease. Raises Unavailable for devices that have gone, and
    GpushimError for more of them than those of its label may have; the ticket stays good then.
    """
    call = asker.call
    container_id = call.invocation.container_id
    found = redeemable(book, call.places, request.keys["ticket"], container_id, asker.state_root)
    if found is None:
        return None
    ticket, kept = found
    devices: dict[str, tuple[Gpu, MigDevice | None]] = {}
    for gpu in snapshot.inventory.gpus:
        devices[gpu.uuid] = (gpu, None)
        devices.update({mig.uuid: (gpu, mig) for mig in gpu.mig_devices})
    gone = [booking.uuid for booking in kept.bookings if booking.uuid not in devices]
    if gone:
        raise Unavailable(f"The ticket {ticket.id} holds {', '.join(gone)}, which is not here now.")
    choice = Choice([(*devices[booking.uuid], booking) for booking in kept.bookings], [])
    lease = lease_of(choice)
    lease.ticket = ticket.id
    if lease.labels:
        from gpushim.maximum import check_maximum

        others = [other for other in book.leases if other is not kept]
        check_maximum(book, lease, f"ticket {ticket.id}", snapshot.config, others)
    hand_over(book, call.places, ticket, kept, lease)
    return choice, lease
