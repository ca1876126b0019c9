"""The lock on the leases: the kernel's own (flock(2)), so nobody can leave it behind.

It is taken through a descriptor for reading, so the file need not be writable for those who lock
it. The kernel wakes those who wait in the order in which they came.
"""

from __future__ import annotations

import fcntl
import posix

from gpushim.errors import GpushimError, why
from gpushim.oci.files import make_directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.places import Places

# A create holds it for milliseconds. Who has it after half of this time and at its end was stopped.
WAIT_SECONDS = 30.0
# A long line that moves is waited for, but not for ever.
LONGEST_SECONDS = 300.0
_FLAGS = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK


def acquire(places: Places, seconds: float = WAIT_SECONDS, longest: float = LONGEST_SECONDS) -> int:
    """A descriptor that holds the lock until it is closed, also by the end of its process.

    Raises GpushimError if the same process has it for `seconds`, if it is not to be had within
    `longest`, or if there is no lock file and this user can't make one.
    """
    while True:
        lock = _open(places)
        try:
            if not _try(lock):
                from gpushim.allocate.lockwait import wait_for

                wait_for(lock, places, seconds, longest)
            if _is_at(lock, places.lease_lock):
                return lock
        except BaseException:
            # A thread that still waits for it closes its own descriptor of it, too.
            posix.close(lock)
            raise
        posix.close(lock)  # somebody removed the file meanwhile, and others lock the new one


def make_places(places: Places) -> None:
    """Makes the directories of leases and tickets and the lock file, as far as they are missing.

    Raises GpushimError. Install and tmpfiles.d make them for users who can't.
    """
    try:
        make_directories(places.run)
        make_directories(places.leases, 0o1777)
        make_directories(places.queue, 0o1777)
        try:
            flags = _FLAGS | posix.O_CREAT | posix.O_EXCL
            descriptor = posix.open(places.lease_lock, flags, 0o644)
        except FileExistsError:
            return
        posix.fchmod(descriptor, 0o644)
        posix.close(descriptor)
    except OSError as error:
        raise GpushimError(
            f"GPUs are booked in {places.leases}, which can't be made: {why(error)}.",
            "Run 'systemd-tmpfiles --create' or 'gpushimctl install' as root; after that it is "
            "made at each boot.",
        ) from None


def _open(places: Places) -> int:
    try:
        return posix.open(places.lease_lock, _FLAGS)
    except FileNotFoundError:
        make_places(places)
    except OSError as error:
        raise _unusable(places, error) from None
    try:
        return posix.open(places.lease_lock, _FLAGS)
    except OSError as error:
        raise _unusable(places, error) from None


def _unusable(places: Places, error: OSError) -> GpushimError:
    return GpushimError(f"The lock {places.lease_lock} can't be opened: {why(error)}.")


def _is_at(descriptor: int, path: str) -> bool:
    found = posix.fstat(descriptor)
    try:
        there = posix.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
