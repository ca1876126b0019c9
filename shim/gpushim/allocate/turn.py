"""What waits outside of a create does: take a ticket, look, book what it gets, give it back.

For `gpushimctl run` and `gpushimctl reserve`, whose own process is the client.
"""

from __future__ import annotations

import posix
import time

from gpushim.allocate import ticketfiles
from gpushim.allocate.book import every, open_book
from gpushim.allocate.choose import Choice
from gpushim.allocate.lease import Lease, file_name
from gpushim.allocate.liveness import Roots, lives
from gpushim.allocate.queue import ahead, choose_in_turn
from gpushim.allocate.ticket import Ticket, new
from gpushim.allocate.ticketfiles import READY, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpushim.allocate.book import Book
    from gpushim.allocate.queue import Terms
    from gpushim.allocate.refusal import Refusal
    from gpushim.places import Places
    from gpushim.request.request import Request


def take(
    places: Places,
    request: Request,
    priority: int,
    client: tuple[int, int],
    container: tuple[str, str, str] = ("", "", ""),
) -> Ticket:
    """A new ticket, at its place in line. Raises GpushimError if it can't be kept.

    container: id, state root and name of the one that waits while it is created.
    """
    # Under the lock, so that nobody who looks meanwhile is overtaken.
    with open_book(places) as book:
        ticketfiles.sweep(places, book.leases)
        ticket = new(request, client, priority)
        ticket.container, ticket.state_root, ticket.name = container
        ticketfiles.write(places, ticket, WAITING)
    return ticket


def before(places: Places, ticket: Ticket) -> list[Ticket]:
    """The tickets that come before one, in turn."""
    return ahead(ticketfiles.waiting(places), ticket.priority, ticket.arrival)


def look(places: Places, ticket: Ticket, tickets: list[Ticket], terms: Terms) -> Choice | Refusal:
    """What a ticket would get now, without the lock: a guess, which is right unless others act.

    tickets: those before it.
    """
    verdicts: dict[str, bool] = {}
    roots = Roots()

    def alive(lease: Lease) -> bool:
        if lease.path not in verdicts:
            verdicts[lease.path] = lives(lease, roots)
        return verdicts[lease.path]

    mine = (ticket.container, ticket.state_root)
    leases = [each for each in every(places) if (each.id, each.state_root) != mine]
    return choose_in_turn(terms.wish(ticket.request), tickets, leases, terms, alive)


def booking(
    places: Places, ticket: Ticket, terms: Callable[[Sequence[Lease]], Terms], seconds: float
) -> Callable[[Book, list[Ticket]], Choice | Refusal]:
    """What books for a ticket in its turn: (book, tickets before it) -> what it got.

    terms: what the choice is made from, by all leases; seconds: for how long its devices are kept
    for it though its client has ended.
    """

    def book_it(book: Book, tickets: list[Ticket]) -> Choice | Refusal:
        now = terms(book.leases)
        wish = now.wish(ticket.request)
        found = choose_in_turn(wish, tickets, list(book.leases), now, book.alive)
        if isinstance(found, Choice):
            lease = Lease(
                ticket.lease_id(), "", ticket.client, [each for _, _, each in found.bookings]
            )
            lease.name = f"ticket {ticket.id}"
            lease.ticket, lease.boot = ticket.id, ticket.boot
            lease.since = int(time.time())
            lease.expires = int(time.clock_gettime(time.CLOCK_BOOTTIME) + seconds) or 1
            # The lease comes second: who is killed in between keeps nothing from anybody.
            ticketfiles.write(places, ticket, READY)
            try:
                book.put(lease)
            except BaseException:
                ticketfiles.remove(places, ticket.id, READY)
                raise
        return found

    return book_it


def is_alive(lease: Lease) -> bool:
    """Whether a lease stands for something, asked without the lock."""
    return lives(lease, Roots())


def give_back(places: Places, ticket: Ticket) -> None:
    """Takes a ticket out of the line, with what is booked for it, unless it was redeemed."""
    for state in (WAITING, READY):
        ticketfiles.remove(places, ticket.id, state)
    try:
        posix.unlink(f"{places.leases}/{file_name(ticket.lease_id(), '', ticket.owner)}")
    except OSError:
        pass
