"""Waits for a ticket's turn: looks now and then, without a child process and mostly unlocked.

Where the engine allows it (Docker), a create can wait in the same way: `wait_in_create`.
"""

from __future__ import annotations

import posix
import time

from gpushim.allocate import ticketfiles, turn
from gpushim.allocate.book import open_book
from gpushim.allocate.refusal import Refusal, age
from gpushim.allocate.ticketfiles import CANCELLED, WAITING
from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpushim.allocate.book import Book
    from gpushim.allocate.queue import Terms
    from gpushim.allocate.ticket import Ticket
    from gpushim.places import Places
    from gpushim.request.request import Request

    Got = TypeVar("Got")

_POLL_SECONDS = 0.2
_SLOWEST_SECONDS = 2.0
# A look takes at most this part of the time of one who waits, however many leases there are.
_PART_FOR_LOOKING = 0.05
# Engines in which a create may wait. Podman's listing hangs meanwhile, and it gives up after four
# minutes and leaves an init behind; the kubelet and containerd kill a create at their deadline.
_MAY_WAIT = ("docker",)


class NotInTime(GpushimError):
    """It was nobody's fault: the time to wait was over first (EX_TEMPFAIL of sysexits.h)."""

    exit_status = 75


class Cancelled(GpushimError):
    """Somebody took the ticket out of the line."""


class Seen:
    """What a look has shown: the ticket, those before it, why it gets nothing yet, the terms."""

    __slots__ = ("refusal", "terms", "ticket", "tickets")

    def __init__(
        self, ticket: Ticket, tickets: list[Ticket], refusal: Refusal, terms: Terms
    ) -> None:
        self.ticket = ticket
        self.tickets = tickets
        self.refusal = refusal
        self.terms = terms


def wait_for_turn(
    places: Places,
    ticket: Ticket,
    terms: Callable[[], Terms],
    ready: Callable[[], Callable[[Book, list[Ticket]], Got | Refusal]],
    tell: Callable[[Seen], None],
    seconds: float | None = None,
    parent: int = 0,
) -> Got:
    """What was booked in the ticket's turn; the ticket is in line no more then.

    terms: what choices are made from, as things are at each call; ready: called when it seems to be
    its turn, it may take its time and returns what books, given the open book and the tickets
    before this one; tell: called after each look without success; seconds: how
    long to wait; parent: pid of the process without which there is nothing to wait for. Raises
    Cancelled, NotInTime, and what a refusal says that no waiting ends; the ticket is left to the
    caller then.
    """
    until = time.monotonic() + seconds if seconds is not None else None
    while True:
        began = time.monotonic()
        if parent and posix.getppid() != parent:
            raise GpushimError("The process for which GPUs were waited for has ended.")
        _check_in_line(places, ticket)
        now = terms()
        tickets = turn.before(places, ticket)
        found = turn.look(places, ticket, tickets, now)
        if not isinstance(found, Refusal):
            book_it = ready()
            with open_book(places) as book:
                _check_in_line(places, ticket)
                got = book_it(book, turn.before(places, ticket))
                if not isinstance(got, Refusal):
                    ticketfiles.remove(places, ticket.id, WAITING)
                    return got
                found = got
        if found.never:
            raise found.error(time.time())
        if until is not None and began >= until:
            assert seconds is not None
            error = found.error(time.time())
            raise NotInTime(f"After {age(seconds)} of waiting: {error.sentence}", error.hint)
        tell(Seen(ticket, tickets, found, now))
        pause = max(
            min(_POLL_SECONDS * (1 + len(tickets)), _SLOWEST_SECONDS),
            (time.monotonic() - began) / _PART_FOR_LOOKING,
        )
        if until is not None:
            pause = max(min(pause, until - time.monotonic()), 0)
        time.sleep(pause)


def _check_in_line(places: Places, ticket: Ticket) -> None:
    if ticketfiles.is_waiting(places, ticket):
        return
    try:
        by = ticketfiles.read(places, ticket.id, CANCELLED)
    except (ValueError, KeyError, TypeError):
        by = None
    if by is None:
        raise Cancelled(
            f"Ticket {ticket.id} is in line no more: its file was removed from {places.queue}."
        )
    whom = "root" if by.owner == 0 else f"the user with uid {by.owner}"
    raise Cancelled(
        f"Ticket {ticket.id} was cancelled by {whom} with 'gpushimctl queue cancel'.",
        "The container was not started." if ticket.container else "",
    )


def check_engine(engine: str, source: str) -> None:
    """Raises GpushimError for an engine under which a create can't wait.

    engine: as a lease names it; source: where it was said that it is to wait.
    """
    if engine in _MAY_WAIT:
        return
    name = {"podman": "Podman", "cri-o": "CRI-O", "containerd": "containerd"}.get(engine, "")
    others = f" and not under {name}" if name else ""
    raise GpushimError(
        f"The container was to wait for its GPUs ({source}), which is possible under Docker only"
        f"{others}: other engines give up first, and leave it half made.",
        "Wait before it is created: 'gpushimctl run --wait ... -- podman run ...', or a ticket of "
        "'gpushimctl reserve'.",
    )


def wait_in_create(
    places: Places,
    request: Request,
    client: tuple[int, int],
    container: tuple[str, str, str],
    terms: Callable[[], Terms],
    ready: Callable[[], Callable[[Book, list[Ticket]], Got | Refusal]],
    seconds: float,
    priority: int,
) -> Got:
    """Waits while a container is created, and returns what was booked for it.

    terms, ready: as `wait_for_turn` has them; client: pid and start time of this process;
    container: id, state root and name; seconds: how long, within allocate.wait-cap. Raises
    GpushimError if it got nothing: nothing is left behind.
    """
    ticket = turn.take(places, request, priority, client, container)
    try:
        return wait_for_turn(places, ticket, terms, ready, _say_nothing, seconds, posix.getppid())
    except NotInTime as error:
        # The engine gets the exit status of the low-level runtime's own failures.
        raise GpushimError(error.sentence, error.hint) from None
    finally:
        turn.give_back(places, ticket)


def _say_nothing(seen: Seen) -> None:
    """An engine shows nothing of a create before its end."""
