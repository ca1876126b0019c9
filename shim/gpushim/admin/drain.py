"""gpushimctl drain: give a GPU to no more containers, and perhaps stop those that have it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ..allocate import keptout
from ..allocate.book import open_book
from ..allocate.lease import Lease
from ..allocate.liveness import Roots, is_machine_root
from ..config import seconds
from ..errors import GpushimError
from ..host.model import capability_key
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import obtain
from . import devices, installation, stopping
from .leasing import note, title, who
from .output import print_json, say, warn

EPILOG = """\
examples:
  gpushimctl drain 3                         no more containers for GPU 3
  gpushimctl drain --all --stop --grace 2m   before a reboot: jobs have 2 minutes for a checkpoint
  gpushimctl undrain --all

It lasts until undrain, also over boots. exit status: 0, or 1 for what a sentence on standard error
tells, such as that a container could not be stopped"""

_GRACE = "30s"
_DONE = {
    stopping.ENDED: "ended by itself",
    stopping.KILLED: "was killed",
    stopping.LIVES: "could not be stopped",
}


def add(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument(
        "--stop", action="store_true", help="stop the containers that have them, too"
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=_duration,
        help=f"how long they have to end by themselves (default: {_GRACE})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gpus", metavar="GPU", nargs="*", help="an index or a UUID, or a MIG device such as 0:1"
    )
    parser.add_argument("--all", action="store_true", help="every GPU of this machine")


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check(arguments: argparse.Namespace, places: Places, verb: str) -> None:
    """Raises GpushimError for a user who may not, or for a command line that says no GPU."""
    installation.require(places)
    if not is_machine_root(Roots()):
        raise GpushimError(f"Only root can {verb} GPUs.", f"Use sudo gpushimctl {verb}.")
    if bool(arguments.gpus) == arguments.all:
        raise GpushimError(f"Name the GPUs to {verb}, or all of them with --all.")


def known_devices(places: Places) -> devices.Devices:
    """The devices of this machine, looked for if nobody has yet. Raises GpushimError."""
    known = devices.at_hand(places)
    if known.gpus:
        return known
    snapshot = obtain(places, capability_key(list(DEFAULT_CAPABILITIES)))
    return devices.Devices(snapshot.inventory.gpus)


def run(arguments: argparse.Namespace, places: Places) -> int:
    check(arguments, places, "drain")
    if arguments.grace is not None and not arguments.stop:
        raise GpushimError("--grace is for --stop.", "Without it no container is stopped.")
    known = known_devices(places)
    every = [gpu.uuid for gpu in known.gpus if gpu.uuid]
    wanted = every if arguments.all else [known.find(name) for name in arguments.gpus]
    wanted = list(dict.fromkeys(wanted))
    on_them = _drain(places, known, wanted)
    note(places, "drained", {"gpus": wanted, "stop": arguments.stop})
    if not arguments.json:
        verb = "is" if len(wanted) == 1 else "are"
        say(f"{known.titled(wanted)} {verb} given to no more containers.")
    done: list[str] = []
    if arguments.stop:
        grace = arguments.grace if arguments.grace is not None else seconds(_GRACE)
        done = stopping.stop(on_them, grace)
        stopped = [
            {"id": lease.id, "name": lease.name, "outcome": outcome}
            for lease, outcome in zip(on_them, done, strict=True)
        ]
        note(places, "stopped for a drain", {"containers": stopped})
    return _tell(arguments, known, wanted, on_them, done)


def _drain(places: Places, known: devices.Devices, wanted: list[str]) -> list[Lease]:
    """Drains devices, under the lock so that nobody is just being given one.

    Returns the leases of containers that live and have some of them.
    """
    parts = {part for uuid in wanted for part in known.parts(uuid)}
    with open_book(places) as book:
        there = keptout.drained(places)
        about = {"since": int(time.time()), "by": who()}
        new = {uuid: about for uuid in wanted if uuid not in there}
        if new:
            keptout.set_drained(places, {**there, **new})
        having = [
            lease
            for lease in book.leases
            if any(booking.uuid in parts for booking in lease.bookings)
        ]
        return [lease for lease in having if book.alive(lease)]


def _tell(
    arguments: argparse.Namespace,
    known: devices.Devices,
    wanted: list[str],
    on_them: list[Lease],
    done: list[str],
) -> int:
    outcomes: list[str] = done or [stopping.LIVES] * len(on_them)
    failed = bool(done) and stopping.LIVES in done
    if arguments.json:
        containers: list[dict[str, Any]] = [
            {
                "id": lease.id,
                "name": lease.name,
                "engine": lease.engine,
                "gpus": [booking.uuid for booking in lease.bookings],
                "outcome": outcome,
            }
            for lease, outcome in zip(on_them, outcomes, strict=True)
        ]
        drained = [{"uuid": uuid, "name": known.name(uuid)} for uuid in wanted]
        print_json({"drained": drained, "containers": containers})
        return 1 if failed else 0
    for lease, outcome in zip(on_them, outcomes, strict=True):
        words = known.titled([booking.uuid for booking in lease.bookings])
        if not done:
            say(f"{title(lease)} has {words} and goes on.")
        elif outcome == stopping.LIVES:
            warn(f"{title(lease)} on {words} {_DONE[outcome]}.")
        else:
            say(f"{title(lease)} on {words} {_DONE[outcome]}.")
    return 1 if failed else 0
