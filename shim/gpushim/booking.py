"""Books what a container gets: looks, decides and writes the lease, all under one lock."""

from __future__ import annotations

import posix
import time

from gpushim.allocate.book import open_book
from gpushim.allocate.choose import Choice, choose
from gpushim.allocate.lease import Lease
from gpushim.allocate.wish import wish_of
from gpushim.decision import state_root_of
from gpushim.errors import GpushimError
from gpushim.host.fingerprint import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.book import Book
    from gpushim.allocate.wish import Wish
    from gpushim.config import Config
    from gpushim.main import Call
    from gpushim.oci.bundle import Bundle
    from gpushim.request.gather import Asked
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot

_POLL_SECONDS = 0.1


class Asker:
    """The container that something is booked for, as far as its lease names it."""

    __slots__ = ("call", "cgroup", "engine", "labels", "name", "state_root")

    def __init__(self, call: Call, bundle: Bundle, asked: Asked) -> None:
        self.call = call
        self.state_root = state_root_of(call)
        cgroup = bundle.section("linux", "cgroupsPath")
        self.cgroup = cgroup if isinstance(cgroup, str) else ""
        self.name = asked.record.name if asked.record is not None else ""
        self.labels = asked.record.labels if asked.record is not None else {}
        self.engine = engine_of(call.invocation.root, asked.annotations)


def engine_of(root: str, annotations: dict[str, str]) -> str:
    """Which engine called, by what each leaves in a call or a spec; "" where nothing tells."""
    if root.endswith("/moby"):
        return "docker"
    if annotations.get("io.container.manager") == "libpod":
        return "podman"
    if any(name.startswith("io.kubernetes.cri-o.") for name in annotations):
        return "cri-o"
    if any(name.startswith("io.kubernetes.cri.") for name in annotations):
        return "containerd"
    return "containerd" if "/containerd/" in root else ""


def book(snapshot: Snapshot, request: Request, asker: Asker) -> tuple[Choice, Lease]:
    """What the container gets, booked. Raises Unavailable, Held or GpushimError.

    A container that is started again waits a little for its former self to end, and gets the
    devices that it had if they are free.
    """
    call, config = asker.call, snapshot.config
    over = config.flag("request.grant-over-exclusive") or (
        config.text("request.all-from-environment") == "all" and not request.keys
    )
    wish = wish_of(request, config.text("allocate.counts"), config.text("limits.numa"), over)
    until = time.monotonic() + config.seconds("allocate.restart-grace")
    while True:
        with open_book(call.places) as book:
            former = book.former(call.invocation.container_id, asker.state_root)
            if former is None or not book.alive(former):
                return _choose(book, snapshot, wish, asker, former)
            call.log.warnings += book.said
        if time.monotonic() > until:
            raise GpushimError(
                f"The former run of container {call.invocation.container_id} has not ended, and "
                "still has its GPUs.",
                "Try again when it has.",
            )
        time.sleep(_POLL_SECONDS)


def _choose(
    book: Book, snapshot: Snapshot, wish: Wish, asker: Asker, former: Lease | None
) -> tuple[Choice, Lease]:
    others = [lease for lease in book.leases if lease is not former]
    found = choose(
        wish,
        snapshot.inventory.gpus,
        others,
        links=snapshot.inventory.topology,
        preferred=[booking.uuid for booking in former.bookings] if former is not None else (),
        alive=book.alive,
    )
    asker.call.log.warnings += book.said
    if not isinstance(found, Choice):
        raise found.error(time.time())
    limited = _limited_labels(asker, snapshot.config)
    _check_limits(book, wish, found, snapshot.config, others, limited)
    lease = _lease(asker, found, limited)
    book.put(lease)
    return found, lease


def _limited_labels(asker: Asker, config: Config) -> dict[str, str]:
    """Those of the container's labels that a limit is set for."""
    limits = config.values["allocate.max-per-label"]
    if not isinstance(limits, dict) or not limits:
        return {}
    return {name: value for name, value in asker.labels.items() if name in limits}


def _check_limits(
    book: Book,
    wish: Wish,
    found: Choice,
    config: Config,
    others: list[Lease],
    labels: dict[str, str],
) -> None:
    """Raises GpushimError for more than one container, or those of one label, may have."""
    if wish.every():
        return
    source = wish.request.sources["devices"]
    most = config.text("allocate.max-gpus")
    if most and len(found.bookings) > int(most):
        raise GpushimError(
            f"{len(found.bookings)} GPUs were asked for by {source}, but a container may have "
            f"{most} here (allocate.max-gpus).",
            "Ask for fewer.",
        )
    limits = config.values["allocate.max-per-label"]
    for name, value in labels.items():
        mine = [lease for lease in others if lease.labels.get(name) == value]
        has = sum(len(lease.bookings) for lease in mine if book.alive(lease))
        allowed = int(limits[name]) if isinstance(limits, dict) else 0
        if has + len(found.bookings) > allowed:
            raise GpushimError(
                f"{len(found.bookings)} GPUs were asked for by {source}, but containers with the "
                f"label {name}={value} may have {allowed} together and have {has} "
                "(allocate.max-per-label).",
                "Wait until one of them has ended, or ask for fewer.",
            )


def _lease(asker: Asker, found: Choice, labels: dict[str, str]) -> Lease:
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
    lease.labels = labels
    return lease


def give_back(lease: Lease) -> None:
    """Drops the lease of a container that could not be created after all."""
    try:
        posix.unlink(lease.path)
    except OSError:
        pass  # its creator ends now, and so does it
