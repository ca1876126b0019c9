"""Reads the directory of leases, and puts right what in it is none.

Any user may write there, so anything may be there. A file that is no lease is set aside, and what
it stood for is looked up in the decision records.
"""

from __future__ import annotations

import errno
import posix
from _stat import S_ISREG

from gpushim.allocate.lease import Lease, NewerFormat, file_name
from gpushim.allocate.leaselock import make_places
from gpushim.errors import GpushimError, why
from gpushim.oci.files import write_whole
from gpushim.oci.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.places import Places

# A lease of all MIG devices of a large machine has about 20 KiB.
LARGEST = 128 << 10
_FLAGS = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOFOLLOW
# What opening says of something that is no file of ours: a link, a socket, a device.
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.ENODEV)


class Found:
    """What is in the directory.

    leases: what could be read; bad: names of what is no lease -> the format of one that a later
    version wrote, else 0; half: names of what was being written; said: sentences for the log.
    """

    __slots__ = ("bad", "half", "leases", "said")

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.bad: dict[str, int] = {}
        self.half: list[str] = []
        self.said: list[str] = []


def read(places: Places) -> Found:
    """What is in the directory now; nothing if there is none. Raises GpushimError."""
    found = Found()
    directory = places.leases
    try:
        names = posix.listdir(directory)
    except FileNotFoundError:
        return found
    except OSError as error:
        raise _unreadable(directory, error) from None
    for name in names:
        if not name.endswith(".json"):
            if ".json.tmp" in name:
                found.half.append(name)
            else:
                found.bad[name] = 0
            continue
        try:
            lease = _lease(f"{directory}/{name}")
        except NewerFormat as error:
            found.bad[name] = error.number
        except (ValueError, KeyError, TypeError):
            found.bad[name] = 0
        else:
            if lease is not None:
                found.leases.append(lease)
    return found


def _lease(path: str) -> Lease | None:
    """The lease in a file; None if it is gone or hidden.

    Raises ValueError, KeyError or TypeError if it is none, and GpushimError if the machine is
    unable to read it, which says nothing of the file.
    """
    try:
        descriptor = posix.open(path, _FLAGS)
        try:
            facts = posix.fstat(descriptor)
            if not S_ISREG(facts.st_mode) or facts.st_size > LARGEST:
                raise ValueError("no lease")
            data = posix.read(descriptor, facts.st_size + 1)
        finally:
            posix.close(descriptor)
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            raise ValueError("no file") from None
        raise _unreadable(path, error) from None
    return Lease.from_json(loads(data.decode("ascii")), path, facts.st_uid)


def _unreadable(path: str, error: OSError) -> GpushimError:
    return GpushimError(f"The GPU bookings in {path} can't be read: {why(error)}.")


def read_locked(places: Places) -> Found:
    """What is in the directory, put right; only for the holder of the lock. Raises GpushimError."""
    found = read(places)
    for name in found.half:
        # Only the lock's holder writes, and that is this process: its writer was killed.
        remove(f"{places.leases}/{name}")
    for name in found.bad:
        from gpushim.allocate.aside import put_right

        put_right(places, name, found)
    return found


def write(places: Places, lease: Lease) -> None:
    """Keeps a lease in its file, in place of an earlier one; sets its owner and its path.

    Raises OSError, or GpushimError where the directory has gone; then all is as it was.
    """
    owner = posix.geteuid()
    path = f"{places.leases}/{file_name(lease.id, lease.state_root, owner)}"
    data = dumps({**lease.to_json(), "owner": owner}).encode("ascii")
    try:
        write_whole(path, data, 0o644)
    except FileNotFoundError:
        make_places(places)
        write_whole(path, data, 0o644)
    lease.owner, lease.path = owner, path


def remove(path: str) -> None:
    """Removes a file, if it is there and this user may."""
    try:
        posix.unlink(path)
    except OSError:
        pass
