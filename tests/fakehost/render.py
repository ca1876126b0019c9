"""The whole of a host but the driver's files, as a tree: a function of the description alone."""

from __future__ import annotations

from collections.abc import Iterable

from . import devfs, procfs, sysfs, topology
from .description import Description, Gpu
from .topology import Function
from .tree import Node, Tree, add_under, text

STORE = "var/lib/fakehost"
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")
_NEEDS = {"nvidia": "", "nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia",
          "nvidia_drm": "nvidia_modeset"}  # fmt: skip


def _node_lines(tree: Tree) -> str:
    return "".join(
        f"{path} {node.major} {node.minor} {node.mode:o} {node.gid}\n"
        for path, node in tree.items()
        if isinstance(node, Node)
    )


def _chardev_lines(lines: list[tuple[int, str]]) -> str:
    return "".join(f"{major:3d} {name}\n" for major, name in lines)


def system_tree(
    description: Description, gpus: list[Gpu], functions: list[Function], loaded: Iterable[str]
) -> Tree:
    """/proc, /sys and /dev with these modules loaded, and what the fake modprobe works with."""
    loaded = set(loaded)
    tree: Tree = sysfs.pci_tree(description, gpus, functions)
    tree |= sysfs.node_tree(description)
    add_under(tree, "dev", devfs.base_nodes() | devfs.other_nodes(description))
    in_sysfs = sysfs.module_trees(description, gpus, functions)
    nodes = devfs.module_nodes(description, gpus, functions)
    chardevs = procfs.chardevs(description)
    lines = list(procfs.BASE_CHARACTER)
    for module in MODULES:
        part = in_sysfs[module]
        if module == "nvidia":
            add_under(part, "proc", procfs.driver_tree(description, gpus))
        store = f"{STORE}/modules/{module}"
        add_under(tree, f"{store}/tree", part)
        tree[f"{store}/chardevs"] = text(_chardev_lines(chardevs[module]))
        tree[f"{store}/needs"] = text(_NEEDS[module] + "\n")
        tree[f"{store}/nodes"] = text(_node_lines(nodes[module]))
        if module in loaded:
            tree |= part
            add_under(tree, "dev", nodes[module])
            lines += chardevs[module]
    tree[f"{STORE}/chardevs"] = text(_chardev_lines(list(procfs.BASE_CHARACTER)))
    tree[f"{STORE}/blockdevs"] = text(_chardev_lines(list(procfs.BASE_BLOCK)))
    tree["proc/devices"] = text(procfs.devices_text(lines))
    for gpu in gpus:
        if gpu.lazy_uuid:
            tree[f"{STORE}/information/{gpu.bus}"] = text(
                procfs.information_text(description, gpu, known=True)
            )
    return tree


def pci_functions(description: Description, gpus: list[Gpu]) -> list[Function]:
    """The PCI tree of the host."""
    return topology.pci_tree(description, gpus)
