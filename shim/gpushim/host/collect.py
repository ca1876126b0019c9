"""Finds out what this machine has: one pass over driver, nodes, driver files and NVML."""

from __future__ import annotations

import os
import time
from typing import Any

from ..config import Config
from ..errors import GpushimError, why
from ..oci.files import write_whole
from ..places import Places
from . import (
    devicenodes,
    driver,
    driverfiles,
    driverlist,
    fingerprint,
    gpus,
    helpers,
    mig,
    nodes,
    nvml,
    procfiles,
    topology,
    tree,
)
from .model import HEALTHY, DriverTree, Gpu, Inventory, capability_key

# What a container gets that names no capabilities (NVIDIA_DRIVER_CAPABILITIES).
DEFAULT_CAPABILITIES = ["compute", "utility"]
_MOUNT_PROGRAMS = ("/usr/bin/mount", "/bin/mount")
# Sockets of the driver's daemons, beneath the driver root and in the container.
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")
# The kernel stamps files with a clock that lags by up to one tick (10 ms at 100 Hz).
_CLOCK_LAG_NS = 20_000_000


class Collected:
    """What one pass found.

    complete: whether nothing is missing that could still come by itself (an answer of NVML, a
    device node); problems: sentences; fingerprint: of what it came from (see `fingerprint.take`);
    settled: whether that stayed the same all through the pass.
    """

    __slots__ = ("complete", "fingerprint", "inventory", "problems", "settled")

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.complete = True
        self.problems: list[str] = []
        self.fingerprint: dict[str, Any] = {}
        self.settled = True


def collect(
    config: Config, places: Places, keys: list[str], minors: list[int], watched: list[str]
) -> Collected:
    """One pass. Loads the driver, makes device nodes and assembles driver trees where needed.

    places: where trees and the params file go; keys: capability keys of the trees that are wanted
    beside the default one; minors: of the GPUs whose nodes somebody waits for; watched: further
    files that the fingerprint covers. Raises GpushimError if no GPU can be used at all, or a node
    of `minors` can't be made.
    """
    driver.refuse_other_platforms(config)
    version = driver.ensure_loaded(config)
    proc = config.text("host.proc-root")
    proc_before = fingerprint.take(proc, [], [])
    found = gpus.read(proc, config.text("host.sys-root"))
    wanted = {capability_key(DEFAULT_CAPABILITIES), *keys}
    missing = _make_nodes(config, found, minors, wanted)

    root = config.text("host.driver-root")
    started = time.time_ns()
    files = _driver_files(root, version)
    params = driver.params(proc)
    params_problem = _write_params(places, params)
    mount = next((path for path in _MOUNT_PROGRAMS if helpers.is_program(path)), "")
    cache = root.rstrip("/") + "/etc/ld.so.cache"
    paths = [*watched, places.params, *([mount] if mount else []), cache, *files.paths]
    paths += files.unfit
    early = fingerprint.take(proc, paths, files.directories)

    trees: dict[str, DriverTree] = {}
    for key in sorted(wanted):
        trees[key] = tree.assemble(places, files, capabilities_of(key))
    result = Collected(
        Inventory(
            driver_version=version,
            gpus=found,
            trees=trees,
            extra_mounts=files.extra_mounts,
            sockets=[[root.rstrip("/") + path, path] for path in _SOCKETS],
            modify_device_files=params.modify_device_files and not params_problem,
            mount_program=mount,
        )
    )
    _add_nvml(config, result, _nvml_library(files), version)
    for sentence in missing.values():
        result.complete = False
        result.problems.append(sentence)
    if not found:
        result.complete = False
        result.problems.append(f"The NVIDIA driver {version} is loaded, but it lists no GPU.")
    if params_problem:
        result.problems.append(params_problem)
    result.problems += [
        f"GPU {gpu.index} ({gpu.bus_id}) can't be used: {gpu.health}."
        for gpu in found
        if gpu.health != HEALTHY
    ]
    result.fingerprint = fingerprint.take(proc, paths, files.directories)
    result.settled = (
        result.fingerprint == {**early, "texts": proc_before["texts"], "gpus": proc_before["gpus"]}
        and result.fingerprint["mig"] == proc_before["mig"]
        and not _just_changed(result.fingerprint["directories"], started)
    )
    _leave_out(result.fingerprint["files"], files, trees)
    return result


def _leave_out(
    facts: dict[str, Any], files: driverlist.DriverFiles, trees: dict[str, DriverTree]
) -> None:
    """Takes driver files out of a fingerprint that no create need look at.

    Those that the trees hold as the very same files: one that is overwritten is so in the tree as
    well. Those that no tree holds: they are mounted as they are, or looked at when one is made.
    That a file is put in the place of another, comes or goes shows in its directory's time.
    """
    copied = {path for key in trees for path in tree.sources(files, capabilities_of(key))}
    shared = {
        (found.st_dev, found.st_ino)
        for made in trees.values()
        for directory, _, names in os.walk(made.path)
        for found in [os.lstat(f"{directory}/{name}") for name in names]
    }
    for path in files.paths:
        if path not in copied and os.path.dirname(path) in files.directories:
            facts.pop(path, None)
            continue
        try:
            found = os.stat(path)
        except OSError:
            continue  # it went away just now, which the next look at it tells
        if (found.st_dev, found.st_ino) in shared:
            facts.pop(path, None)


def capabilities_of(key: str) -> list[str]:
    """The capabilities that `capability_key` made a key of."""
    return [] if key == "none" else key.split("+")


def _driver_files(root: str, version: str) -> driverlist.DriverFiles:
    """The driver's files of the kernel module's version.

    Raises GpushimError if there are only libraries of another version, which that module does not
    serve, or none at all.
    """
    try:
        versions = driverfiles.userspace_versions(root)
        if version in versions:
            return driverfiles.find(root, version)
    except OSError as error:
        raise GpushimError(f"The driver root {root} can't be searched: {why(error)}.") from error
    if versions:
        raise GpushimError(
            f"The NVIDIA driver's libraries are version {' and '.join(versions)}, but the loaded "
            f"kernel module is version {version}.",
            "Reboot, or unload the old kernel module and load the new one.",
        )
    raise GpushimError(
        f"The NVIDIA kernel module {version} is loaded, but the driver's libraries (libcuda, "
        f"libnvidia-ml) were not found beneath {root}.",
        "Install them, or set driver-root in the section [host].",
    )


def _nvml_library(files: driverlist.DriverFiles) -> str:
    """The absolute path of the driver's NVML, "" if it is not installed."""
    found = [library.path for library in files.libraries if library.stem == "libnvidia-ml"]
    fitting = [library.path for library in files.libraries_for(["utility"], 64)]
    return next((path for path in found if path in fitting), "")


def _make_nodes(
    config: Config, found: list[Gpu], minors: list[int], keys: set[str]
) -> dict[str, str]:
    """Make what device nodes are missing; name -> sentence for each that still is.

    Raises GpushimError if that is one of those that somebody waits for.
    """
    known = [gpu.minor for gpu in found if gpu.minor >= 0]
    modeset = any(
        capability in key.split("+")
        for key in keys
        for capability in devicenodes.MODESET_CAPABILITIES
    )
    instances = mig.capabilities(config.text("host.proc-root"))
    missing = nodes.make_missing(config, known, modeset, instances)
    for minor in mig.for_the_few(config.text("host.proc-root")):
        missing.pop(devicenodes.capability_node(minor), None)
    if minors:
        needed = [*map(devicenodes.gpu_node, minors), *devicenodes.CONTROL_NODES]
        if modeset:
            needed.append(devicenodes.MODESET_NODE)
        for name in needed:
            if name in missing:
                raise GpushimError(missing[name], "`gpushimctl doctor` looks further.")
    return missing


def _write_params(places: Places, params: driver.Params) -> str:
    """Keep a copy of the params file that forbids to make nodes; a sentence if that fails.

    One with the same content is left alone, since containers may have it mounted.
    """
    text = params.without_modification()
    if procfiles.text(places.params) == text:
        return ""
    try:
        write_whole(places.params, text.encode("utf-8", "surrogateescape"), 0o644)
    except OSError as error:
        return (
            f"{places.params} can't be written ({why(error)}), so programs in containers may try "
            "to make device nodes themselves."
        )
    return ""


def _add_nvml(config: Config, result: Collected, library: str, version: str) -> None:
    """Add what NVML knows to the GPUs, and the UUIDs that the driver does not know yet.

    Raises GpushimError if NVML says that it is of another version than the kernel module.
    """
    inventory = result.inventory
    inventory.nvml = library
    found = inventory.gpus
    dev = config.text("host.dev-root")
    asleep = [
        f"{dev}/{devicenodes.gpu_node(gpu.minor)}"
        for gpu in found
        if not gpu.uuid and gpu.health == gpus.UUID_UNKNOWN and gpu.minor >= 0
    ]
    if not library:
        # No reason to look again: the fingerprint tells when the library comes.
        result.problems.append("NVML (libnvidia-ml.so.1) is not installed: no memory sizes.")
    if not library and not asleep:
        result.problems += mig.add(inventory, {}, config.text("host.proc-root"))
        topology.add(inventory, {}, config.text("host.sys-root"))
        return
    silence = config.seconds("host.driver-wait")
    answers = nvml.ask(library, [gpu.bus_id for gpu in found], asleep, silence)
    if answers.mismatch:
        raise GpushimError(
            f"NVML ({library}) does not fit the loaded kernel module {version}: {answers.problem}",
            "Reboot, or unload the old kernel module and load the new one.",
        )
    if answers.problem:
        result.complete = False
        result.problems.append(answers.problem)
    inventory.cuda_version = answers.cuda_version
    for gpu in found:
        if gpu.bus_id in answers.gpus:
            nvml.merge(gpu, answers.gpus[gpu.bus_id])
    problems = mig.add(inventory, answers.gpus, config.text("host.proc-root"))
    result.problems += problems
    result.complete = result.complete and not (library and problems)
    topology.add(inventory, answers.gpus, config.text("host.sys-root"))


def _just_changed(directories: dict[str, list[int] | None], since: int) -> bool:
    """Whether a directory changed while it was being searched.

    Its listing may then be older than the time that the fingerprint has. since: when the search
    began, in nanoseconds of the wall clock; a time in the future is a wrong clock's and no sign.
    """
    present = time.time_ns()
    return any(
        fact is not None and since - _CLOCK_LAG_NS <= fact[1] <= present
        for fact in directories.values()
    )
