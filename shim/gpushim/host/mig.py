"""MIG devices: what the kernel module lists of them, and what NVML adds.

The module shows what there is as gpu<minor>/mig/gi<n>/ci<n>/access beneath
/proc/driver/nvidia/capabilities, and gives the minor numbers of all nodes that there can be in
/proc/driver/nvidia-caps/mig-minors, in lines such as "gpu0/gi1/ci0/access 13" (NVIDIA's MIG user
guide, "Device nodes and capabilities"). UUIDs and profiles only NVML knows.
"""

from __future__ import annotations

from typing import Any

from ..errors import harmless
from . import fingerprint, procfiles
from .model import Gpu, Inventory, MigDevice

_CAPABILITIES = "/driver/nvidia/capabilities"


def minors(proc_root: str) -> dict[str, int]:
    """Name of a capability -> minor number of its node; empty where the driver has no table."""
    found: dict[str, int] = {}
    for line in (procfiles.text(proc_root + "/driver/nvidia-caps/mig-minors") or "").split("\n"):
        name, _, number = line.strip().partition(" ")
        if number.isascii() and number.isdecimal() and len(number) < 8:
            found[name] = int(number)
    return found


def capabilities(proc_root: str) -> dict[int, str]:
    """Minor number -> file beneath /proc, of each capability whose node is of use here.

    Those are the two of each instance, and where a GPU can be partitioned at all the ones to do so
    and to watch.
    """
    where = proc_root + _CAPABILITIES
    table = minors(proc_root)
    gpus = [name for name in procfiles.names(where) if name.startswith("gpu")]
    able = any("mig" in procfiles.names(f"{where}/{name}") for name in gpus)
    found = for_the_few(proc_root) if able else {}
    for instance in fingerprint.mig_instances(proc_root):
        gpu, _, rest = instance.partition("/")
        minor = table.get(f"{instance}/access")
        if minor is not None:
            found[minor] = f"{where}/{gpu}/mig/{rest}/access"
    return found


def for_the_few(proc_root: str) -> dict[int, str]:
    """As `capabilities`: those to partition GPUs and to watch all instances.

    A container that asks for one says so where its node is missing, and nobody else needs it.
    """
    table = minors(proc_root)
    where = f"{proc_root}{_CAPABILITIES}/mig"
    return {
        table[name]: f"{where}/{name}"
        for name in ("config", "monitor")
        if name in table and name in procfiles.names(where)
    }


def add(inventory: Inventory, said: dict[str, dict[str, Any]], proc_root: str) -> list[str]:
    """Puts MIG devices into the inventory's GPUs; sentences on what NVML did not tell of them.

    said: bus id -> NVML's line on a GPU (see nvml_worker). A GPU with instances is in MIG mode even
    if NVML is silent, so that it is never given as a whole by mistake.
    """
    table = minors(proc_root)
    inventory.mig_config_minor = table.get("config", -1)
    inventory.mig_monitor_minor = table.get("monitor", -1)
    listed = fingerprint.mig_instances(proc_root)
    problems = []
    for gpu in inventory.gpus:
        answers = said.get(gpu.bus_id, {})
        lines = [line for line in answers.get("mig_devices", []) if line["uuid"]]
        gpu.mig_devices = [_device(gpu, table, line) for line in lines]
        prefix = f"gpu{gpu.minor}/"
        own = [name for name in listed if name.startswith(prefix) and name.count("/") == 2]
        told = [f"{prefix}gi{one.gpu_instance}/ci{one.compute_instance}" for one in gpu.mig_devices]
        if own:
            gpu.mig_enabled = True
        if answers.get("mig_problem"):
            problems.append(
                f"NVML does not tell all MIG devices of GPU {gpu.index}: {answers['mig_problem']}."
            )
        elif own and "error" not in answers and sorted(own) != sorted(told):
            problems.append(
                f"NVML tells of {len(told)} MIG devices of GPU {gpu.index}, where the kernel "
                f"module lists {len(own)}."
            )
    return problems


def _device(gpu: Gpu, table: dict[str, int], line: dict[str, Any]) -> MigDevice:
    instance = f"gpu{gpu.minor}/gi{line['gpu_instance']}"
    return MigDevice(
        index=line["index"],
        uuid=harmless(line["uuid"]),
        profile=harmless(line["profile"]),
        memory=line["memory"],
        gpu_instance=line["gpu_instance"],
        compute_instance=line["compute_instance"],
        gpu_instance_minor=table.get(f"{instance}/access", -1),
        compute_instance_minor=table.get(f"{instance}/ci{line['compute_instance']}/access", -1),
    )
