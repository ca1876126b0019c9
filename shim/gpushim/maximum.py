"""How many GPUs a container may have, and those of one label together, by the configuration."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.book import Book
    from gpushim.allocate.choose import Choice
    from gpushim.allocate.lease import Lease
    from gpushim.allocate.wish import Wish
    from gpushim.config import Config


def check_maximum(
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
