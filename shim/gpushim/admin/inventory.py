"""gpushimctl inventory: the machine's GPUs and driver, as containers are given them."""

from __future__ import annotations

import argparse

from ..host.devicenodes import capability_node
from ..host.model import HEALTHY, Gpu, MigDevice, capability_key
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import load, obtain
from . import installation, refresh
from .output import print_json, print_table, say, warn

_MIB = 1 << 20
# The first four are what requests and device nodes are about; all of them fit 80 columns.
HEADINGS = (
    *("GPU", "UUID", "node", "bus id"),
    *("model", "memory", "compute", "NUMA", "MIG", "health"),
)

# GI/CI: ids of the GPU instance and the compute instance, as in MIG-<UUID of the GPU>/<GI>/<CI>.
MIG_HEADINGS = ("MIG device", "UUID", "profile", "GI/CI", "nodes", "memory")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    installation.require(places)
    if load(places) is None:
        refresh.refuse_without_place(places, "inventory")
    snapshot = obtain(places, capability_key(list(DEFAULT_CAPABILITIES)))
    inventory = snapshot.inventory
    if arguments.json:
        print_json({**inventory.to_json(), "problems": snapshot.problems})
        return 0
    cuda = f", CUDA {inventory.cuda_version}" if inventory.cuda_version else ""
    say(f"NVIDIA driver {inventory.driver_version}{cuda}")
    print_table(HEADINGS, [row(gpu) for gpu in inventory.gpus], 4)
    instances = [mig_row(gpu, mig) for gpu in inventory.gpus for mig in gpu.mig_devices]
    if instances:
        say("")
        print_table(MIG_HEADINGS, instances, 4)
    for problem in snapshot.problems:
        warn(problem)
    return 0


def row(gpu: Gpu) -> tuple[str, ...]:
    """A GPU as cells of the table; what is not known is shown as a dash."""
    return (
        str(gpu.index),
        gpu.uuid or "-",
        f"nvidia{gpu.minor}" if gpu.minor >= 0 else "-",
        gpu.bus_id,
        gpu.model or "-",
        f"{gpu.memory // _MIB} MiB" if gpu.memory is not None else "-",
        gpu.compute_capability or "-",
        str(gpu.numa_node) if gpu.numa_node >= 0 else "-",
        {True: "on", False: "off", None: "-"}[gpu.mig_enabled],
        gpu.health if gpu.health != HEALTHY else "ok",
    )


def mig_row(gpu: Gpu, mig: MigDevice) -> tuple[str, ...]:
    """A MIG device as cells of its table: its name in requests, and what a container gets."""
    minors = (mig.gpu_instance_minor, mig.compute_instance_minor)
    names = [capability_node(minor).rpartition("/")[2] for minor in minors if minor >= 0]
    return (
        f"{gpu.index}:{mig.index}",
        mig.uuid,
        mig.profile or "-",
        f"{mig.gpu_instance}/{mig.compute_instance}",
        ", ".join(names) or "-",
        f"{mig.memory // _MIB} MiB" if mig.memory is not None else "-",
    )
