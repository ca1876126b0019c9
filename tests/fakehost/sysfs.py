"""/sys as far as GPUs, NUMA nodes, PCI topology, network adapters and modules are concerned."""

from __future__ import annotations

import os

from . import devfs
from .description import Description, Gpu
from .procfs import kernel_driver
from .topology import Function, all_cpus, mask, node_cpus
from .tree import Folder, Link, Tree, text


def _relative(path: str, target: str) -> Link:
    """A link from one place in the tree to another, relative as the kernel makes them."""
    return Link(os.path.relpath(target, os.path.dirname(path)))


def _identity(function: Function, gpus: list[Gpu]) -> tuple[int, int, int, int]:
    """Vendor, device, subsystem device and class of a PCI function."""
    if function.kind == "gpu":
        model = gpus[function.number].model
        return 0x10DE, model.device, model.subsystem, model.pci_class
    if function.kind == "nvswitch":
        return 0x10DE, 0x1AF1, 0x0000, 0x068000
    if function.kind == "nic":
        return 0x15B3, 0x101B, 0x0007, 0x020700
    return 0x1000, 0xC010, 0x100B, 0x060400


def pci_tree(description: Description, gpus: list[Gpu], functions: list[Function]) -> Tree:
    """Devices, bridges and the bus's links, which are there with a driver or without."""
    tree: Tree = {}
    for function in functions:
        place = f"sys/devices/{function.path}"
        vendor, device, subsystem, pci_class = _identity(function, gpus)
        near = (
            node_cpus(description, function.numa) if function.numa >= 0 else all_cpus(description)
        )
        values = {
            "vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}",
            "subsystem_vendor": f"0x{vendor:04x}", "subsystem_device": f"0x{subsystem:04x}",
            "class": f"0x{pci_class:06x}", "numa_node": str(function.numa),
            "local_cpulist": near, "local_cpus": mask(near), "enable": "1", "revision": "0xa1",
        }  # fmt: skip
        if function.kind == "gpu":
            values |= {"current_link_width": "16", "max_link_width": "16",
                       "current_link_speed": "16.0 GT/s PCIe",
                       "max_link_speed": "16.0 GT/s PCIe"}  # fmt: skip
        for name, value in values.items():
            tree[f"{place}/{name}"] = text(value + "\n")
        tree[f"{place}/subsystem"] = _relative(f"{place}/subsystem", "sys/bus/pci")
        link = f"sys/bus/pci/devices/{function.bus}"
        tree[link] = _relative(link, place)
        if function.kind == "nic":
            _nic(tree, function, place)
    return tree


def _nic(tree: Tree, function: Function, place: str) -> None:
    number = function.number
    for kind, name in (("infiniband", f"mlx5_{number}"), ("net", f"ib{number}")):
        directory = f"{place}/{kind}/{name}"
        tree[f"{directory}/device"] = _relative(f"{directory}/device", place)
        tree[f"sys/class/{kind}/{name}"] = _relative(f"sys/class/{kind}/{name}", directory)
    port = f"{place}/infiniband/mlx5_{number}/ports/1"
    tree[f"{port}/state"] = text("4: ACTIVE\n")
    tree[f"{port}/link_layer"] = text("InfiniBand\n")
    tree[f"{place}/net/ib{number}/operstate"] = text("up\n")
    tree[f"{place}/driver"] = _relative(f"{place}/driver", "sys/bus/pci/drivers/mlx5_core")
    tree["sys/bus/pci/drivers/mlx5_core"] = Folder()


def node_tree(description: Description) -> Tree:
    """/sys/devices/system/node."""
    tree: Tree = {}
    count = max(1, description.numa_nodes)
    online = f"0-{count - 1}" if count > 1 else "0"
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        tree[f"sys/devices/system/node/{name}"] = text(online + "\n")
    for node in range(count):
        place = f"sys/devices/system/node/node{node}"
        cpus = node_cpus(description, node)
        distance = " ".join("10" if other == node else "20" for other in range(count))
        tree[f"{place}/cpulist"] = text(cpus + "\n")
        tree[f"{place}/cpumap"] = text(mask(cpus) + "\n")
        tree[f"{place}/distance"] = text(distance + "\n")
        tree[f"{place}/meminfo"] = text(f"Node {node} MemTotal:       131072000 kB\n")
    tree["sys/devices/system/cpu/online"] = text(all_cpus(description) + "\n")
    tree["sys/devices/system/cpu/possible"] = text(all_cpus(description) + "\n")
    return tree


def module_trees(
    description: Description, gpus: list[Gpu], functions: list[Function]
) -> dict[str, Tree]:
    """What each of NVIDIA's modules adds to /sys when it is loaded."""
    trees: dict[str, Tree] = {}
    version = kernel_driver(description)
    for module, users in (
        ("nvidia", "nvidia_uvm nvidia_modeset"),
        ("nvidia_uvm", ""),
        ("nvidia_modeset", "nvidia_drm"),
        ("nvidia_drm", ""),
    ):
        place = f"sys/module/{module}"
        tree: Tree = {
            f"{place}/version": text(version + "\n"),
            f"{place}/initstate": text("live\n"),
            f"{place}/refcnt": text("0\n"),
        }
        for user in users.split():
            tree[f"{place}/holders/{user}"] = Link(f"../../{user}")
        trees[module] = tree
    for function in functions:
        if function.kind == "gpu":
            place = f"sys/devices/{function.path}"
            driver = "sys/bus/pci/drivers/nvidia"
            trees["nvidia"][f"{place}/driver"] = _relative(f"{place}/driver", driver)
            trees["nvidia"][f"{driver}/{function.bus}"] = _relative(f"{driver}/x", place)
            _drm(trees["nvidia_drm"], description, gpus[function.number], place)
    trees["nvidia"].setdefault("sys/bus/pci/drivers/nvidia", Folder())
    return trees


def _drm(tree: Tree, description: Description, gpu: Gpu, place: str) -> None:
    if not description.drm:
        return
    for name, minor in (
        (f"card{devfs.card_number(description, gpu)}", devfs.card_number(description, gpu)),
        (f"renderD{128 + gpu.index}", 128 + gpu.index),
    ):
        directory = f"{place}/drm/{name}"
        tree[f"{directory}/dev"] = text(f"{devfs.DRM_MAJOR}:{minor}\n")
        tree[f"{directory}/device"] = _relative(f"{directory}/device", place)
        tree[f"sys/class/drm/{name}"] = _relative(f"sys/class/drm/{name}", directory)
        char = f"sys/dev/char/{devfs.DRM_MAJOR}:{minor}"
        tree[char] = _relative(char, directory)
