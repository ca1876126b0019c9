"""What a grant means in a container's spec: device nodes, driver files, hooks, extra groups."""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.host.devicenodes import (
    CONTROL_NODES,
    MODESET_CAPABILITIES,
    MODESET_NODE,
    gpu_node,
    instance_nodes,
)
from gpushim.inject.container import NVIDIA_SMI
from gpushim.oci.edits import DeviceNode, Edits, Hook, Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpushim.allocate.grant import Grant
    from gpushim.host.model import DriverTree, Gpu, Inventory
    from gpushim.inject.container import Container

# Hooks that would inject a second time: those that Docker's --gpus adds, by either name.
VENDOR_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")

FILE_OPTIONS = ["ro", "nosuid", "nodev", "bind", "rprivate"]
SOCKET_OPTIONS = ["nosuid", "nodev", "noexec", "bind", "rprivate"]

# What a capability is nothing without.
ESSENTIAL_LIBRARIES = {"compute": "libcuda.so.1", "utility": "libnvidia-ml.so.1"}


def needed_nodes(grant: Grant) -> list[str]:
    """Names of the device nodes that a grant needs, in the dev root; none without a device.

    Of a MIG device these are its GPU's own node and those of its GPU instance and compute instance
    (NVIDIA's MIG user guide, "Device nodes and capabilities").
    """
    boards = grant.boards()
    if not boards:
        return []
    names = list(CONTROL_NODES)
    if any(capability in grant.capabilities for capability in MODESET_CAPABILITIES):
        names.append(MODESET_NODE)
    names += [gpu_node(gpu.minor) for gpu in boards]
    for _, mig in grant.mig:
        names += [name for name in instance_nodes(mig) if name not in names]
    return names


def mig_warnings(gpus: Iterable[Gpu]) -> list[str]:
    """A sentence for each GPU that CUDA can't use as a whole (NVIDIA's MIG user guide).

    gpus: those that are granted as a whole, as the vendor's runtime does with what is named so.
    """
    in_mig_mode = [gpu for gpu in gpus if gpu.mig_enabled]
    if not in_mig_mode:
        return []
    from gpushim.allocate.names import mig_words

    return [
        f"GPU {gpu.index} ({gpu.uuid}) is in MIG mode, and CUDA can't use it as a whole: "
        + (
            f"ask for its MIG devices ({mig_words(gpu)})."
            if gpu.mig_devices
            else "make MIG devices with nvidia-smi mig, and ask for these."
        )
        for gpu in in_mig_mode
    ]


def device_edits(
    edits: Edits, dev_root: str, facts: Mapping[str, tuple[int, int, int, int, int]]
) -> None:
    """Adds device nodes, and the groups that are needed to use them.

    facts: node name -> (major, minor, permission bits, uid, gid), taken just now. A node that is
    not for everybody needs its group in the container (CDI SPEC.md, additionalGids); in a user
    namespace that number means another group, so it is left out there.
    """
    for name, (major, minor, mode, uid, gid) in facts.items():
        edits.device_nodes.append(
            DeviceNode(f"/dev/{name}", f"{dev_root}/{name}", major, minor, mode, uid, gid)
        )
        world_may_use = mode & 0o006 == 0o006
        needed = gid and not world_may_use and not edits.bind_devices
        if needed and gid not in edits.additional_gids:
            edits.additional_gids.append(gid)


def driver_edits(
    edits: Edits,
    container: Container,
    grant: Grant,
    inventory: Inventory,
    tree: DriverTree,
    sockets: Iterable[tuple[str, str]],
    has_nvidia_smi: bool = True,
) -> str:
    """Adds the driver's files; returns where in the container the tree is.

    sockets: (host path, container path) of the IPC sockets that exist; has_nvidia_smi: whether the
    tree does (Debian has it in a package of its own). What a user mounts at the same place stays
    the user's, and so does what a link of the image leads to in there. Raises GpushimError for a
    driver that lacks what the grant is nothing without.
    """
    for capability, library in ESSENTIAL_LIBRARIES.items():
        if capability in grant.capabilities and library not in tree.libraries:
            raise GpushimError(
                f"The driver capability '{capability}' was asked for, but {library} of the NVIDIA "
                f"driver {inventory.driver_version} is not installed on this machine.",
                "Install the driver's libraries completely, or ask for other capabilities "
                "(NVIDIA_DRIVER_CAPABILITIES).",
            )
    place = container.tree_place()
    edits.mounts.append(Mount(tree.path, place, FILE_OPTIONS))
    wants_nvidia_smi = has_nvidia_smi and "utility" in grant.capabilities
    is_free = NVIDIA_SMI not in container.obstacles and not container.covered(NVIDIA_SMI)
    if wants_nvidia_smi and is_free:
        edits.mounts.append(Mount(tree.path + "/bin/nvidia-smi", NVIDIA_SMI, FILE_OPTIONS))
    for extra in inventory.extra_mounts:
        wanted = any(capability in grant.capabilities for capability in extra.capabilities)
        if wanted and not container.covered(extra.container_path):
            source = f"{tree.path}/{extra.in_tree}" if extra.in_tree else extra.host_path
            edits.mounts.append(Mount(source, extra.container_path, FILE_OPTIONS))
    for host_path, container_path in sockets:
        if not container.covered(container_path):
            edits.mounts.append(Mount(host_path, container_path, SOCKET_OPTIONS))
    edits.remove_hooks += [hook for hook in VENDOR_HOOKS if hook in container.hooks]
    return place


def params_hook(
    edits: Edits, container: Container, inventory: Inventory, params: str, enabled: bool
) -> None:
    """Adds the hook that tells programs in the container to make no device nodes themselves.

    The driver's params file says ModifyDeviceFiles: 1 unless told otherwise. runc refuses mounts
    inside /proc, so mount(8) itself is the hook; without `ro` root in the container could write
    the host's file.
    """
    if not (enabled and inventory.modify_device_files and inventory.mount_program):
        return
    if not container.mounts_proc:
        return
    target = container.root + "/proc/driver/nvidia/params"
    edits.hooks.append(
        Hook(
            "createContainer",
            inventory.mount_program,
            ["mount", "-n", "--bind", "-o", "ro", params, target],
            ["LC_ALL=C"],
        )
    )
