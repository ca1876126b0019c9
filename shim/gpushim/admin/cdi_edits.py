"""What a generated CDI spec gives containers: the same that injection gives, as far as it can.

A container's own environment, mounts and image are not known when the spec is made. What depends
on them is left to the hook (gpushim.inject.hookcontainer), or left out.
"""

from __future__ import annotations

import os

from ..allocate.grant import Grant, name_of, uuid_of
from ..errors import GpushimError
from ..host.devicenodes import CONTROL_NODES, MODESET_NODE, node_facts
from ..host.model import HEALTHY, DriverTree, Gpu, capability_key
from ..inject import drm
from ..inject.container import Container
from ..inject.filelayout import plain_mounts
from ..inject.gpus import device_edits, driver_edits, needed_nodes
from ..inject.hookoptions import Options
from ..inject.librarydirectory import library_directory, library_directory_32
from ..oci.edits import Edits, Hook
from ..oci.rootfs import RootFs
from ..places import Places
from ..request.nvidia import VISIBLE_DEVICES
from ..snapshot import Snapshot, refresh_again
from . import installation

HOOK_MODULE = "gpushim_hooks.create_container"
_HOOK_SECONDS = 60


class Wanted:
    """What a spec is to have.

    capabilities: of the driver; files: each of its files mounted by itself; hook: whether it may
    name our hook.
    """

    __slots__ = ("capabilities", "files", "hook")

    def __init__(self, capabilities: list[str], files: bool, hook: bool) -> None:
        self.capabilities = capabilities
        self.files = files
        self.hook = hook

    @property
    def draws(self) -> bool:
        return bool({"graphics", "display"} & set(self.capabilities))


class CdiDevice:
    """One device. names: by index and by UUID, or "all" alone."""

    __slots__ = ("edits", "names")

    def __init__(self, names: list[str], edits: Edits) -> None:
        self.names = names
        self.edits = edits


def device_edits_of(
    wanted: Wanted, snapshot: Snapshot, places: Places
) -> tuple[list[CdiDevice], list[str]]:
    """Every GPU and MIG device, and `all` of them; sentences on those that are left out.

    A GPU in MIG mode has a name, for programs that partition it, but is not among `all`: its MIG
    devices are. Raises GpushimError if there is none that works, or a device node is missing.
    """
    said = [
        f"GPU {gpu.index} ({gpu.bus_id}) is left out: "
        f"{gpu.health if gpu.health != HEALTHY else 'the driver does not know its UUID yet'}."
        for gpu in snapshot.inventory.gpus
        if not _works(gpu)
    ]
    grants = [
        (names, grant)
        for gpu in snapshot.inventory.gpus
        if _works(gpu)
        for names, grant in _grants(gpu, wanted.capabilities)
    ]
    if not grants:
        raise GpushimError("There is no GPU that works, so there is no device for a CDI spec.")
    devices = [
        CdiDevice(names, _nodes_of(grant, wanted, snapshot, places)) for names, grant in grants
    ]
    every = Grant(
        [gpu for _, grant in grants for gpu in grant.gpus if not gpu.mig_enabled],
        wanted.capabilities,
        [pair for _, grant in grants for pair in grant.mig],
    )
    if every.boards():
        devices.append(CdiDevice(["all"], _nodes_of(every, wanted, snapshot, places)))
    return devices, said


def _works(gpu: Gpu) -> bool:
    return gpu.health == HEALTHY and bool(gpu.uuid)


def _grants(gpu: Gpu, capabilities: list[str]) -> list[tuple[list[str], Grant]]:
    whole = ([name_of((gpu, None)), uuid_of((gpu, None))], Grant([gpu], capabilities))
    parts = [
        ([name_of((gpu, mig)), uuid_of((gpu, mig))], Grant([], capabilities, [(gpu, mig)]))
        for mig in gpu.mig_devices
        if min(mig.gpu_instance_minor, mig.compute_instance_minor) >= 0
    ]
    return [whole, *parts]


def _nodes_of(grant: Grant, wanted: Wanted, snapshot: Snapshot, places: Places) -> Edits:
    """The nodes of this device alone."""
    names = [name for name in needed_nodes(grant) if name not in (*CONTROL_NODES, MODESET_NODE)]
    minors = [gpu.minor for gpu in grant.boards()]
    edits = _with_nodes(names, minors, snapshot, places)
    if wanted.draws:
        config = snapshot.config
        dev_root, sys_root = config.text("host.dev-root"), config.text("host.sys-root")
        device_edits(edits, dev_root, drm.look(drm.drawing(grant), dev_root, sys_root)[0])
    return edits


def _with_nodes(names: list[str], minors: list[int], snapshot: Snapshot, places: Places) -> Edits:
    """Edits with these device nodes of the dev root, which are made if they are missing."""
    dev_root = snapshot.config.text("host.dev-root")
    if any(node_facts(dev_root, name) is None for name in names):
        key = next(iter(snapshot.inventory.trees))
        refresh_again(places, key, "a device node for a CDI spec is missing", minors)
    facts = {}
    for name in names:
        found = node_facts(dev_root, name)
        if found is None:
            raise GpushimError(
                f"The device node {dev_root}/{name} is missing and could not be made.",
                "Run 'nvidia-modprobe -u -c 0' or 'gpushimctl doctor'.",
            )
        facts[name] = found
    edits = Edits()
    device_edits(edits, dev_root, facts)
    return edits


def common_edits(wanted: Wanted, snapshot: Snapshot, places: Places) -> Edits:
    """What each of the devices needs: control nodes, the driver's files, and what finds these."""
    inventory = snapshot.inventory
    names = [*CONTROL_NODES, *([MODESET_NODE] if wanted.draws else [])]
    edits = _with_nodes(names, [], snapshot, places)
    # A runtime that looks at this variable must not add to what the engine has given.
    edits.env[VISIBLE_DEVICES] = "void"
    tree = inventory.trees[capability_key(wanted.capabilities)]
    container = Container("", False, [], {"/proc": "proc"}, False, False, [])
    sockets = [(host, inside) for host, inside in inventory.sockets if os.path.exists(host)]
    has_nvidia_smi = os.path.exists(tree.path + "/bin/nvidia-smi")
    grant = Grant([], wanted.capabilities)
    place = driver_edits(edits, container, grant, inventory, tree, sockets, has_nvidia_smi)
    lib64, lib = place + "/lib64", place + "/lib"
    if wanted.files:
        lib64, lib = _host_directories()
        whole = (tree.path, tree.path + "/bin/nvidia-smi")
        edits.mounts = [mount for mount in edits.mounts if mount.host_path not in whole]
        taken = {mount.container_path for mount in edits.mounts}
        edits.mounts += plain_mounts(tree, lib64, lib, taken)
    if wanted.hook:
        edits.hooks.append(_hook(wanted, snapshot, places, tree, lib64, lib))
    else:
        named = [lib64, *([lib] if tree.libraries32 else [])]
        edits.env["LD_LIBRARY_PATH"] = ":".join(named)
    return edits


def _host_directories() -> tuple[str, str]:
    """Where this machine's own distribution has its libraries, which images mostly share."""
    machine = os.uname().machine
    with RootFs("/") as root:
        lib64, _ = library_directory(root, machine)
        return lib64, library_directory_32(root, machine, lib64)[0]


def _hook(
    wanted: Wanted, snapshot: Snapshot, places: Places, tree: DriverTree, lib64: str, lib: str
) -> Hook:
    """Our hook, run by the environment that gpushim was installed from."""
    record = installation.read(places)
    config, inventory = snapshot.config, snapshot.inventory
    if record is None or not inventory.mount_program:
        missing = "mount(8)" if record else "the installation record"
        raise GpushimError(
            f"The spec's hook needs {missing}, which is not there.", "Use --no-hook."
        )
    links: dict[str, str] = {}
    if wanted.draws:
        dev_root, sys_root = config.text("host.dev-root"), config.text("host.sys-root")
        drawing = [gpu for gpu in inventory.gpus if _works(gpu)]
        _, found, _ = drm.look(drawing, dev_root, sys_root)
        links = {target.rpartition("/")[2]: name for name, target in found.items()}
    options = Options(
        tree=tree.path,
        lib64=lib64,
        lib=lib,
        libraries=tree.libraries,
        libraries32=tree.libraries32,
        mount=inventory.mount_program,
        root=places.root,
        write=config.text("inject.rootfs-write") == "private",
        params=config.flag("inject.params-hook"),
        links=links,
        files=wanted.files,
    )
    python = record.refresh_interpreter
    arguments = [python, "-I", "-m", HOOK_MODULE, *options.arguments()]
    # Without an environment of its own a hook has that of the low-level runtime.
    return Hook("createContainer", python, arguments, ["LC_ALL=C.UTF-8"], _HOOK_SECONDS)


def notes(wanted: Wanted, snapshot: Snapshot) -> list[str]:
    """What the spec does not do, in sentences."""
    said = []
    if not wanted.hook:
        said.append(
            "LD_LIBRARY_PATH of containers is replaced, and set-user-ID programs do not heed it."
        )
        if snapshot.inventory.modify_device_files:
            said.append(
                "The driver lets programs in containers make device nodes, which --no-hook does "
                "not keep them from; using these is refused all the same."
            )
    return said
