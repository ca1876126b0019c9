"""How many GPUs a container may have, and those of one label together, by the configuration."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.book import Book
    from gpushim.allocate.lease import Lease
    from gpushim.config import Config


def check_maximum(
    book: Book, lease: Lease, source: str, config: Config, others: list[Lease]
) -> None:
    """Raises GpushimError for more than one container, or those of one label, may have.

    lease: what is about to be booked; source: where it was asked for; others: all other leases.
    """
    wanted = len(lease.bookings)
    most = config.text("allocate.max-gpus")
    if most and wanted > int(most):
        raise GpushimError(
            f"{wanted} GPUs were asked for by {source}, but a container may have "
            f"{most} here (allocate.max-gpus).",
            "Ask for fewer.",
        )
    limits = config.values["allocate.max-per-label"]
    for name, value in lease.labels.items():
        mine = [other for other in others if other.labels.get(name) == value]
        has = sum(len(other.bookings) for other in mine if book.alive(other))
        allowed = int(limits[name]) if isinstance(limits, dict) else 0
        if has + wanted > allowed:
            raise GpushimError(
                f"{wanted} GPUs were asked for by {source}, but containers with the "
                f"label {name}={value} may have {allowed} together and have {has} "
                "(allocate.max-per-label).",
                "Wait until one of them has ended, or ask for fewer.",
            )
