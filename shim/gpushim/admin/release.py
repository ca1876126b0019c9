"""gpushimctl release: take a container's lease away from it."""

from __future__ import annotations

import argparse
import os

from ..allocate import keptout
from ..allocate.book import open_book
from ..allocate.lease import Lease
from ..errors import GpushimError
from ..host.model import HEALTHY
from ..places import Places
from . import devices, installation
from .leasing import find, note, title
from .output import say
from .users import user_name


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "container", metavar="CONTAINER", help="its name, its id or the beginning of that"
    )
    parser.add_argument(
        "--force", action="store_true", help="even though the container lives and uses its GPUs"
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    installation.require(places)
    known = devices.at_hand(places)
    with open_book(places) as book:
        lease = find(arguments.container, book.leases)
        _refuse_others(lease)
        words = known.titled([booking.uuid for booking in lease.bookings])
        is_alive = book.alive(lease)
        if is_alive:
            if not arguments.force:
                raise GpushimError(
                    f"{title(lease)} lives and has {words}; without its lease these are given "
                    "to others while its processes go on using them.",
                    "Stop the container, which gives them back, or use --force.",
                )
            _quarantine(places, lease, known)
            book.drop(lease)
        if os.path.lexists(lease.path):
            raise GpushimError(f"The lease {lease.path} can't be removed.")
    note(
        places,
        "released",
        {
            "id": lease.id,
            "name": lease.name,
            "gpus": [booking.uuid for booking in lease.bookings],
            "alive": is_alive,
        },
    )
    rest = "" if is_alive else ", whose container was gone"
    say(f"Released the lease of {title(lease)} on {words}{rest}.")
    return 0


def _refuse_others(lease: Lease) -> None:
    if os.geteuid() not in (0, lease.owner):
        raise GpushimError(
            f"The lease of {title(lease)} is that of {user_name(lease.owner)}.",
            "Its owner or root can release it.",
        )
    if lease.expires:
        raise GpushimError(
            f"{lease.id} is no container: these GPUs are kept for a ticket.",
            f"'gpushimctl queue cancel {lease.ticket}' gives them back.",
        )


def _quarantine(places: Places, lease: Lease, known: devices.Devices) -> None:
    """Keeps what failed under the container from others, who can't tell by the lease any more."""
    if os.geteuid() != 0:
        return
    for gpu in known.gpus:
        if gpu.health != HEALTHY and any(booking.uuid == gpu.uuid for booking in lease.bookings):
            keptout.enter(places, gpu.uuid, gpu.health, [lease])
