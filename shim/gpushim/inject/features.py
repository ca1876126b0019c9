"""Devices beside the GPUs that a container may ask for: storage, network, switches, IMEX, MIG.

What the vendor's toolkit adds for NVIDIA_GDS and its like is whatever of it the machine has, and
nothing is said where it has none. Here that is worth a warning and no more: images and charts set
such a variable wherever they run, and programs do without. An IMEX channel by its number and the
right to partition GPUs are no such wishes: a container that does not get what it named is refused.
"""

from __future__ import annotations

import posix

from gpushim.errors import GpushimError
from gpushim.host.devicenodes import capability_node, channel_node, node_facts, stale
from gpushim.inject.gpus import FILE_OPTIONS, device_edits
from gpushim.oci.edits import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.config import Config
    from gpushim.host.model import Inventory
    from gpushim.inject.container import Container
    from gpushim.oci.edits import Edits
    from gpushim.request.request import Request


class Feature:
    """What belongs to one feature.

    variable and title: for sentences; directory: beneath the dev root, "" for itself; nodes: names
    there, of which one that ends in * means all that begin so; mounts: beneath the driver root and
    in the container; module: what makes the nodes.
    """

    __slots__ = ("directory", "module", "mounts", "nodes", "title", "variable")

    def __init__(
        self,
        variable: str,
        title: str,
        directory: str,
        nodes: tuple[str, ...],
        module: str,
        mounts: tuple[str, ...] = (),
    ) -> None:
        self.variable = variable
        self.title = title
        self.directory = directory
        self.nodes = nodes
        self.module = module
        self.mounts = mounts

    def fits(self, name: str) -> bool:
        return any(
            name.startswith(node[:-1]) if node.endswith("*") else name == node
            for node in self.nodes
        )

    def prefix(self) -> str:
        return f"{self.directory}/" if self.directory else ""


FEATURES = {
    "gds": Feature(
        "NVIDIA_GDS",
        "GPUDirect Storage",
        "",
        ("nvidia-fs*",),
        "nvidia-fs",
        ("/run/udev", "/etc/cufile.json"),
    ),
    "mofed": Feature(
        "NVIDIA_MOFED", "InfiniBand", "infiniband", ("uverbs*", "rdma_cm"), "ib_uverbs"
    ),
    "gdrcopy": Feature("NVIDIA_GDRCOPY", "GDRCopy", "", ("gdrdrv",), "gdrdrv"),
    "nvswitch": Feature("NVIDIA_NVSWITCH", "NVSwitch", "", ("nvidia-nvswitch*",), "nvidia"),
}

_MIG_RIGHT = "The right to partition GPUs, or to watch all their MIG devices,"


def feature_edits(
    edits: Edits, container: Container, request: Request, inventory: Inventory, config: Config
) -> list[str]:
    """Adds nodes and mounts of all that was asked for; returns sentences for the log.

    Nodes of channels and of MIG's capabilities are made where they are missing. Raises GpushimError
    for one that is not there all the same.
    """
    dev_root = config.text("host.dev-root")
    said = []
    for name in request.features:
        feature = FEATURES[name]
        found = present(feature, dev_root)
        if not found:
            said.append(
                f"{feature.variable} asks for {feature.title}, but {dev_root} has no "
                f"{feature.prefix()}{feature.nodes[0]} here: the kernel module {feature.module} is "
                "not loaded, or has no such device."
            )
            continue
        _add(edits, dev_root, found)
        _mount(edits, container, config.text("host.driver-root"), feature.mounts)
    channels = {channel_node(channel): channel for channel in request.imex_channels}
    if channels:
        source = request.sources.get("NVIDIA_IMEX_CHANNELS", "a mount")
        hint = "Is it a machine with IMEX, and is its domain set up? If not, ask for no channel."
        _need(edits, config, channels, "An IMEX channel", source, hint)
    minors = _mig_minors(request, inventory)
    if minors:
        hint = "See 'gpushimctl doctor', or leave the variable out."
        _need(edits, config, minors, _MIG_RIGHT, _mig_source(request), hint)
    return said


def present(feature: Feature, dev_root: str) -> list[str]:
    """The nodes of a feature that this machine has, by name beneath the dev root."""
    try:
        names = sorted(posix.listdir(f"{dev_root}/{feature.directory}"))
    except OSError:
        return []
    fitting = [feature.prefix() + name for name in names if feature.fits(name)]
    return [name for name in fitting if node_facts(dev_root, name) is not None]


def _mount(edits: Edits, container: Container, driver_root: str, mounts: tuple[str, ...]) -> None:
    """Adds those that exist, read-only, where the user has nothing mounted."""
    for path in mounts:
        host_path = driver_root.rstrip("/") + path
        try:
            posix.stat(host_path)
        except OSError:
            continue
        if not container.covered(path):
            edits.mounts.append(Mount(host_path, path, FILE_OPTIONS))


def _mig_minors(request: Request, inventory: Inventory) -> dict[str, int]:
    """Name -> minor of the nodes to partition GPUs and to watch all instances, as asked for."""
    found = {}
    for asked, minor in (
        (request.mig_config, inventory.mig_config_minor),
        (request.mig_monitor, inventory.mig_monitor_minor),
    ):
        if asked and minor < 0:
            raise GpushimError(
                f"{_MIG_RIGHT} was asked for by {_mig_source(request)}, but the driver here knows "
                "no MIG.",
                "It has no /proc/driver/nvidia-caps/mig-minors: leave the variable out.",
            )
        if asked:
            found[capability_node(minor)] = minor
    return found


def _mig_source(request: Request) -> str:
    names = ("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES")
    return " and ".join(request.sources[name] for name in names if name in request.sources)


def _need(
    edits: Edits, config: Config, numbers: dict[str, int], what: str, source: str, hint: str
) -> None:
    """Adds nodes by name, which are made where missing. Raises GpushimError if one can't be.

    numbers: name beneath the dev root -> minor.
    """
    dev_root = config.text("host.dev-root")
    found = {name: node_facts(dev_root, name) for name in numbers}
    there = {name: facts for name, facts in found.items() if facts is not None}
    if len(there) < len(numbers) or stale(config.text("host.proc-root"), there):
        from gpushim.host import nodes

        for sentence in nodes.make_named(config, numbers).values():
            raise GpushimError(f"{what} was asked for by {source}. {sentence}", hint)
    _add(edits, dev_root, list(numbers))


def _add(edits: Edits, dev_root: str, names: list[str]) -> None:
    found = {name: node_facts(dev_root, name) for name in names}
    device_edits(edits, dev_root, {name: fact for name, fact in found.items() if fact is not None})
