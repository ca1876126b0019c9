"""How much of which GPU a container has."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpushim.allocate.grant import Grant
    from gpushim.allocate.lease import Booking
    from gpushim.host.model import Gpu, MigDevice

    # A GPU, and the fraction of it (above 0, at most 1) that one device of a container is.
    Share = tuple[Gpu, float]

# A GPU in MIG mode has so many compute slices (NVIDIA's MIG user guide, "Terminology").
_SLICES = 7


def shares_of(grant: Grant, bookings: Iterable[Booking]) -> list[Share]:
    """The share that each device of a grant is, by what was booked of it.

    A device that is booked by memory or compute counts by the larger of the two; one that is
    booked without an amount, or not at all, as a whole.
    """
    booked = {booking.uuid: booking for booking in bookings}
    whole = [(gpu, _booked(booked.get(gpu.uuid), gpu.memory)) for gpu in grant.gpus]
    return whole + [
        (gpu, _part(gpu, mig) * _booked(booked.get(mig.uuid), mig.memory)) for gpu, mig in grant.mig
    ]


def _booked(booking: Booking | None, memory: int | None) -> float:
    if booking is None:
        return 1.0
    share = max(booking.memory / memory if memory else 0.0, booking.compute / 100)
    return min(share, 1.0) or 1.0


def _part(gpu: Gpu, mig: MigDevice) -> float:
    """The part of its GPU that a MIG device is, by memory, or by slices where that is not known."""
    if gpu.memory and mig.memory:
        return min(mig.memory / gpu.memory, 1.0)
    slices = mig.profile.rpartition("c.")[2].partition("g")[0]
    return min(int(slices) / _SLICES, 1.0) if slices.isdecimal() and int(slices) else 1.0
