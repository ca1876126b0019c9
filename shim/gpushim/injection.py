"""From a grant to Edits for one container: its spec, its image and the host's files are looked at.

What can be refused is refused before anything is written into the container's root.
"""

from __future__ import annotations

import posix

from gpushim.host.devicenodes import uvm_warning
from gpushim.host.model import capability_key
from gpushim.inject.environment import container_environment
from gpushim.inject.gpus import VENDOR_HOOKS, device_edits, driver_edits, mig_warnings, params_hook
from gpushim.inject.loadercache import CACHE, CONF_DIRECTORY, DROP_IN, Target, make_visible
from gpushim.limits.wanted import wanted
from gpushim.oci.edits import Edits
from gpushim.oci.rootentry import RootFsError
from gpushim.oci.rootfs import RootFs
from gpushim.oci.rootkind import is_host_root, private
from gpushim.request.nvidia import VISIBLE_DEVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.grant import Grant
    from gpushim.allocate.lease import Booking
    from gpushim.granting import NodeFacts
    from gpushim.inject.compat import Compat
    from gpushim.inject.container import Container
    from gpushim.main import Call
    from gpushim.oci.bundle import Bundle
    from gpushim.request.gather import Asked
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot

_GRAPHICS = ("display", "graphics")
# Where an image of CUDA has, among others, a driver library of its own.
_CUDA = "/usr/local/cuda"


def without_gpu(container: Container) -> Edits:
    """What a container gets that may start without a GPU: nobody else is to look for one.

    The vendor's hook, which Docker's --gpus adds, would fail where gpushim could not give any.
    """
    edits = Edits()
    edits.env[VISIBLE_DEVICES] = "void"
    edits.remove_hooks += [hook for hook in VENDOR_HOOKS if hook in container.hooks]
    return edits


def edits_for(
    call: Call,
    asked: Asked,
    container: Container,
    snapshot: Snapshot,
    request: Request,
    grant: Grant,
    facts: NodeFacts,
) -> tuple[Edits, str]:
    """All that is to change, and the directories that LD_LIBRARY_PATH has to name ("" if none)."""
    with RootFs(container.root) as root:
        container.look_into(root)
        try:
            return _edits_for(call, asked, container, snapshot, request, grant, facts, root)
        finally:
            container.look_away()


def _edits_for(
    call: Call,
    asked: Asked,
    container: Container,
    snapshot: Snapshot,
    request: Request,
    grant: Grant,
    facts: NodeFacts,
    root: RootFs,
) -> tuple[Edits, str]:
    config = snapshot.config
    edits = Edits()
    edits.bind_devices = container.user_namespace
    device_edits(edits, config.text("host.dev-root"), facts)
    _extras(call, edits, container, snapshot, request, grant)
    if asked.nodes and not container.privileged:
        from gpushim.inject.injected import DRI, take_out

        drawing = []
        if any(str(node["path"]).startswith(DRI) for node in asked.nodes):
            from gpushim.host import drm

            sys_root = config.text("host.sys-root")
            every = [drm.nodes(sys_root, gpu.bus_id) for gpu in snapshot.inventory.gpus]
            drawing = [name for names in every for name in names]
        version = snapshot.inventory.driver_version
        call.log.warnings += take_out(
            edits,
            container,
            asked.nodes,
            asked.mounts,
            version,
            call.places.driver_trees,
            drawing,
        )
        container.look_into(root)  # since fewer mounts are in the way
    call.log.warnings += _warnings(container, snapshot, grant, facts)
    if not request.mig_config:  # who partitions GPUs needs them as they are
        call.log.warnings += mig_warnings(grant.gpus)
    strict = config.text("request.cuda-visible-devices") == "strict"
    # What is refused here is so before the container's root is written to.
    container_environment(container.environment, grant.devices(), "", strict)
    library_path = _driver(call, edits, container, snapshot, grant, root)
    environment, said = container_environment(
        container.environment, grant.devices(), library_path, strict
    )
    edits.env.update(environment)
    call.log.warnings += said
    return edits, library_path


def _extras(
    call: Call,
    edits: Edits,
    container: Container,
    snapshot: Snapshot,
    request: Request,
    grant: Grant,
) -> None:
    """Adds what few containers ask for: nodes to draw with, for storage, networks and channels."""
    config = snapshot.config
    if request.features or request.imex_channels or request.mig_config or request.mig_monitor:
        from gpushim.inject.features import feature_edits

        call.log.warnings += feature_edits(edits, container, request, snapshot.inventory, config)
    if any(capability in grant.capabilities for capability in _GRAPHICS):
        from gpushim.inject.drm import drm_edits

        dev_root, sys_root = config.text("host.dev-root"), config.text("host.sys-root")
        note(call, drm_edits(edits, container, grant, dev_root, sys_root, call.places.by_path))


def limit_edits(
    call: Call,
    bundle: Bundle,
    container: Container,
    snapshot: Snapshot,
    request: Request,
    grant: Grant,
    bookings: Sequence[Booking],
) -> Edits:
    """What is configured or was asked for of limits and security. Raises GpushimError.

    bookings: what was booked of the grant's devices; one that is not among them counts as a whole.
    """
    config, inventory = snapshot.config, snapshot.inventory
    modes = inventory.memory_policies.get(call.low_level, [])
    if not wanted(config.values, request.keys, inventory.cpus, modes):
        return Edits()
    from gpushim.limits.limits import decide

    limits = decide(
        bundle, container.privileged, grant, bookings, request, config, inventory, modes
    )
    call.log.warnings += limits.warnings
    note(call, limits.notes)
    return limits.edits


def note(call: Call, sentences: list[str]) -> None:
    """Keeps what explain and the log should say, and what is no warning."""
    call.log.fields["notes"] = call.log.fields.get("notes", []) + sentences


def _warnings(
    container: Container, snapshot: Snapshot, grant: Grant, facts: NodeFacts
) -> list[str]:
    said = []
    if "nvidia-uvm" in facts:
        warning = uvm_warning(snapshot.config.text("host.proc-root"), facts["nvidia-uvm"][0])
        said += [warning] if warning else []
    if container.privileged:
        said.append(
            "The container may use every device of the host (it is privileged): it sees all GPUs, "
            "whatever it was granted."
        )
    elif container.every_gpu:
        said.append(
            "The container's own device rules allow all GPUs: it can use them by nodes that it "
            "makes, whatever it was granted."
        )
    return said


def _driver(
    call: Call,
    edits: Edits,
    container: Container,
    snapshot: Snapshot,
    grant: Grant,
    root: RootFs,
) -> str:
    """Adds the driver's files and makes them visible; what LD_LIBRARY_PATH has to name."""
    config, inventory, log = snapshot.config, snapshot.inventory, call.log
    tree = inventory.trees[capability_key(grant.capabilities)]
    sockets = [(host, inside) for host, inside in inventory.sockets if _is_there(host)]
    has_nvidia_smi = _is_there(tree.path + "/bin/nvidia-smi")
    params_hook(edits, container, inventory, call.places.params, config.flag("inject.params-hook"))
    container.find_obstacles()
    compat = _compat(root, container, inventory.driver_version, grant)
    place = driver_edits(edits, container, grant, inventory, tree, sockets, has_nvidia_smi)
    host_root = is_host_root(root)
    if config.text("inject.layout") == "files" and not host_root:
        from gpushim.inject.filelayout import file_layout

        used = compat.directory if compat and compat.libraries else ""
        outcome = file_layout(root, container, tree, posix.uname().machine, edits, used)
        note(call, [compat.said] if compat else [])
        log.warnings += [compat.warning] if compat and compat.warning else []
    else:
        target = Target(tree, place, posix.uname().machine, compat)
        may_write = (
            config.text("inject.rootfs-write") == "private"
            and not container.readonly
            and private(root, call.invocation.container_id)
        )
        over = container.mounted_over(CACHE)
        outcome = make_visible(root, target, may_write, host_root, call.places, over)
        if may_write and not over and container.mounted_over(CONF_DIRECTORY):
            outcome.notes.append(
                f"{DROP_IN} is hidden by what is mounted over {CONF_DIRECTORY}: ldconfig in the "
                "container will drop the driver's libraries."
            )
    edits.mounts += outcome.mounts
    log.warnings += outcome.warnings
    note(call, outcome.written + outcome.notes)
    return ":".join(outcome.library_path)


def _compat(root: RootFs, container: Container, driver_version: str, grant: Grant) -> Compat | None:
    """The image's own newer driver library, if it has CUDA at all."""
    try:
        if not root.exists(_CUDA):
            return None
    except RootFsError:
        pass  # a link on the way, which is followed below
    from gpushim.inject.compat import find_compat

    return find_compat(root, container, driver_version, grant)


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
        return True
    except OSError:
        return False
