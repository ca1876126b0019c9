"""Books what a container gets: looks, decides and writes the lease, all under one lock."""

from __future__ import annotations

import posix
import time

from gpushim.allocate.book import open_book
from gpushim.allocate.choose import Choice, choose
from gpushim.allocate.lease import Lease
from gpushim.allocate.wish import wish_of
from gpushim.errors import GpushimError
from gpushim.host.fingerprint import boot_id
from gpushim.host.model import HEALTHY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpushim.allocate.book import Book
    from gpushim.allocate.queue import Terms
    from gpushim.allocate.refusal import Refusal
    from gpushim.allocate.ticket import Ticket
    from gpushim.allocate.wish import Wish
    from gpushim.asker import Asker
    from gpushim.config import Config
    from gpushim.host.deviceuse import Reading
    from gpushim.places import Places
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot

_POLL_SECONDS = 0.1
_MANY = 16  # leases


def book(snapshot: Snapshot, request: Request, asker: Asker) -> tuple[Choice, Lease]:
    """What the container gets, booked. Raises Unavailable, Held or GpushimError.

    A container that is started again waits a little for its former self to end, and gets the
    devices that it had if they are free. One that asks to wait does so here, under Docker.
    """
    found = _look(snapshot, request, asker)
    if isinstance(found, tuple):
        return found
    seconds = request.keys.get("wait", 0)
    if found.never or not seconds:
        raise found.error(time.time())
    from gpushim.allocate.waiting import check_engine, wait_in_create

    check_engine(asker.engine, request.sources["wait"])
    call = asker.call
    return wait_in_create(
        call.places,
        request,
        (posix.getpid(), call.given.start_time),
        (call.invocation.container_id, asker.state_root, asker.name),
        lambda: _terms(snapshot, call.places, None, []),
        lambda: _booker(snapshot, request, asker),
        min(seconds, snapshot.config.seconds("allocate.wait-cap")),
        _priority(request, snapshot.config),
    )


def _booker(
    snapshot: Snapshot, request: Request, asker: Asker
) -> Callable[[Book, list[Ticket]], tuple[Choice, Lease] | Refusal]:
    """What books in the container's turn, by what the driver says just now."""
    reading = _reading(snapshot, request, asker)
    return lambda book, tickets: _choose(book, snapshot, request, asker, None, reading, tickets)


def _look(snapshot: Snapshot, request: Request, asker: Asker) -> tuple[Choice, Lease] | Refusal:
    """One look, or several while the former run of the same container still ends."""
    call, config = asker.call, snapshot.config
    reading = _reading(snapshot, request, asker)
    until = time.monotonic() + config.seconds("allocate.restart-grace")
    while True:
        with open_book(call.places) as book:
            former = book.former(call.invocation.container_id, asker.state_root)
            if former is None or not book.alive(former):
                if "ticket" in request.keys:
                    from gpushim.redeeming import redeemed

                    had = redeemed(
                        book, snapshot, request, asker, lambda got: _lease(asker, got, config)
                    )
                    if had is not None:
                        return had
                return _choose(book, snapshot, request, asker, former, reading)
            call.log.warnings += book.said
        if time.monotonic() > until:
            raise GpushimError(
                f"The former run of container {call.invocation.container_id} has not ended, and "
                "still has its GPUs.",
                "Try again when it has.",
            )
        time.sleep(_POLL_SECONDS)


def _choose(
    book: Book,
    snapshot: Snapshot,
    request: Request,
    asker: Asker,
    former: Lease | None,
    reading: Reading | None,
    tickets: list[Ticket] | None = None,
) -> tuple[Choice, Lease] | Refusal:
    """Chooses and books, with the book open.

    reading: what devices are used for, if that was asked for; tickets: those in line before this
    container, if somebody has looked.
    """
    places, config = asker.call.places, snapshot.config
    if tickets is None and any(name.endswith(".waiting") for name in _names(places.queue)):
        from gpushim.allocate.queue import ahead
        from gpushim.allocate.ticketfiles import waiting

        arrival = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        tickets = ahead(waiting(places), _priority(request, config), arrival)
    others = [lease for lease in book.leases if lease is not former]
    preferred = [booking.uuid for booking in former.bookings] if former is not None else []
    wish = _wish(request, config)
    if tickets or reading is not None or _has_circumstances(snapshot, places):
        from gpushim.allocate.queue import choose_in_turn

        terms = _terms(snapshot, places, reading, book.leases)
        found = choose_in_turn(wish, [], others, terms, book.alive, preferred)
        if tickets and not _is_its_own(found, preferred):
            found = choose_in_turn(wish, tickets, others, terms, book.alive, preferred)
    else:
        found = choose(
            wish,
            snapshot.inventory.gpus,
            others,
            links=snapshot.inventory.topology,
            preferred=preferred,
            alive=book.alive,
        )
    asker.call.log.warnings += book.said
    if not isinstance(found, Choice):
        return found
    lease = _lease(asker, found, config)
    if (lease.labels or config.text("allocate.max-gpus")) and not wish.every():
        from gpushim.maximum import check_maximum

        check_maximum(book, lease, request.sources["devices"], config, others)
    book.put(lease)
    _sweep(book, lease)
    return found, lease


def _is_its_own(found: Choice | Refusal, preferred: list[str]) -> bool:
    """Whether it is what the container had: one that is started again need not stand in line."""
    if not isinstance(found, Choice) or not preferred:
        return False
    return all(booking.uuid in preferred for _, _, booking in found.bookings)


def _sweep(book: Book, own: Lease) -> None:
    """Drops dead leases that nobody met, since they were in nobody's way; a few at a time."""
    others = [lease for lease in book.leases if lease is not own]
    if len(others) < _MANY:
        return
    first = posix.getpid()  # a different place each time
    for place in (first % len(others), (first * 7 + 3) % len(others)):
        book.alive(others[place])


def _wish(request: Request, config: Config) -> Wish:
    over = config.flag("request.grant-over-exclusive") or (
        config.text("request.all-from-environment") == "all" and not request.keys
    )
    return wish_of(request, config.text("allocate.counts"), config.text("limits.numa"), over)


def _priority(request: Request, config: Config) -> int:
    return int(request.keys.get("priority", config.text("allocate.default-priority")))


def _reading(snapshot: Snapshot, request: Request, asker: Asker) -> Reading | None:
    """What devices are used for, where that matters; it takes its time, so the book is closed."""
    config = snapshot.config
    setting = config.text("allocate.real-use")
    if setting == "never" or (request.count is None and setting != "always"):
        return None
    from gpushim.allocate.circumstances import reading_for

    places = asker.call.places
    reading = reading_for(places, config, snapshot.inventory, _wish(request, config))
    if reading is not None:
        asker.call.log.warnings += reading.problems
    return reading


def _has_circumstances(snapshot: Snapshot, places: Places) -> bool:
    """Whether a choice depends on more than leases and use; a few system calls."""
    return (
        bool(snapshot.config.values["allocate.keep-out"])
        or any(gpu.health != HEALTHY for gpu in snapshot.inventory.gpus)
        or _is_there(places.drained)
        or bool(_names(places.quarantine))
    )


def _terms(
    snapshot: Snapshot, places: Places, reading: Reading | None, leases: Sequence[Lease]
) -> Terms:
    """What choices are made from just now."""
    from gpushim.allocate.circumstances import fill_in
    from gpushim.allocate.queue import terms_of

    terms = terms_of(snapshot)
    fill_in(terms, places, snapshot.config, leases, reading)
    return terms


def _names(directory: str) -> list[str]:
    try:
        return posix.listdir(directory)
    except OSError:
        return []


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
        return True
    except OSError:
        return False


def _limited_labels(asker: Asker, config: Config) -> dict[str, str]:
    """Those of the container's labels that a limit is set for."""
    limits = config.values["allocate.max-per-label"]
    if not isinstance(limits, dict) or not limits:
        return {}
    return {name: value for name, value in asker.labels.items() if name in limits}


def _lease(asker: Asker, found: Choice, config: Config) -> Lease:
    call = asker.call
    lease = Lease(
        call.invocation.container_id,
        asker.state_root,
        (posix.getpid(), call.given.start_time),
        [booking for _, _, booking in found.bookings],
    )
    lease.name = asker.name
    lease.engine = asker.engine
    lease.runtime = call.low_level
    lease.family = call.family
    lease.cgroup = asker.cgroup
    lease.boot = boot_id()
    lease.since = int(time.time())
    lease.labels = _limited_labels(asker, config)
    return lease


def give_back(lease: Lease) -> None:
    """Drops the lease of a container that could not be created after all."""
    try:
        posix.unlink(lease.path)
    except OSError:
        pass  # its creator ends now, and so does it
