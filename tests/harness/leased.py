"""Containers that have leases on a machine of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpushim.allocate.book import every
from gpushim.allocate.lease import Lease
from gpushim.allocate.liveness import Roots, lives

from tests.harness.asking import Ask
from tests.harness.bundle import Bundle


class Here(Ask):
    """Asks on a machine of the test's own, whose leases are looked at."""

    def leases(self) -> list[Lease]:
        """Those whose containers live."""
        roots = Roots()
        return [lease for lease in every(self.machine.places) if lives(lease, roots)]

    def gpus_of(self, bundle: Bundle) -> list[int]:
        """The indices of what a container has booked."""
        (lease,) = [lease for lease in self.leases() if lease.id == bundle.id]
        return [self._index(booking.uuid) for booking in lease.bookings]

    def modes_of(self, bundle: Bundle) -> list[str]:
        (lease,) = [lease for lease in self.leases() if lease.id == bundle.id]
        return [booking.mode for booking in lease.bookings]

    def _index(self, uuid: str) -> int:
        return next(gpu.index for gpu in self.machine.host.gpus if gpu.uuid == uuid)

    def holds_nothing(self) -> None:
        """All eight GPUs are to be had by one container."""
        assert self.leases() == []
        self.delete(self.created("GPUSHIM_GPUS=8"))

    def launch(self, bundle: Bundle, log: Path) -> subprocess.Popen[bytes]:
        """A create in the background; its process is the shim, and the low-level runtime then."""
        self.runtime._made(bundle, None)
        words = [f"--root={self.runtime.root}", "create", "--bundle", str(bundle.path), bundle.id]
        with log.open("wb") as out:
            return subprocess.Popen(
                [str(self.machine.launcher), *words],
                env=self.runtime.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
