"""What doctor looks at: one function a check, each with a stable id."""

from __future__ import annotations

import os
from collections.abc import Callable

from .. import config_file, launcher_settings, lowlevel
from ..config import Config
from ..errors import GpushimError, harmless, why
from ..host import devicenodes, driver, gpus
from ..host.model import HEALTHY, Gpu, Inventory, capability_key
from ..places import Places
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..snapshot import Snapshot, obtain
from . import docker_check, files, installation, interpreters
from .check_result import FAIL, INSTALL, OK, SKIP, WARN, Result


class UnreadableConfigError(Exception):
    """A check needs the configuration, which can't be read; config.valid says why."""


class Context:
    """What the checks share: the installation's places, its configuration and record."""

    __slots__ = ("_config", "_snapshot", "config_problem", "places", "record", "record_problem")

    def __init__(self, places: Places) -> None:
        self.places = places
        self._snapshot: Snapshot | None = None
        self._config: Config | None = None
        self.config_problem = self.record_problem = ""
        try:
            self._config = config_file.read(places.config)
        except GpushimError as error:
            self.config_problem = error.sentence
        try:
            self.record = installation.read(places)
        except GpushimError as error:
            self.record, self.record_problem = None, str(error)

    @property
    def config(self) -> Config:
        """The configuration. Raises UnreadableConfigError: the defaults would tell of another."""
        if self._config is None:
            raise UnreadableConfigError
        return self._config

    def snapshot(self) -> Snapshot:
        """What a create goes by, found out anew if need be. Raises GpushimError."""
        if self._snapshot is None:
            installation.require(self.places)
            key = capability_key(list(DEFAULT_CAPABILITIES))
            self._snapshot = obtain(self.places, key)
        return self._snapshot

    def gpus(self) -> list[Gpu]:
        return gpus.read(self.config.text("host.proc-root"), self.config.text("host.sys-root"))


def python_interpreter(context: Context) -> Result:
    """The interpreter that containers are created with is there and new enough."""
    if context.record is None:
        return Result(FAIL, context.record_problem or "gpushim is not installed.", INSTALL)
    path = context.record.python
    found = interpreters.version(path)
    number = ".".join(map(str, found))
    if not found:
        return Result(FAIL, f"{path} can't be run.", INSTALL)
    if found < interpreters.OLDEST:
        return Result(FAIL, f"{path} is Python {number}, and 3.10 is needed.", INSTALL)
    if not os.path.isfile(f"{context.record.code}/gpushim/entry.py"):
        return Result(FAIL, f"gpushim's code is not in {context.record.code} any more.", INSTALL)
    return Result(OK, f"{path} is Python {number}.")


def lowlevel_version(context: Context) -> Result:
    """There is a low-level runtime that can be run."""
    names = context.config.texts("runtime.low-level-runtimes")
    try:
        found = lowlevel.find(names, os.environ.get("PATH", ""), context.places.launcher)
    except GpushimError as error:
        former = launcher_settings.in_use(context.places)
        if not former or not os.access(former, os.X_OK):
            return Result(FAIL, error.sentence, error.hint)
        return Result(WARN, f"{error.sentence} Containers go on with {former}.", error.hint)
    version = lowlevel.version(found[0]).partition("\n")[0]
    if not version:
        return Result(FAIL, f"{found[0]} does not tell its version.", "Install runc or crun anew.")
    return Result(OK, f"{found[0]} is {harmless(version)}.")


def config_valid(context: Context) -> Result:
    """The configuration file is right."""
    if context.config_problem:
        return Result(FAIL, context.config_problem, "Correct it; `gpushimctl config check` tells.")
    if not os.path.exists(context.places.config):
        return Result(OK, f"There is no {context.places.config}: all defaults hold.")
    return Result(OK, f"{context.places.config} is right.")


def state_writable(context: Context) -> Result:
    """State and driver trees can be written."""
    if os.geteuid() != 0:
        return Result(SKIP, "Only root can tell.")
    for directory in (context.places.run, context.places.containers, context.places.lib):
        problem = _unwritable(directory)
        if problem:
            return Result(FAIL, f"{directory} can't be written: {problem}.", INSTALL)
    return Result(OK, f"{context.places.run} and {context.places.lib} can be written.")


def log_writable(context: Context) -> Result:
    """gpushim's own log can be written."""
    if os.geteuid() != 0:
        return Result(SKIP, "Only root can tell.")
    path = context.config.text("runtime.log-file") or context.places.default_log_file
    problem = _unwritable(os.path.dirname(path))
    if problem:
        advice = "Make the directory, or set runtime.log-file; containers start without a log, too."
        return Result(WARN, f"The log {path} can't be written: {problem}.", advice)
    return Result(OK, f"{path} can be written.")


def _unwritable(directory: str) -> str:
    """Why no file can be made in a directory; "" if one can be: tried, since only that tells."""
    path = f"{directory}/.gpushim-doctor-{os.getpid()}"
    try:
        with open(path, "xb") as file:
            file.write(b"x")
        os.unlink(path)
    except OSError as error:
        return why(error)
    return ""


def driver_loaded(context: Context) -> Result:
    """NVIDIA's kernel module is loaded."""
    try:
        version = driver.version(context.config.text("host.proc-root"))
    except GpushimError as error:
        return Result(FAIL, error.sentence, error.hint)
    if not version:
        if gpus.nvidia_devices(context.config.text("host.sys-root")) == []:
            return Result(SKIP, "This machine has no NVIDIA GPU.")
        return Result(FAIL, "NVIDIA's kernel module is not loaded.", "Run `modprobe nvidia`.")
    return Result(OK, f"Driver {version} is loaded.")


def _by_inventory(context: Context, judge: Callable[[Inventory], Result]) -> Result:
    """What `judge` makes of the machine as a create would find it, if it would find it."""
    if not _is_loaded(context):
        return Result(SKIP, "No driver is loaded.")
    try:
        return judge(context.snapshot().inventory)
    except GpushimError as error:
        return Result(FAIL, error.sentence, error.hint or "See `gpushimctl refresh`.")


def driver_versions_match(context: Context) -> Result:
    """Kernel module and libraries are of one version."""
    return _by_inventory(
        context,
        lambda found: Result(OK, f"Kernel module and libraries are {found.driver_version}."),
    )


def gpu_health(context: Context) -> Result:
    """Each GPU works, as far as the driver and NVML tell."""

    def judge(inventory: Inventory) -> Result:
        found = inventory.gpus
        broken = [f"GPU {gpu.index} ({gpu.health})" for gpu in found if gpu.health != HEALTHY]
        if broken:
            said = f"Not usable: {', '.join(broken)}."
            return Result(WARN, said, "See `nvidia-smi` and `dmesg`.")
        return Result(OK, f"{len(found)} of {len(found)} GPUs work.")

    return _by_inventory(context, judge)


def gpu_mig(context: Context) -> Result:
    """Each GPU in MIG mode has MIG devices: CUDA can't use it as a whole."""

    def judge(inventory: Inventory) -> Result:
        found = inventory.gpus
        enabled = [gpu for gpu in found if gpu.mig_enabled]
        empty = [str(gpu.index) for gpu in enabled if not gpu.mig_devices]
        if empty:
            return Result(
                WARN,
                f"GPU {', '.join(empty)} is in MIG mode and has no MIG devices, so that CUDA "
                "can't use it.",
                "Make some (`nvidia-smi mig -i INDEX -cgi PROFILE -C`), or switch the mode off "
                "(`nvidia-smi -i INDEX -mig 0`).",
            )
        if enabled:
            count = sum(len(gpu.mig_devices) for gpu in enabled)
            which = ", ".join(str(gpu.index) for gpu in enabled)
            return Result(OK, f"MIG mode is on for GPU {which}, with {count} MIG devices.")
        if any(gpu.mig_enabled is None for gpu in found):
            return Result(OK, "No GPU is known to be in MIG mode.")
        return Result(OK, "No GPU is in MIG mode.")

    return _by_inventory(context, judge)


def device_nodes(context: Context) -> Result:
    """The device nodes that containers are given are there, with the kernel's numbers."""
    if not _is_loaded(context):
        return Result(SKIP, "No driver is loaded.")
    root = context.config.text("host.dev-root")
    names = _node_names(context)
    missing = [name for name in names if devicenodes.node_facts(root, name) is None]
    if missing:
        advice = "Run `gpushimctl refresh`, which makes them, or `nvidia-modprobe -u -c 0`."
        return Result(FAIL, f"In {root} these are missing: {', '.join(missing)}.", advice)
    uvm = devicenodes.node_facts(root, "nvidia-uvm")
    wrong = devicenodes.uvm_warning(context.config.text("host.proc-root"), uvm[0]) if uvm else ""
    if wrong:
        return Result(FAIL, wrong, f"Remove {root}/nvidia-uvm* and run `gpushimctl refresh`.")
    return Result(OK, f"{root} has {', '.join(names)}.")


def device_char_links(context: Context) -> Result:
    """Each node has its link in /dev/char, which systemd needs for device rules."""
    if not _is_loaded(context):
        return Result(SKIP, "No driver is loaded.")
    root = context.config.text("host.dev-root")
    missing = []
    for name in _node_names(context):
        facts = devicenodes.node_facts(root, name)
        number = f"{facts[0]}:{facts[1]}" if facts is not None else ""
        if facts is not None and devicenodes.node_facts(f"{root}/char", number) != facts:
            missing.append(f"char/{number} ({name})")
    if missing:
        return Result(
            WARN,
            f"In {root} these links are missing: {', '.join(missing)}.",
            "Run `gpushimctl refresh`; without them `systemctl daemon-reload` takes GPUs away "
            "from running containers.",
        )
    return Result(OK, f"Each node has its link in {root}/char.")


def _is_loaded(context: Context) -> bool:
    return os.path.exists(context.config.text("host.proc-root") + "/driver/nvidia/version")


def _node_names(context: Context) -> list[str]:
    minors = sorted(gpu.minor for gpu in context.gpus() if gpu.minor >= 0)
    return [*map(devicenodes.gpu_node, minors), *devicenodes.CONTROL_NODES]


def launcher_present(context: Context) -> Result:
    """The launcher is as install wrote it, and can be executed."""
    path = context.places.launcher
    digest = files.fingerprint(path)
    if not digest:
        return Result(FAIL, f"There is no launcher {path}.", INSTALL)
    if not os.access(path, os.X_OK):
        return Result(FAIL, f"The launcher {path} is not executable.", INSTALL)
    if context.record is not None and context.record.files.get(path) != digest:
        return Result(WARN, f"{path} is not as install wrote it.", INSTALL)
    return Result(OK, f"{path} is as install wrote it.")


def _docker_runtime_registered(context: Context) -> Result:
    return docker_check.runtime_registered(context.places, context.record)


CHECKS: dict[str, Callable[[Context], Result]] = {
    "python.interpreter": python_interpreter,
    "launcher.present": launcher_present,
    "lowlevel.version": lowlevel_version,
    "config.valid": config_valid,
    "state.writable": state_writable,
    "log.writable": log_writable,
    "docker.runtime-registered": _docker_runtime_registered,
    "driver.loaded": driver_loaded,
    "driver.versions-match": driver_versions_match,
    "gpu.health": gpu_health,
    "gpu.mig": gpu_mig,
    "device.nodes": device_nodes,
    "device.char-links": device_char_links,
}
