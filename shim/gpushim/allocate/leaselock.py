"""The lock on the leases: the kernel's own (flock(2)), so nobody can leave it behind.

It is taken through a descriptor for reading, so the file need not be writable for those who lock
it. The kernel wakes those who wait in the order in which they came.
"""

from __future__ import annotations

import _thread
import fcntl
import posix
import time

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
                _wait(lock, places, seconds, longest)
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


def _wait(lock: int, places: Places, seconds: float, longest: float) -> None:
    """Waits in the kernel's line, which asking again and again would not keep to.

    In a thread, since flock knows no time limit, and an alarm would alter what the low-level
    runtime is given.
    """
    done = _thread.allocate_lock()
    done.acquire()
    # The thread's own, so that it never locks another file that has got the number meanwhile.
    waiting = posix.dup(lock)

    def wait() -> None:
        try:
            fcntl.flock(waiting, fcntl.LOCK_EX)
        finally:
            posix.close(waiting)
            done.release()

    try:
        _thread.start_new_thread(wait, ())
    except RuntimeError:
        posix.close(waiting)
        raise GpushimError(
            "The lock on GPU bookings can't be waited for: no more threads."
        ) from None
    began = time.monotonic()
    holder = None
    while not done.acquire(timeout=seconds / 2):
        former, holder = holder, _holder(lock)
        if holder == former:
            raise GpushimError(
                f"The GPU bookings in {places.leases} have been locked for {seconds:g} seconds"
                f"{holder}.",
                "If that process hangs, end it.",
            )
        if time.monotonic() - began >= longest:
            raise GpushimError(
                f"So many others wait for the GPU bookings in {places.leases} that their turn came "
                f"first for {longest:g} seconds."
            )


def _holder(lock: int) -> str:
    """Who holds the lock, as far as the kernel tells (proc(5), /proc/locks); "" if it doesn't."""
    from gpushim.host import procfiles

    inode = str(posix.fstat(lock).st_ino)
    for line in (procfiles.text("/proc/locks") or "").split("\n"):
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == inode:
            name = (procfiles.text(f"/proc/{words[4]}/comm") or "").strip()
            return f" by process {words[4]}" + (f" ({name})" if name else "")
    return ""
