"""What is among the leases and is none: it is set aside, and what it stood for is looked up."""

from __future__ import annotations

import posix
import time

from gpushim.allocate.leasefiles import remove, write
from gpushim.allocate.rebuild import rebuilt
from gpushim.errors import GpushimError, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.leasefiles import Found
    from gpushim.places import Places

# How many files are kept aside, so that nobody can fill the memory with them.
_MOST_ASIDE = 64


def put_right(places: Places, name: str, found: Found) -> None:
    """Sets one aside, and takes its container's lease from the decision record if it lives."""
    number = found.bad[name]
    path = f"{places.leases}/{name}"
    what = f"a lease of format {number}" if number else "no lease"
    lease = rebuilt(places, name)
    if number and lease is None and _is_trusted(path):
        raise GpushimError(
            f"{path} was written by a newer gpushim (its format is {number}).",
            "Upgrade gpushim, or remove the file if its container is gone.",
        )
    is_aside = _set_aside(places, name, keep=lease is not None)
    if lease is not None:
        try:
            write(places, lease)
        except OSError as error:
            raise GpushimError(
                f"{path} is {what}, and the right one can't be written: {why(error)}."
            ) from None
        found.leases.append(lease)
        found.said.append(
            f"{path} was {what}; what {lease.name or lease.id} has was taken from its decision "
            "record."
        )
    elif is_aside:
        found.said.append(f"{path} is {what} and was moved to {places.leases_aside}.")
    else:
        found.said.append(f"{path} is {what} and is ignored; only its owner or root can remove it.")


def _is_trusted(path: str) -> bool:
    """Whether root or this user wrote a file."""
    try:
        return posix.stat(path, follow_symlinks=False).st_uid in (0, posix.geteuid())
    except OSError:
        return False


def _set_aside(places: Places, name: str, keep: bool) -> bool:
    """Moves a file out of the directory; if it is to be replaced, `keep`, a link of it will do."""
    aside = places.leases_aside
    source = f"{places.leases}/{name}"
    target = f"{aside}/{time.time_ns()}-{name[-200:]}"
    try:
        try:
            posix.mkdir(aside, 0o700)
        except FileExistsError:
            pass
        if len(posix.listdir(aside)) >= _MOST_ASIDE:
            remove(f"{aside}/{min(posix.listdir(aside))}")
        if keep:
            try:
                posix.link(source, target, follow_symlinks=False)
                return True
            except OSError:
                pass  # a folder has no second name
        posix.rename(source, target)
        return True
    except OSError:
        return False
