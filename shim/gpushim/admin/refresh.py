"""gpushimctl refresh: look at the machine anew, as the next create does after a change."""

from __future__ import annotations

import argparse

from ..host.model import HEALTHY, capability_key
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import Snapshot, refresh_again
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


def run(arguments: argparse.Namespace, places: Places) -> int:
    snapshot = refresh_now(places)
    if arguments.json:
        print_json(
            {
                "driver_version": snapshot.inventory.driver_version,
                "gpus": [gpu.to_json() for gpu in snapshot.inventory.gpus],
                "problems": snapshot.problems,
                "kept": snapshot.kept,
            }
        )
        return 0
    say(summary(snapshot))
    for problem in snapshot.problems:
        warn(problem)
    if not snapshot.kept:
        warn("This was not kept, since it is incomplete or there is nowhere to keep it.")
    return 0
