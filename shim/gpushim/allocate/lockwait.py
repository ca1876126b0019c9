"""The wait for the lock on leases, in the kernel's line, and what is said when it is too long."""

from __future__ import annotations

import _thread
import fcntl
import posix
import time

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.places import Places


def wait_for(lock: int, places: Places, seconds: float, longest: float) -> None:
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
