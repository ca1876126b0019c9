"""Device nodes, with the numbers that the driver and the kernel give them."""

from __future__ import annotations

from . import mig
from .description import Description, Gpu
from .procfs import NVIDIA_MAJOR
from .topology import Function
from .tree import Link, Node, Tree

DRM_MAJOR = 226
CONTROL_MINOR, MODESET_MINOR = 255, 254


def card_number(description: Description, gpu: Gpu) -> int:
    """The N of cardN: a management controller's own screen comes before all GPUs."""
    return gpu.index + (1 if description.bmc_vga else 0)


def base_nodes() -> Tree:
    """Nodes of any host that containers and programs want."""
    return {
        "null": Node(1, 3), "zero": Node(1, 5), "full": Node(1, 7), "random": Node(1, 8),
        "urandom": Node(1, 9), "tty": Node(5, 0),
    }  # fmt: skip


def other_nodes(description: Description) -> Tree:
    """Nodes of other drivers than NVIDIA's main one: InfiniBand, GPUDirect Storage, GDRCopy."""
    tree: Tree = {}
    if description.bmc_vga:
        tree["dri/card0"] = Node(DRM_MAJOR, 0, 0o660, 44)
    for number in range(description.nics):
        tree[f"infiniband/uverbs{number}"] = Node(231, 192 + number)
        tree["infiniband/rdma_cm"] = Node(10, 122)
    if description.gds:
        tree["nvidia-fs0"] = Node(504, 0)
        tree["nvidia-fs1"] = Node(504, 1)
        tree["gdrdrv"] = Node(503, 0)
    return tree


def module_nodes(
    description: Description, gpus: list[Gpu], functions: list[Function]
) -> dict[str, Tree]:
    """The nodes that belong to each module, under dev/."""
    mode, gid = description.device_mode, description.device_gid
    caps = description.caps_major

    def node(major: int, minor: int) -> Node:
        return Node(major, minor, mode, gid)

    main: Tree = {"nvidiactl": node(NVIDIA_MAJOR, CONTROL_MINOR)}
    for gpu in gpus:
        main[f"nvidia{gpu.minor}"] = node(NVIDIA_MAJOR, gpu.minor)
    if any(gpu.model.mig_gb for gpu in gpus):
        minors = [mig.CONFIG_MINOR, mig.MONITOR_MINOR]
        minors += [minor for g in gpus for d in g.mig for minor in (d.gi_minor, d.ci_minor)]
        for minor in minors:
            private = minor == mig.CONFIG_MINOR
            main[f"nvidia-caps/nvidia-cap{minor}"] = Node(caps, minor, 0o400 if private else 0o444)
    switches = [function for function in functions if function.kind == "nvswitch"]
    if switches:
        main["nvidia-nvswitchctl"] = node(description.nvswitch_major, 255)
        main["nvidia-nvlink"] = node(description.nvswitch_major - 2, 0)
        for function in switches:
            main[f"nvidia-nvswitch{function.number}"] = node(
                description.nvswitch_major, function.number
            )
    for channel in range(description.imex_channels):
        main[f"nvidia-caps-imex-channels/channel{channel}"] = node(
            description.nvswitch_major - 3, channel
        )
    uvm: Tree = {
        "nvidia-uvm": node(description.uvm_major, 0),
        "nvidia-uvm-tools": node(description.uvm_major, 1),
    }
    modeset: Tree = {"nvidia-modeset": node(NVIDIA_MAJOR, MODESET_MINOR)}
    result = {"nvidia": main, "nvidia_uvm": uvm, "nvidia_modeset": modeset,
              "nvidia_drm": _drm(description, gpus)}  # fmt: skip
    if description.dev_char_links:
        for module, tree in result.items():
            if module != "nvidia_drm":
                _links(tree)
    _links(result["nvidia_drm"])  # These are udev's, so they are always there.
    return result


def _drm(description: Description, gpus: list[Gpu]) -> Tree:
    tree: Tree = {}
    if not description.drm:
        return tree
    for gpu in gpus:
        card = card_number(description, gpu)
        render = 128 + gpu.index
        tree[f"dri/card{card}"] = Node(DRM_MAJOR, card, 0o660, 44)
        tree[f"dri/renderD{render}"] = Node(DRM_MAJOR, render, 0o660, 44)
        tree[f"dri/by-path/pci-{gpu.bus}-card"] = Link(f"../card{card}")
        tree[f"dri/by-path/pci-{gpu.bus}-render"] = Link(f"../renderD{render}")
    return tree


def _links(tree: Tree) -> None:
    """/dev/char/MAJOR:MINOR, which systemd looks for when it applies device rules."""
    for path, entry in list(tree.items()):
        if isinstance(entry, Node):
            tree[f"char/{entry.major}:{entry.minor}"] = Link(f"../{path}")
