"""The directory of tickets, which is everybody's: one file each, `<id>.<state>`.

A change of state writes the new file before it takes the old one away, all under the lock on the
leases; readers need no lock.
"""

from __future__ import annotations

import errno
import posix
from _stat import S_ISREG

from gpushim.allocate.leaselock import make_places
from gpushim.allocate.liveness import Roots, client_lives, client_waits, lives
from gpushim.allocate.ticket import Ticket, is_id
from gpushim.errors import GpushimError, why
from gpushim.oci.files import write_whole
from gpushim.oci.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpushim.allocate.lease import Lease
    from gpushim.places import Places

# WAITING: in line; READY: GPUs are booked for it; REDEEMED: by the container that it names;
# CANCELLED: by the file's owner. The last two are marks, so that a later use can be told why.
WAITING, READY, REDEEMED, CANCELLED = "waiting", "ready", "redeemed", "cancelled"

_LARGEST = 32 << 10
_MOST_MARKS = 512
_FLAGS = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOFOLLOW
_NO_FILE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO, errno.ENODEV)


def read(places: Places, id: str, state: str) -> Ticket | None:
    """The ticket of this id if it is in this state; None if there is no such file.

    Raises NewerTicket, and ValueError, KeyError or TypeError for a file that is no ticket.
    """
    try:
        descriptor = posix.open(f"{places.queue}/{id}.{state}", _FLAGS)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise _unreadable(places, error) from None
    try:
        facts = posix.fstat(descriptor)
        if not S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            raise ValueError("no ticket")
        data = posix.read(descriptor, facts.st_size + 1)
    except OSError as error:
        raise _unreadable(places, error) from None
    finally:
        posix.close(descriptor)
    ticket = Ticket.from_json(loads(data.decode("ascii")), facts.st_uid)
    if ticket.id != id:
        raise ValueError("id")
    return ticket


def _unreadable(places: Places, error: OSError) -> GpushimError:
    return GpushimError(f"The tickets in {places.queue} can't be read: {why(error)}.")


def names(places: Places) -> list[str]:
    """Of the files in the directory; none if there is none. Raises GpushimError."""
    try:
        return posix.listdir(places.queue)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(places, error) from None


def every(places: Places, state: str) -> list[Ticket]:
    """All tickets that can be read and are in a state, in turn, whether or not anybody waits."""
    found = []
    for name in names(places):
        number, _, ending = name.partition(".")
        if ending != state or not is_id(number):
            continue
        try:
            ticket = read(places, number, state)
        except (ValueError, KeyError, TypeError):
            continue
        if ticket is not None:
            found.append(ticket)
    found.sort(key=Ticket.turn)
    return found


def waiting(places: Places, roots: Roots | None = None) -> list[Ticket]:
    """The tickets in line whose clients wait at this moment, in turn. Raises GpushimError."""
    found = every(places, WAITING)
    if not found:
        return found
    roots = roots or Roots()
    return [ticket for ticket in found if client_waits(ticket, roots)]


def sweep(places: Places, leases: Iterable[Lease]) -> None:
    """Removes tickets whose clients are gone or whose devices are nobody's any more.

    leases: those of containers and tickets that are there; only for the holder of the lock.
    """
    roots = Roots()
    held = {(lease.id, lease.owner) for lease in leases if lease.ticket and lives(lease, roots)}
    for ticket in every(places, WAITING):
        if not client_lives(ticket, roots):
            remove(places, ticket.id, WAITING)
    for ticket in every(places, READY):
        if (ticket.lease_id(), ticket.owner) not in held:
            remove(places, ticket.id, READY)
    for name in names(places):
        if ".tmp" in name:  # only the lock's holder writes, so its writer was killed
            remove(places, *name.split(".", 1))


def is_waiting(places: Places, ticket: Ticket) -> bool:
    """Whether a ticket is in line still; nobody but its owner and root can take it out."""
    try:
        posix.stat(f"{places.queue}/{ticket.id}.{WAITING}", follow_symlinks=False)
        return True
    except OSError:
        return False


def write(places: Places, ticket: Ticket, state: str) -> None:
    """Keeps a ticket in a state. Raises GpushimError if it can't be kept."""
    path = f"{places.queue}/{ticket.id}.{state}"
    data = dumps(ticket.to_json()).encode("ascii")
    try:
        try:
            write_whole(path, data, 0o644)
        except FileNotFoundError:
            make_places(places)
            write_whole(path, data, 0o644)
    except OSError as error:
        raise GpushimError(f"The ticket can't be kept in {places.queue}: {why(error)}.") from None


def remove(places: Places, id: str, state: str) -> None:
    """Takes a ticket out of a state, as far as this user may."""
    try:
        posix.unlink(f"{places.queue}/{id}.{state}")
    except OSError:
        pass


def mark(places: Places, ticket: Ticket, state: str) -> None:
    """Puts a mark in the place of a ticket; only for the holder of the lock.

    Raises GpushimError if it can't be kept.
    """
    write(places, ticket, state)
    retire(places, ticket)


def retire(places: Places, ticket: Ticket) -> None:
    """Removes what a ticket was before it got its mark, and the oldest of too many marks."""
    for former in (WAITING, READY):
        remove(places, ticket.id, former)
    marks = [name for name in names(places) if name.endswith((f".{REDEEMED}", f".{CANCELLED}"))]
    if len(marks) > _MOST_MARKS:
        for name in sorted(marks, key=lambda name: _modified(places, name))[:-_MOST_MARKS]:
            remove(places, *name.split(".", 1))


def _modified(places: Places, name: str) -> int:
    try:
        return posix.stat(f"{places.queue}/{name}", follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0
