"""gpushimctl refresh: look at the machine anew, as the next create does after a change."""

from __future__ import annotations

import argparse
import os

from .. import launcher_settings
from ..cdi.collect import collect, problems
from ..errors import GpushimError
from ..host.model import HEALTHY, capability_key
from ..host.statefiles import own_places
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import Snapshot, refresh_again
from . import installation
from .output import print_json, say, warn


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def refresh_now(places: Places) -> Snapshot:
    """A snapshot that was made after this call began. Raises GpushimError with the reason."""
    key = capability_key(list(DEFAULT_CAPABILITIES))
    return refresh_again(places, key, "gpushimctl refresh", [])


def summary(snapshot: Snapshot) -> str:
    """A snapshot in a sentence: "Found 8 GPUs, NVIDIA driver 550.163.01." """
    gpus = snapshot.inventory.gpus
    broken = sum(gpu.health != HEALTHY for gpu in gpus)
    count = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
    return (
        f"Found {count}{f' ({broken} of them not usable)' if broken else ''}, "
        f"NVIDIA driver {snapshot.inventory.driver_version}."
    )


def refuse_without_place(places: Places, verb: str) -> None:
    """Raises GpushimError for another user than root who has no directory for state.

    A rootless engine's user has one, XDG_RUNTIME_DIR, and what is found out is kept there.
    """
    if os.geteuid() != 0 and not places.root and not os.environ.get("XDG_RUNTIME_DIR"):
        raise GpushimError(
            "The machine's inventory can be refreshed by root only.", f"Use sudo gpushimctl {verb}."
        )


def run(arguments: argparse.Namespace, places: Places) -> int:
    installation.require(places)
    refuse_without_place(places, "refresh")
    snapshot = refresh_now(places)
    path = os.environ.get("PATH", "")
    unusable = launcher_settings.problem(snapshot.config, places, path)
    # Creates with CDI names read the spec files by themselves when these changed.
    cdi = problems(collect(own_places(places), snapshot.config))
    if arguments.json:
        print_json(
            {
                "driver_version": snapshot.inventory.driver_version,
                "gpus": [gpu.to_json() for gpu in snapshot.inventory.gpus],
                "problems": [*snapshot.problems, *([unusable] if unusable else []), *cdi],
                "kept": snapshot.kept,
            }
        )
        return 0
    say(summary(snapshot))
    for problem in (*snapshot.problems, *([unusable] if unusable else []), *cdi):
        warn(problem)
    if os.geteuid() != 0 and snapshot.kept:
        say(f"It was kept for containers of this user only, in {own_places(places).run}.")
    if not snapshot.kept:
        warn("This was not kept, since it is incomplete or there is nowhere to keep it.")
    return 0
