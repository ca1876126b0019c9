"""What a create does with a ticket: it is redeemed once, by one container.

A container that has redeemed one may be started again: the same ticket then tells what it needs.
"""

from __future__ import annotations

import posix

from gpushim.allocate import ticketfiles
from gpushim.allocate.book import every
from gpushim.allocate.liveness import Roots, is_machine_root, lives
from gpushim.allocate.ticket import NewerTicket, Ticket
from gpushim.allocate.ticketfiles import CANCELLED, READY, REDEEMED, WAITING
from gpushim.errors import GpushimError
from gpushim.request.ticketed import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.book import Book
    from gpushim.allocate.lease import Lease
    from gpushim.places import Places
    from gpushim.request.request import Request
    from gpushim.request.ticketed import Reserved

_AGAIN = "'gpushimctl run' and 'gpushimctl reserve' take new ones."


def reserved_for(places: Places, container: str, state_root: str) -> Reserved:
    """What tells `read_request` what a ticket was taken for, if this container may redeem it."""

    def reserved(id: str) -> Request:
        return _find(places, id, container, state_root)[0].request

    return reserved


def redeemable(
    book: Book, places: Places, id: str, container: str, state_root: str
) -> tuple[Ticket, Lease] | None:
    """A ticket, and the lease that keeps its devices, for `hand_over`.

    None where the container has redeemed the ticket before and is started again: it is a request
    like any other then. Raises GpushimError for a ticket that is not to be redeemed.
    """
    ticket, is_redeemed = _find(places, id, container, state_root)
    if is_redeemed:
        return None
    lease = next((each for each in book.leases if _is_lease_of(each, ticket)), None)
    if lease is None or not book.alive(lease):
        raise _expired(id)
    return ticket, lease


def hand_over(book: Book, places: Places, ticket: Ticket, kept: Lease, lease: Lease) -> None:
    """Puts a container's own lease in the place of the one that kept its devices for a ticket.

    The ticket is good as long as `kept` is there, and spent with its removal: whoever is killed
    before has a lease that dies with its creator, and has spent nothing. Raises GpushimError if the
    lease can't be kept; then the ticket is as good as it was.
    """
    ticket.container, ticket.state_root, ticket.name = lease.id, lease.state_root, lease.name
    ticketfiles.write(places, ticket, REDEEMED)
    book.put(lease)
    book.drop(kept)
    ticketfiles.retire(places, ticket)


def _is_lease_of(lease: Lease, ticket: Ticket) -> bool:
    return lease.id == ticket.lease_id() and not lease.state_root and lease.owner == ticket.owner


def _find(places: Places, id: str, container: str, state_root: str) -> tuple[Ticket, bool]:
    """The ticket that a container may redeem, and whether it has done so before."""
    ready = _read(places, id, READY)
    is_good = ready is not None and _keeps(places, ready)
    mark = None if is_good else _trusted(_read(places, id, REDEEMED), ready)
    if mark is not None:
        if (mark.container, mark.state_root) == (container, state_root):
            return mark, True
        raise GpushimError(
            f"Ticket {id} was redeemed already, by container {mark.name or mark.container}.",
            f"A ticket is for one container. {_AGAIN}",
        )
    if not is_good and _trusted(_read(places, id, CANCELLED), ready) is not None:
        raise GpushimError(f"Ticket {id} was cancelled.", _AGAIN)
    if ready is None:
        if _read(places, id, WAITING) is not None:
            raise GpushimError(
                f"Ticket {id} is in line still: it has no GPUs yet.",
                "'gpushimctl queue' shows how far it is.",
            )
        raise Gone(
            f"Ticket {id} is not known here: its time is over, or the machine's was.", _AGAIN
        )
    if ready.owner != posix.geteuid() and not is_machine_root(Roots()):
        raise GpushimError(
            f"Ticket {id} belongs to the user with uid {ready.owner}.",
            "Take it as the user who runs the container.",
        )
    if not is_good:
        raise _expired(id)
    return ready, False


def _keeps(places: Places, ready: Ticket) -> bool:
    """Whether devices are kept for a ticket still: then a mark is one of who was killed at it.

    The name of the lease's file does not tell: within a user namespace its owner has another uid.
    """
    roots = Roots()
    return any(_is_lease_of(lease, ready) and lives(lease, roots) for lease in every(places))


def _expired(id: str) -> Gone:
    return Gone(f"The time of ticket {id} is over, and its GPUs are free for others.", _AGAIN)


def _read(places: Places, id: str, state: str) -> Ticket | None:
    try:
        return ticketfiles.read(places, id, state)
    except NewerTicket:
        raise GpushimError(
            f"Ticket {id} was written by a newer gpushim.", "Upgrade gpushim."
        ) from None
    except (ValueError, KeyError, TypeError):
        return None


def _trusted(mark: Ticket | None, ready: Ticket | None) -> Ticket | None:
    """A mark, unless some other user made it."""
    if mark is None or mark.owner in (0, posix.geteuid()):
        return mark
    return mark if ready is not None and mark.owner == ready.owner else None
