"""Whose turn it is: what those in line keep from those who come after them. Pure.

The order is priority, greater first, then arrival. Who is behind others chooses among the devices
as they would be if each of those ahead, in turn, had got what it waits for; and whoever of them
can't have it yet keeps a claim on every device that fits it, so that none of these is taken by
somebody behind it, unless there is room for both. So the first in line is never delayed by a later
request, everybody becomes the first at some time as long as no one of a greater priority comes,
and what those ahead can't use at all is free for others meanwhile.
"""

from __future__ import annotations

from gpushim.allocate.choose import Choice, choose
from gpushim.allocate.filter import Table, misfit
from gpushim.allocate.grant import Unavailable, grant_named
from gpushim.allocate.lease import ALL, OPEN, Booking, Lease
from gpushim.allocate.wish import Wish, wish_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpushim.allocate.filter import RealUse, Slot
    from gpushim.allocate.refusal import Refusal
    from gpushim.allocate.ticket import Ticket
    from gpushim.host.model import Gpu
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot


class Terms:
    """What choices are made from, but for the leases.

    gpus, links: of the inventory; counts, numa, over: allocate.counts, limits.numa and
    request.grant-over-exclusive of the configuration; real, kept_out, reserve: as `choose` has
    them.
    """

    __slots__ = ("counts", "gpus", "kept_out", "links", "numa", "over", "real", "reserve")

    def __init__(
        self,
        gpus: Sequence[Gpu],
        links: Sequence[Sequence[int]] = (),
        counts: str = "exclusive",
        numa: str = "prefer",
    ) -> None:
        self.gpus = gpus
        self.links = links
        self.counts = counts
        self.numa = numa
        self.over = False
        self.real: Mapping[str, RealUse] | None = None
        self.kept_out: Mapping[str, str] = {}
        self.reserve = 0

    def wish(self, request: Request) -> Wish:
        return wish_of(request, self.counts, self.numa, self.over)


def terms_of(snapshot: Snapshot) -> Terms:
    """What choices are made from, by a snapshot."""
    config = snapshot.config
    terms = Terms(
        snapshot.inventory.gpus,
        snapshot.inventory.topology,
        config.text("allocate.counts"),
        config.text("limits.numa"),
    )
    terms.over = config.flag("request.grant-over-exclusive")
    return terms


def ahead(tickets: Sequence[Ticket], priority: int, arrival: int) -> list[Ticket]:
    """Those of the tickets in line that come before somebody of this priority and arrival."""
    return [each for each in tickets if each.turn()[:2] < (-priority, arrival)]


def choose_in_turn(
    wish: Wish,
    tickets: Sequence[Ticket],
    leases: Sequence[Lease],
    terms: Terms,
    alive: Callable[[Lease], bool],
    preferred: Collection[str] = (),
) -> Choice | Refusal:
    """The devices that a wish gets in its turn, or why it gets none now.

    tickets: those that come before it, in turn, whose clients wait; leases, alive and preferred: as
    `choose` has them. Raises Unavailable for a name that is no working device here.
    """
    if tickets and wish.mode != ALL:  # which is in nobody's way
        kept = kept_for(tickets, leases, terms, alive)
        marked = {id(lease) for lease in kept}
        leases = [*leases, *kept]
        return _choose(wish, leases, terms, _or_marked(alive, marked), preferred)
    return _choose(wish, leases, terms, alive, preferred)


def _or_marked(alive: Callable[[Lease], bool], marked: set[int]) -> Callable[[Lease], bool]:
    return lambda lease: id(lease) in marked or alive(lease)


def _choose(
    wish: Wish,
    leases: Sequence[Lease],
    terms: Terms,
    alive: Callable[[Lease], bool],
    preferred: Collection[str] = (),
) -> Choice | Refusal:
    return choose(
        wish,
        terms.gpus,
        leases,
        real=terms.real,
        links=terms.links,
        kept_out=terms.kept_out,
        preferred=preferred,
        reserve=terms.reserve,
        alive=alive,
    )


def kept_for(
    tickets: Sequence[Ticket],
    leases: Sequence[Lease],
    terms: Terms,
    alive: Callable[[Lease], bool],
) -> list[Lease]:
    """A lease for each ticket, as if it had what it waits for, or else all that it could use.

    What can't be met on this machine at all keeps nothing.
    """
    kept: list[Lease] = []
    marked: set[int] = set()
    # Where one can't be met, another that wants the same behind it can't either.
    unmet: dict[str, list[Booking]] = {}
    living = _or_marked(alive, marked)
    for ticket in tickets:
        same = _terms_of(ticket)
        bookings = unmet.get(same)
        if bookings is None:
            wish = terms.wish(ticket.request)
            try:
                found = _choose(wish, [*leases, *kept], terms, living)
            except Unavailable:
                continue
            if isinstance(found, Choice):
                bookings = [booking for _, _, booking in found.bookings]
            else:
                bookings = unmet[same] = [] if found.never else _claims(wish, terms)
        lease = Lease(ticket.lease_id(), "", ticket.client, bookings)
        lease.name = f"the ticket {ticket.id}, which comes first"
        lease.since = ticket.since
        kept.append(lease)
        marked.add(id(lease))
    return kept


def _terms_of(ticket: Ticket) -> str:
    request = ticket.request
    return repr((request.count, request.devices, request.open, sorted(request.keys.items())))


def _claims(wish: Wish, terms: Terms) -> list[Booking]:
    # As long as nothing is free for `all`, it waits for any device that somebody lets go.
    mode = OPEN if wish.mode == ALL else wish.mode
    return [
        Booking(slot.uuid, mode, wish.memory_of(slot.capacity), wish.compute)
        for slot in fitting(wish, terms)
    ]


def fitting(wish: Wish, terms: Terms) -> list[Slot]:
    """The devices with which a wish could ever be met; none for names that mean nothing here."""
    table = Table(terms.gpus, (), None, terms.kept_out, terms.reserve, _never_asked)
    if wish.count is not None:
        slots = [slot for slot in table.slots if (slot.mig is not None) == bool(wish.mig)]
    else:
        try:
            named = set(grant_named(wish.request, terms.gpus).uuids())
        except Unavailable:
            return []
        slots = [slot for slot in table.slots if slot.uuid in named]
    return [slot for slot in slots if not misfit(slot, wish)]


def _never_asked(lease: Lease) -> bool:
    return True


def rivals(ticket: Ticket, tickets: Sequence[Ticket], terms: Terms) -> list[Ticket]:
    """Those of `tickets` that wait for some of the devices that this one waits for."""
    mine = {slot.uuid for slot in fitting(terms.wish(ticket.request), terms)}
    return [
        each
        for each in tickets
        if any(slot.uuid in mine for slot in fitting(terms.wish(each.request), terms))
    ]
