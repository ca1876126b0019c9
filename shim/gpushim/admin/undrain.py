"""gpushimctl undrain: give a GPU to containers again that was drained or in quarantine."""

from __future__ import annotations

import argparse

from ..allocate import keptout
from ..allocate.book import open_book
from ..places import Places
from . import devices
from .drain import add_names, check, known_devices
from .leasing import note
from .output import print_json, say


def add(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    check(arguments, places, "undrain")
    known = known_devices(places)
    with open_book(places):
        drained = keptout.drained(places)
        ill = keptout.quarantine(places)
        there = [*drained, *ill]
        wanted = there if arguments.all else [_find(name, known, there) for name in arguments.gpus]
        found = list(dict.fromkeys(uuid for uuid in wanted if uuid in there))
        if any(uuid in drained for uuid in found):
            keptout.set_drained(
                places, {uuid: about for uuid, about in drained.items() if uuid not in found}
            )
        for uuid in found:
            if uuid in ill:
                keptout.let_out(places, uuid)
    if found:
        note(places, "undrained", {"gpus": found})
    if arguments.json:
        print_json({"undrained": [{"uuid": uuid, "name": known.name(uuid)} for uuid in found]})
    elif found:
        verb = "is" if len(found) == 1 else "are"
        say(f"{known.titled(found)} {verb} given to containers again.")
    else:
        say("None of these was drained or in quarantine.")
    return 0


def _find(name: str, known: devices.Devices, there: list[str]) -> str:
    """The UUID that a name means; one that is drained need not be in the machine any more."""
    return name if name in there else known.find(name)
