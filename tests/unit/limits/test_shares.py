"""How much of a GPU a container has, by what was booked."""

from __future__ import annotations

import pytest
from gpushim.allocate.grant import Grant
from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, SHARED, Booking
from gpushim.host.model import Gpu, MigDevice
from gpushim.limits.shares import shares_of

GPU = Gpu(0, "GPU-0", 0, "0000:07:00.0", "A100", memory=80)
UNKNOWN = Gpu(1, "GPU-1", 1, "0000:08:00.0", "A100")


@pytest.mark.parametrize(
    ("booking", "share"),
    [
        (None, 1.0),
        (Booking("GPU-0", EXCLUSIVE), 1.0),
        (Booking("GPU-0", OPEN), 1.0),
        (Booking("GPU-0", ALL), 1.0),
        (Booking("GPU-0", SHARED), 1.0),
        (Booking("GPU-0", SHARED, memory=20), 0.25),
        (Booking("GPU-0", SHARED, compute=40), 0.4),
        (Booking("GPU-0", SHARED, memory=20, compute=40), 0.4),
        (Booking("GPU-0", SHARED, memory=60, compute=40), 0.75),
        (Booking("GPU-0", SHARED, memory=90), 1.0),
        (Booking("GPU-9", SHARED, memory=20), 1.0),
    ],
)
def test_a_whole_gpu(booking: Booking | None, share: float) -> None:
    assert shares_of(Grant([GPU], []), [booking] if booking else []) == [(GPU, share)]


def test_memory_of_a_gpu_that_nobody_knows() -> None:
    booking = Booking("GPU-1", SHARED, memory=20)
    assert shares_of(Grant([UNKNOWN], []), [booking]) == [(UNKNOWN, 1.0)]


@pytest.mark.parametrize(
    ("gpu", "profile", "memory", "share"),
    [
        (GPU, "3g.40gb", 40, 0.5),
        (GPU, "1g.10gb", 10, 0.125),
        (GPU, "1c.3g.40gb", None, 3 / 7),
        (GPU, "7g.80gb", None, 1.0),
        (UNKNOWN, "2g.20gb+me", 20, 2 / 7),
        (UNKNOWN, "strange", 20, 1.0),
    ],
)
def test_a_mig_device(gpu: Gpu, profile: str, memory: int | None, share: float) -> None:
    mig = MigDevice(0, "MIG-0", profile, memory, 1, 0, 3, 4)
    grant = Grant([], [], [(gpu, mig)])
    assert shares_of(grant, []) == [(gpu, share)]
    half = shares_of(grant, [Booking("MIG-0", SHARED, compute=50)])
    assert half == [(gpu, share / 2)]
