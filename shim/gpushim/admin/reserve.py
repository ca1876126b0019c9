"""gpushimctl reserve: wait until GPUs are free, and print a ticket for a container to come."""

from __future__ import annotations

import argparse

from .. import config
from ..allocate.grant import uuid_of
from ..allocate.liveness import LONGEST_RESERVATION
from ..errors import GpushimError
from ..places import Places
from ..request.keys import variable_name
from . import progress, ticket_options
from .output import print_json, say, warn

EPILOG = """\
examples:
  gpushimctl reserve --gpus 2
  GPUSHIM_TICKET=$(gpushimctl reserve --gpus 2 --for 30m) docker compose up

The ticket is the only line on standard output. Without --for it is good for 10 minutes.
'gpushimctl queue cancel TICKET' gives it back.

exit status: 0; 75 if the time to wait was over first; 1 for what a sentence on standard error
tells; 2 for a wrong command line"""


def add(parser: argparse.ArgumentParser) -> None:
    ticket_options.add(parser)
    parser.add_argument(
        "--for",
        dest="keep",
        metavar="TIME",
        default="10m",
        help="how long GPUs are kept for the container (default: 10m)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    keep = seconds_of(arguments.keep)
    machine = ticket_options.Machine(places, "reserve")
    asked = ticket_options.asked_by(arguments, "reserve", machine.config)
    ticket, found = ticket_options.wait(places, machine, asked, keep)
    variable, label = f"{variable_name('ticket')}={ticket.id}", f"gpushim.ticket={ticket.id}"
    if arguments.json:
        print_json(
            {
                "ticket": ticket.id,
                "seconds": keep,
                "variable": variable,
                "label": label,
                "gpus": [uuid_of((gpu, mig)) for gpu, mig, _ in found.bookings],
            }
        )
        return 0
    warn(
        f"{progress.names_of(found)} kept for {arguments.keep}, for one container that has "
        f"the variable {variable}, or the label or the annotation {label}."
    )
    say(ticket.id)
    return 0


def seconds_of(text: str) -> float:
    """How long a reservation is to hold. Raises GpushimError."""
    try:
        keep = config.seconds(text)
    except ValueError:
        keep = 0.0
    if not 1 <= keep <= LONGEST_RESERVATION:
        raise GpushimError(
            f"'{text}' is no time to keep GPUs for (option --for).",
            f"Write it as 10m or 1h, up to {LONGEST_RESERVATION // 3600}h.",
        )
    return keep
