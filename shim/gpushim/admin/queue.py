"""gpushimctl queue: who waits for GPUs, behind whom, and since when; and taking out of the line."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

from ..allocate import ticketfiles, turn
from ..allocate.book import every, open_book
from ..allocate.lease import Lease
from ..allocate.queue import Terms, rivals
from ..allocate.refusal import Refusal, age
from ..allocate.ticket import Ticket
from ..allocate.ticketfiles import CANCELLED, READY, WAITING
from ..errors import GpushimError
from ..places import Places
from . import progress, ticket_options
from .output import print_json, print_table, say
from .users import user_name

EPILOG = """\
examples:
  gpushimctl queue
  gpushimctl queue cancel 3f2a        by a ticket, or the beginning of one
  gpushimctl queue cancel train       by the name or id of a container that waits while it is made

exit status: 0, or 1 for what a sentence on standard error tells"""

_HEADINGS = ("ticket", "user", "waits for", "priority", "since", "behind", "held by")


class Row:
    """A ticket in line: where, behind which tickets, and who holds what it waits for."""

    __slots__ = ("behind", "holders", "place", "ticket", "wanted")

    def __init__(
        self, ticket: Ticket, place: int, wanted: str, behind: list[Ticket], holders: list[str]
    ) -> None:
        self.ticket = ticket
        self.place = place
        self.wanted = wanted
        self.behind = behind
        self.holders = holders

    def to_json(self) -> dict[str, Any]:
        ticket = self.ticket
        return {
            "ticket": ticket.id,
            "place": self.place,
            "user": user_name(ticket.owner),
            "uid": ticket.owner,
            "pid": ticket.client[0],
            "priority": ticket.priority,
            "since": ticket.since,
            "waits_for": self.wanted,
            "behind": [each.id for each in self.behind],
            "held_by": self.holders,
            "container": ticket.container,
            "name": ticket.name,
        }


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    verbs = parser.add_subparsers(dest="action", metavar="cancel")
    cancel = verbs.add_parser("cancel", help="take a ticket out of the line", allow_abbrev=False)
    cancel.add_argument("name", metavar="TICKET|CONTAINER")


def run(arguments: argparse.Namespace, places: Places) -> int:
    if arguments.action == "cancel":
        cancelled = cancel(places, arguments.name)
        say(f"Ticket {cancelled.id} was cancelled.")
        return 0
    machine = ticket_options.Machine(places, "queue")
    rows = rows_of(places, machine.terms())
    kept = reserved(places)
    if arguments.json:
        print_json(
            {
                "waiting": [row.to_json() for row in rows],
                "reserved": [reserved_json(lease) for lease in kept],
            }
        )
        return 0
    if rows:
        print_table(_HEADINGS, [_cells(row) for row in rows])
    else:
        say("Nobody waits for GPUs.")
    for lease in kept:
        data = reserved_json(lease)
        left = f" for {age(data['seconds_left'])} more" if data["seconds_left"] else ""
        kept_for = f"{len(data['gpus'])} GPU{'s' if len(data['gpus']) != 1 else ''}"
        say(f"Ticket {lease.ticket} of {data['user']} keeps {kept_for}{left}.")
    return 0


def rows_of(places: Places, terms: Terms) -> list[Row]:
    """Who waits, in turn."""
    tickets = ticketfiles.waiting(places)
    rows = []
    for place, ticket in enumerate(tickets):
        before = tickets[:place]
        holders: list[str] = []
        try:
            found = turn.look(places, ticket, before, terms)
        except GpushimError:
            found = None  # it names what is no longer there; its own process tells
        if isinstance(found, Refusal):
            holders = [lease.name or lease.id[:12] for lease in found.leases if lease.path]
        wanted = progress.wanted_words(terms.wish(ticket.request))
        rows.append(Row(ticket, place + 1, wanted, rivals(ticket, before, terms), holders))
    return rows


def _cells(row: Row) -> Sequence[str]:
    ticket = row.ticket
    return (
        ticket.id,
        user_name(ticket.owner),
        row.wanted + (f" for {ticket.name or ticket.container[:12]}" if ticket.container else ""),
        str(ticket.priority),
        age(time.time() - ticket.since),
        row.behind[-1].id if row.behind else "-",
        ", ".join(row.holders) or "-",
    )


def reserved(places: Places) -> list[Lease]:
    """The leases of tickets that are to be redeemed yet."""
    return [
        lease for lease in every(places) if lease.expires and lease.ticket and turn.is_alive(lease)
    ]


def reserved_json(lease: Lease) -> dict[str, Any]:
    left = lease.expires - time.clock_gettime(time.CLOCK_BOOTTIME)
    return {
        "ticket": lease.ticket,
        "user": user_name(lease.owner),
        "uid": lease.owner,
        "since": lease.since,
        "seconds_left": max(int(left), 0),
        "gpus": [booking.uuid for booking in lease.bookings],
    }


def cancel(places: Places, name: str) -> Ticket:
    """Takes a ticket out of the line, or gives back what is kept for it. Raises GpushimError.

    Whoever waits with it ends: a `gpushimctl run`, or a container that is being created.
    """
    with open_book(places) as book:
        ticketfiles.sweep(places, book.leases)
        tickets = [each for state in (WAITING, READY) for each in ticketfiles.every(places, state)]
        ticket = _only(name, tickets)
        if os.geteuid() not in (0, ticket.owner):
            raise GpushimError(
                f"Ticket {ticket.id} is that of {user_name(ticket.owner)}.",
                "Its owner or root can cancel it.",
            )
        # Who is killed in between has given back at least what was kept.
        for lease in list(book.leases):
            if lease.id == ticket.lease_id() and lease.owner == ticket.owner:
                book.drop(lease)
        ticketfiles.mark(places, ticket, CANCELLED)
    return ticket


def _only(name: str, tickets: Sequence[Ticket]) -> Ticket:
    """The ticket that a name means: that of a container, its id or a ticket's, or its beginning."""
    exact = [each for each in tickets if name and name in (each.id, each.name, each.container)]
    found = exact or [
        each
        for each in tickets
        if name and (each.id.startswith(name) or each.container.startswith(name))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise GpushimError(
            f"'{name}' may be any of {', '.join(each.id for each in found)}.", "Write more of it."
        )
    raise GpushimError(
        f"No ticket and no container '{name}' is in line.",
        "'gpushimctl queue' shows all; a container that has its GPUs keeps them until it ends.",
    )
