"""All leases, under one lock: look, decide, book.

The lock is the kernel's, on a file that anybody may open, so it is gone with whoever held it. What
was half written when its writer was killed is no lease yet, and goes when the next one looks.
"""

from __future__ import annotations

import posix

from gpushim.allocate.leasefiles import read, read_locked, write
from gpushim.allocate.leaselock import acquire
from gpushim.errors import GpushimError, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from gpushim.allocate.lease import Lease
    from gpushim.allocate.leasefiles import Found
    from gpushim.places import Places


class Book:
    """The leases of this machine, which nobody else changes as long as it is open.

    leases: all that can be read, whether or not their containers live; said: sentences on what was
    amiss or dropped, for the log.
    """

    __slots__ = ("_alive", "_lock", "_places", "leases", "said")

    def __init__(self, places: Places, lock: int, found: Found) -> None:
        self._places = places
        self._lock = lock
        self._alive: dict[str, bool] = {}
        self.leases = found.leases
        self.said = found.said

    def __enter__(self) -> Book:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the lock."""
        if self._lock >= 0:
            posix.close(self._lock)
            self._lock = -1

    def former(self, id: str, state_root: str) -> Lease | None:
        """The lease of the same container, which one that is put now takes the place of."""
        for lease in self.leases:
            if lease.id == id and lease.state_root == state_root and lease.owner == posix.geteuid():
                return lease
        return None

    def alive(self, lease: Lease) -> bool:
        """Whether a lease stands for a container; one that does not is dropped."""
        if lease.path not in self._alive:
            from gpushim.allocate.liveness import Roots, lives

            self._alive[lease.path] = lives(lease, Roots())
            if not self._alive[lease.path]:
                self.said.append(f"The lease of {lease.name or lease.id} went with its container.")
                self.drop(lease)
        return self._alive[lease.path]

    def put(self, lease: Lease) -> None:
        """Keeps a lease, in place of an earlier one of the same container.

        Sets its owner and its path. Raises GpushimError if it can't be kept; then all is as it was.
        """
        try:
            write(self._places, lease)
        except OSError as error:
            raise GpushimError(
                f"The lease can't be kept in {self._places.leases}: {why(error)}.",
                "GPUs are given only where it is on record who has them.",
            ) from None
        self.leases[:] = [other for other in self.leases if other.path != lease.path]
        self.leases.append(lease)
        self._alive[lease.path] = True

    def drop(self, lease: Lease) -> None:
        """Takes a lease out; one that only its owner can remove stays a file."""
        self.leases[:] = [other for other in self.leases if other is not lease]
        try:
            posix.unlink(lease.path)
        except OSError:
            pass


def open_book(places: Places) -> Book:
    """The book, locked until it is closed.

    places: the machine's, for every user. Raises GpushimError if another holds the lock for too
    long, if the directory is missing and can't be made, or if a newer gpushim wrote a lease.
    """
    lock = acquire(places)
    try:
        return Book(places, lock, read_locked(places))
    except BaseException:
        posix.close(lock)
        raise


def every(places: Places) -> list[Lease]:
    """All leases that can be read, without the lock: those of one moment or the next.

    Whether their containers live is `liveness.lives`' to say. Raises GpushimError.
    """
    return read(places).leases
