"""gpushimctl inventory: the machine's GPUs and driver, as containers are given them."""

from __future__ import annotations

import argparse

from ..host.model import HEALTHY, Gpu, capability_key
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import obtain
from .output import print_json, print_table, say, warn

_MIB = 1 << 20


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    snapshot = obtain(places, capability_key(list(DEFAULT_CAPABILITIES)))
    inventory = snapshot.inventory
    if arguments.json:
        print_json({**inventory.to_json(), "problems": snapshot.problems})
        return 0
    cuda = f", CUDA {inventory.cuda_version}" if inventory.cuda_version else ""
    say(f"NVIDIA driver {inventory.driver_version}{cuda}")
    headings = ("GPU", "model", "UUID", "bus id", "node", "NUMA", "memory", "compute", "health")
    print_table(headings, [row(gpu) for gpu in inventory.gpus])
    for problem in snapshot.problems:
        warn(problem)
    return 0


def row(gpu: Gpu) -> tuple[str, ...]:
    """A GPU as cells of the table; what is not known is shown as a dash."""
    return (
        str(gpu.index),
        gpu.model,
        gpu.uuid or "-",
        gpu.bus_id,
        f"nvidia{gpu.minor}" if gpu.minor >= 0 else "-",
        str(gpu.numa_node) if gpu.numa_node >= 0 else "-",
        f"{gpu.memory // _MIB} MiB" if gpu.memory is not None else "-",
        gpu.compute_capability or "-",
        gpu.health if gpu.health != HEALTHY else "ok",
    )
