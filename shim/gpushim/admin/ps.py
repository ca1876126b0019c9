"""gpushimctl ps: which containers have which GPUs, for whom, since when.

It looks at the files of leases, which anybody can read, and never at the GPUs.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from ..allocate import keptout, leaselock, ticketfiles
from ..allocate.book import Book, every
from ..allocate.lease import Lease
from ..allocate.leasefiles import read_locked
from ..allocate.liveness import Roots, traces
from ..allocate.refusal import age
from ..allocate.wish import size_words, wish_of
from ..errors import GpushimError
from ..observe import cgroups
from ..places import Places
from ..snapshot import known_config
from . import devices, installation
from .leasing import GONE, LIVE, RESERVED, state_of, title
from .output import print_json, print_table, say
from .progress import wanted_words
from .users import user_name

EPILOG = """\
modes: exclusive (nobody else gets it), shared (as much as is booked), open (given by name) and all
(given by `all`); the last two keep nobody else from naming the same GPU.

exit status: 0 or, with a sentence on standard error, 1"""

HEADINGS = (
    *("container", "GPUs", "mode", "memory booked"),
    *("state", "since", "engine", "user", "CPUs", "host memory"),
)
WAITING = ("ticket", "waits for", "user", "priority", "since")
# Until the driver or a library enforces it, what is booked is a promise.
ENFORCEMENT = "none"
# Nobody waits for a lock to see who has a GPU.
_LOCK_SECONDS = 0.5


class Row:
    """A lease and what can be seen of its container.

    state: see leasing; is_old: whether it is older than allocate.max-age; cgroup: what its cgroup
    allows and uses, None where that can't be seen.
    """

    def __init__(
        self, lease: Lease, state: str, is_old: bool, cgroup: cgroups.Reading | None
    ) -> None:
        self.lease = lease
        self.state = state
        self.is_old = is_old
        self.cgroup = cgroup

    def to_json(self, known: devices.Devices) -> dict[str, Any]:
        lease = self.lease
        return {
            "id": lease.id,
            "name": lease.name,
            "engine": lease.engine,
            "user": user_name(lease.owner),
            "uid": lease.owner,
            "state": self.state,
            "since": lease.since,
            "older_than_max_age": self.is_old,
            "ticket": lease.ticket,
            "runtime": lease.runtime,
            "state_root": lease.state_root,
            "devices": [
                {
                    **booking.to_json(),
                    "name": known.name(booking.uuid),
                    "model": known.model(booking.uuid),
                }
                for booking in lease.bookings
            ],
            "memory_enforcement": ENFORCEMENT if _has_memory(lease) else None,
            "cgroup": self.cgroup.to_json() if self.cgroup is not None else None,
        }


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--all", action="store_true", help="leases of containers that are gone, too"
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    installation.require(places)
    known = devices.at_hand(places)
    rows = rows_of(places, arguments.all)
    kept = kept_words(places)
    tickets = ticketfiles.waiting(places)
    if arguments.json:
        print_json(
            {
                "leases": [row.to_json(known) for row in rows],
                "kept_out": [
                    {"uuid": uuid, "name": known.name(uuid), "reason": reason}
                    for uuid, reason in kept.items()
                ],
                "waiting": [ticket.id for ticket in tickets],
            }
        )
        return 0
    if rows:
        print_table(HEADINGS, [cells(row, known) for row in rows], 4)
    else:
        say("No container has a lease on a GPU.")
    for uuid, reason in kept.items():
        say(f"{known.titled([uuid])} is {reason}.")
    if tickets:
        say("")
        print_table(
            WAITING,
            [
                (
                    ticket.id,
                    wanted_words(wish_of(ticket.request)),
                    user_name(ticket.owner),
                    str(ticket.priority),
                    age(time.time() - ticket.since),
                )
                for ticket in tickets
            ],
        )
    return 0


def rows_of(places: Places, also_gone: bool) -> list[Row]:
    """The leases, the oldest first; those of containers that are gone are dropped on the way."""
    roots = Roots()
    config = known_config(places)
    most = config.text("allocate.max-age") if config is not None else ""
    oldest = config.seconds("allocate.max-age") if config is not None and most else 0.0
    rows = []
    gone = []
    for lease in sorted(every(places), key=lambda each: (each.since, each.id)):
        state = state_of(lease, roots)
        if state == GONE:
            gone.append(lease)
            if not also_gone:
                continue
        is_old = bool(oldest) and time.time() - lease.since > oldest
        cgroup = cgroups.read(traces(lease, roots)[1]) if state == LIVE else None
        rows.append(Row(lease, state, is_old, cgroup))
    if not also_gone:
        _drop(places, gone)
    return rows


def _drop(places: Places, gone: list[Lease]) -> None:
    """Drops leases that stand for nothing, as the next allocation would."""
    mine = {lease.path for lease in gone if os.geteuid() in (0, lease.owner)}
    if not mine:
        return
    try:
        lock = leaselock.acquire(places, _LOCK_SECONDS, _LOCK_SECONDS)
    except GpushimError:
        return
    try:
        book = Book(places, lock, read_locked(places))
    except GpushimError:
        os.close(lock)
        return
    with book:
        for lease in [lease for lease in book.leases if lease.path in mine]:
            book.alive(lease)


def kept_words(places: Places) -> dict[str, str]:
    """UUID -> why a device gets no new containers, as words behind "is".

    What the configuration keeps out is in the configuration.
    """
    found = {}
    for uuid, data in keptout.quarantine(places).items():
        waiting = keptout.holders(data)
        if waiting != []:
            found[uuid] = keptout.words_of(data, waiting)
    for uuid, about in keptout.drained(places).items():
        since = about.get("since")
        ago = f", {age(time.time() - since)} ago" if isinstance(since, int) else ""
        found[uuid] = f"drained (by {about.get('by') or 'somebody'}{ago})"
    return found


def cells(row: Row, known: devices.Devices) -> tuple[str, ...]:
    lease, cgroup = row.lease, row.cgroup
    since = age(time.time() - lease.since)
    shown = f"ticket {lease.ticket}" if row.state == RESERVED else title(lease)
    return (
        shown,
        known.words(booking.uuid for booking in lease.bookings),
        _mode(lease),
        _memory(lease),
        row.state,
        f"{since} (too old)" if row.is_old else since,
        lease.engine or "-",
        user_name(lease.owner),
        f"{cgroup.processors:g}" if cgroup is not None and cgroup.processors else "-",
        _host_memory(cgroup),
    )


def _mode(lease: Lease) -> str:
    shares = {booking.compute for booking in lease.bookings} - {0}
    modes = list(dict.fromkeys(booking.mode for booking in lease.bookings))
    return ", ".join([*modes, *(f"{share}%" for share in sorted(shares))]) or "-"


def _has_memory(lease: Lease) -> bool:
    return any(booking.memory for booking in lease.bookings)


def _memory(lease: Lease) -> str:
    if not _has_memory(lease):
        return "-"
    amounts = list(dict.fromkeys(size_words(booking.memory) for booking in lease.bookings))
    each = " each" if len(lease.bookings) > 1 and len(amounts) == 1 else ""
    return f"{', '.join(amounts)}{each} (not enforced)"


def _host_memory(cgroup: cgroups.Reading | None) -> str:
    if cgroup is None or cgroup.memory is None:
        return "-"
    limit = f" of {size_words(cgroup.memory_limit)}" if cgroup.memory_limit is not None else ""
    return f"{size_words(cgroup.memory)}{limit}"
