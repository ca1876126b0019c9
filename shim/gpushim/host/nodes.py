"""Makes the driver's device nodes and their /dev/char links where they are missing.

Nodes, numbers and modes are those of nvidia-modprobe (modprobe-utils/nvidia-modprobe-utils.c):
minor 254 and 255 of the front end are nvidia-modeset and nvidiactl, 0 and 1 of nvidia-uvm are
nvidia-uvm and nvidia-uvm-tools; the params file rules mode and owner of all but those of uvm,
which are always 0666 and root's, and those of capabilities, which have a file each beneath /proc
that gives their mode.
"""

from __future__ import annotations

import os
import stat
import time

from ..config import Config
from ..errors import why
from . import devicenodes, driver, gpus, helpers, mig, procfiles

# Older drivers call the front end nvidia-frontend.
_FRONT_END = ("nvidia-frontend", "nvidia")
_UVM = ("nvidia-uvm",)
_CAPABILITIES = ("nvidia-caps",)
_CHANNELS = ("nvidia-caps-imex-channels",)
_MODPROBE_MINORS = 64


class Node:
    """A node that should be there: its name in the dev root, its module's names, its minor.

    capability: the file beneath /proc of the capability that it stands for, "" for other nodes.
    """

    __slots__ = ("capability", "minor", "modules", "name")

    def __init__(
        self, name: str, modules: tuple[str, ...], minor: int, capability: str = ""
    ) -> None:
        self.name = name
        self.modules = modules
        self.minor = minor
        self.capability = capability


def wanted(minors: list[int], modeset: bool, capabilities: dict[int, str]) -> list[Node]:
    """The nodes that containers with these GPUs and capabilities need (see make_missing)."""
    nodes = [Node(devicenodes.gpu_node(minor), _FRONT_END, minor) for minor in minors]
    nodes.append(Node("nvidiactl", _FRONT_END, 255))
    nodes.append(Node("nvidia-uvm", _UVM, 0))
    nodes.append(Node("nvidia-uvm-tools", _UVM, 1))
    if modeset:
        nodes.append(Node(devicenodes.MODESET_NODE, _FRONT_END, 254))
    for minor, path in capabilities.items():
        nodes.append(Node(devicenodes.capability_node(minor), _CAPABILITIES, minor, path))
    return nodes


def make_missing(
    config: Config, minors: list[int], modeset: bool, capabilities: dict[int, str]
) -> dict[str, str]:
    """Make what is missing; name -> why, of each node that is still not there.

    minors: of the GPUs; modeset: whether nvidia-modeset is needed (graphics and display);
    capabilities: minor of each node of nvidia-caps -> its file beneath /proc.
    """
    return _make_all(config, wanted(minors, modeset, capabilities))


def make_named(config: Config, minors: dict[str, int]) -> dict[str, str]:
    """Make what is missing of IMEX channels and of MIG's nodes for the few; name -> why.

    minors: name in the dev root -> minor.
    """
    files = mig.for_the_few(config.text("host.proc-root"))
    return _make_all(
        config,
        [
            Node(name, _CAPABILITIES, minor, files.get(minor, ""))
            if name == devicenodes.capability_node(minor)
            else Node(name, _CHANNELS, minor)
            for name, minor in minors.items()
        ],
    )


def _make_all(config: Config, nodes: list[Node]) -> dict[str, str]:
    dev = config.text("host.dev-root")
    missing = _missing(config, nodes)
    reasons: dict[str, str] = {}
    if missing and config.flag("host.load-driver"):
        _run_helpers(config, missing)
        missing = _missing(config, missing)
        params = driver.params(config.text("host.proc-root"))
        for node in missing:
            reasons[node.name] = _make(config, node, params)
        missing = _missing(config, missing)
    _make_links(dev, nodes)
    return {
        node.name: f"The device node {dev}/{node.name} is missing, and "
        + (reasons.get(node.name) or "gpushim may not make it (load-driver is off)")
        + "."
        for node in missing
    }


def _missing(config: Config, nodes: list[Node]) -> list[Node]:
    """Those that are not there, or have the numbers of a former load of the driver."""
    dev = config.text("host.dev-root")
    found = {node.name: devicenodes.node_facts(dev, node.name) for node in nodes}
    there = {name: facts for name, facts in found.items() if facts is not None}
    stale = devicenodes.stale(config.text("host.proc-root"), there)
    return [node for node in nodes if node.name not in there or node.name in stale]


def _run_helpers(config: Config, missing: list[Node]) -> None:
    """Let nvidia-modprobe make them, and load modules; what it did shows in the nodes."""
    directories = config.texts("host.helpers")
    deadline = time.monotonic() + config.seconds("host.driver-wait")
    front = [node.minor for node in missing if node.modules is _FRONT_END and node.minor != 254]
    uvm = any(node.modules is _UVM for node in missing)
    modeset = any(node.name == devicenodes.MODESET_NODE for node in missing)
    commands: list[list[str]] = []
    nvidia_modprobe = helpers.find(directories, "nvidia-modprobe")
    if nvidia_modprobe:
        for start in range(0, len(front), _MODPROBE_MINORS):
            some = front[start : start + _MODPROBE_MINORS]
            commands.append([nvidia_modprobe, *(part for n in some for part in ("-c", str(n)))])
        if uvm:
            commands.append([nvidia_modprobe, "-u", "-c", "0"])
        if modeset:
            commands.append([nvidia_modprobe, "-m"])
        files = [part for node in missing if node.capability for part in ("-f", node.capability)]
        if files:
            commands.append([nvidia_modprobe, *files])
    modprobe = helpers.find(directories, "modprobe")
    if modprobe and not nvidia_modprobe:
        majors = devicenodes.character_majors(config.text("host.proc-root"))
        if uvm and "nvidia-uvm" not in majors:
            commands.append([modprobe, "nvidia-uvm"])
        if modeset:
            commands.append([modprobe, "nvidia-modeset"])
    for command in commands:
        left = deadline - time.monotonic()
        if left > 0:
            helpers.run(command, left)


def _make(config: Config, node: Node, params: driver.Params) -> str:
    """Make one node by mknod; a clause on why that can't be, "" if it was made.

    Under another name first, so that nobody sees it before its mode and owner are right.
    """
    dev = config.text("host.dev-root")
    majors = devicenodes.character_majors(config.text("host.proc-root"))
    major = next((majors[name] for name in node.modules if name in majors), None)
    if major is None:
        return f"the kernel module {node.modules[-1]} is not loaded"
    path = f"{dev}/{node.name}"
    if os.path.lexists(path) and devicenodes.node_facts(dev, node.name) is None:
        return "something else is there under its name"
    mode, uid, gid = params.mode, params.uid, params.gid
    if node.modules is _UVM:
        mode, uid, gid = 0o666, 0, 0
    if node.modules == _CAPABILITIES:
        if not node.capability:
            return "the driver knows no such capability"
        mode, uid, gid = _capability_mode(node.capability), 0, 0
    directory, _, name = path.rpartition("/")
    temporary = f"{directory}/.gpushim-{name}-{os.getpid()}"
    try:
        os.makedirs(directory, 0o755, exist_ok=True)
        os.mknod(temporary, stat.S_IFCHR | 0o600, os.makedev(major, node.minor))
        try:
            os.chown(temporary, uid, gid)
            os.chmod(temporary, mode)
            os.rename(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        return f"can't be made: {why(error)}"
    return ""


def _capability_mode(path: str) -> int:
    """The mode that the driver gives the node of a capability; root's only where it is silent."""
    text = gpus.information(procfiles.text(path)).get("DeviceFileMode", "")
    return int(text) & 0o777 if text.isascii() and text.isdecimal() and len(text) < 6 else 0o400


def _make_links(dev: str, nodes: list[Node]) -> None:
    """Make <dev>/char/<major>:<minor> -> ../<name> for each node, as udev would.

    systemd before 240 looks devices up there when it applies a unit's device rules, and tools
    warn where the links are missing; so a link that can't be made is not worth an error.
    """
    directory = dev + "/char"
    if dev != "/dev" and not os.path.isdir(directory):
        return
    for node in nodes:
        facts = devicenodes.node_facts(dev, node.name)
        if facts is None:
            continue
        link = f"{directory}/{facts[0]}:{facts[1]}"
        if devicenodes.node_facts(directory, f"{facts[0]}:{facts[1]}") == facts:
            continue
        if os.path.lexists(link) and not os.path.islink(link):
            continue
        try:
            os.makedirs(directory, 0o755, exist_ok=True)
            temporary = f"{directory}/.gpushim-{facts[0]}:{facts[1]}-{os.getpid()}"
            os.symlink(f"../{node.name}", temporary)
            try:
                os.rename(temporary, link)
            except OSError:
                os.unlink(temporary)
                raise
        except OSError:
            continue
