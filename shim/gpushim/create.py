"""The create path: from a bundle's spec to one that has the container's GPUs.

Read `create` from top to bottom; it is the story of a container that asks for GPUs. Whatever
fails before the last steps leaves nothing written.
"""

from __future__ import annotations

import posix
from errno import EFBIG

from gpushim import decision
from gpushim.allocate.grant import Grant, Unavailable, grant_named
from gpushim.errors import GpushimError, why
from gpushim.host.devicenodes import node_facts, uvm_warning
from gpushim.host.model import capability_key
from gpushim.inject.container import describe, find_obstacles
from gpushim.inject.environment import container_environment
from gpushim.inject.gpus import (
    device_edits,
    driver_edits,
    mig_warnings,
    needed_nodes,
    params_hook,
)
from gpushim.inject.loadercache import CACHE, Target, make_visible
from gpushim.oci.apply import apply
from gpushim.oci.bundle import MAX_SIZE, Bundle, UnreadableSpec, load, restore_original, store
from gpushim.oci.edits import Edits
from gpushim.oci.jsontext import dumps
from gpushim.oci.rootfs import RootFs
from gpushim.oci.rootkind import is_host_root, private
from gpushim.request.nvidia import (
    DEFAULT_CAPABILITIES,
    VISIBLE_DEVICES,
    read_request,
    variable,
    visible_devices,
)
from gpushim.snapshot import Snapshot, obtain, refresh_again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.inject.container import Container
    from gpushim.main import Call
    from gpushim.request.request import Request

NodeFacts = dict[str, tuple[int, int, int, int, int]]


def create(call: Call) -> None:
    """Gives the container the GPUs that its spec asks for; raises GpushimError if it can't."""
    bundle = _load(call)
    if bundle is None:
        return
    container = describe(bundle)
    if visible_devices(variable(container.environment, VISIBLE_DEVICES)) is None:
        _leave_as_it_was(bundle)
        _forget_former(call)
        return
    _refuse_taken_name(call)
    call.log.step("bundle")

    snapshot = obtain(call.places, capability_key(list(DEFAULT_CAPABILITIES)))
    configure_log(call, snapshot)
    supported = snapshot.config.texts("request.supported-driver-capabilities")
    request = read_request(container.environment, supported)
    if request is None:
        return
    call.log.fields["request"] = request.to_json()
    snapshot, grant, facts = decide(call, snapshot, request)
    call.log.fields["grant"] = grant.to_json()
    call.log.step("grant")

    # With nothing to change, this finds out a spec of odd types before anything is written.
    apply_to(bundle, Edits())
    edits, library_path = _edits(call, container, snapshot, grant, facts)
    text = apply_to(bundle, edits)
    call.log.fields["edits"] = edits.to_json()
    call.log.step("edits")

    # The spec comes last: if either fails, it is as it was, and so is all else.
    decision.keep(call, bundle, request, grant, edits, library_path)
    call.log.step("record")
    try:
        store(bundle, text, {"grant": decision.note(grant, facts)})
    except GpushimError:
        decision.drop(call)
        raise
    call.log.step("spec")
    call.log.write("info", "granted", dumps)


def _load(call: Call) -> Bundle | None:
    """The bundle; None where the low-level runtime will tell best that there is none."""
    invocation = call.invocation
    try:
        return load(invocation.bundle or ".", invocation.config or "config.json")
    except OSError as error:
        if error.errno == EFBIG:  # the low-level runtime has no such limit
            raise GpushimError(
                f"The spec in {invocation.bundle or '.'} is larger than {MAX_SIZE >> 20} MiB, and "
                "gpushim gives no GPUs to such a one."
            ) from None
        return None
    except UnreadableSpec as error:
        # Where nothing can be a request, plain or in an escape, the low-level runtime is to judge.
        if f'"{VISIBLE_DEVICES}=' in error.text or "\\u00" in error.text:
            raise
        return None


def _refuse_taken_name(call: Call) -> None:
    """The low-level runtime would refuse it, too, but only after another's record is replaced."""
    state = f"{decision.state_root_of(call)}/{call.invocation.container_id}"
    if _is_there(state):
        raise GpushimError(
            f"A container with the ID {call.invocation.container_id} exists already ({state}).",
            "Delete it first, or take another ID.",
        )


def _forget_former(call: Call) -> None:
    """Drops the record of a container of this name that is gone, since exec would go by it."""
    if not _is_there(f"{decision.state_root_of(call)}/{call.invocation.container_id}"):
        decision.drop(call)


def _leave_as_it_was(bundle: Bundle) -> None:
    """Undoes an earlier output where the original asks for nothing."""
    try:
        restore_original(bundle)
    except OSError as error:
        raise GpushimError(
            f"The original of {bundle.config_path} cannot be put back: {why(error)}."
        ) from None


def configure_log(call: Call, snapshot: Snapshot) -> None:
    config = snapshot.config
    call.log.path = config.text("runtime.log-file") or call.places.default_log_file
    call.log.level = config.text("runtime.log-level")
    call.log.max_size = config.size("runtime.log-max-size")
    call.log.fields["id"] = call.invocation.container_id
    call.log.warnings += snapshot.problems
    call.log.step("snapshot")


def decide(call: Call, snapshot: Snapshot, request: Request) -> tuple[Snapshot, Grant, NodeFacts]:
    """The grant, its device nodes as they are now, and a snapshot that has its driver tree.

    What seems not to be there is looked for once more by a refresh before it is an error: a GPU
    that was plugged in or repaired, a node that nobody has made yet.
    """
    key = capability_key(request.capabilities)
    if not snapshot.has_tree(key):
        snapshot = obtain(call.places, key)
    try:
        grant = grant_named(request, snapshot.inventory.gpus)
    except Unavailable:
        snapshot = refresh_again(call.places, key, "a GPU that was asked for is not usable", [])
        grant = grant_named(request, snapshot.inventory.gpus)
    dev_root = snapshot.config.text("host.dev-root")
    facts, missing = _stat_nodes(dev_root, needed_nodes(grant))
    if missing:
        minors = [gpu.minor for gpu in grant.gpus]
        snapshot = refresh_again(call.places, key, f"{missing[0]} is missing", minors)
        grant = grant_named(request, snapshot.inventory.gpus)
        facts, missing = _stat_nodes(dev_root, needed_nodes(grant))
    if missing:
        raise GpushimError(
            f"GPUs were asked for by {request.sources['devices']}, but the device node "
            f"{dev_root}/{missing[0]} is missing and could not be made.",
            "Run 'nvidia-modprobe -u -c 0' or 'gpushimctl doctor'.",
        )
    return snapshot, grant, facts


def _stat_nodes(dev_root: str, names: list[str]) -> tuple[NodeFacts, list[str]]:
    found = {name: node_facts(dev_root, name) for name in names}
    facts = {name: fact for name, fact in found.items() if fact is not None}
    control = facts.get("nvidiactl")
    for name, fact in facts.items():
        # The driver numbers a GPU's node as it names it; another one is another GPU's, or none's.
        number = name.removeprefix("nvidia")
        if control and number.isdecimal() and fact[:2] != (control[0], int(number)):
            raise GpushimError(
                f"The device node {dev_root}/{name} has the numbers {fact[0]}:{fact[1]}, which are "
                f"not those of the driver's GPU {number} ({control[0]}:{number}).",
                f"Remove it ('rm {dev_root}/{name}'); it is made anew by the next container.",
            )
    return facts, [name for name in names if name not in facts]


def _edits(
    call: Call, container: Container, snapshot: Snapshot, grant: Grant, facts: NodeFacts
) -> tuple[Edits, str]:
    """All that is to change, and the directories that LD_LIBRARY_PATH has to name ("" if none)."""
    config, inventory, log = snapshot.config, snapshot.inventory, call.log
    edits = Edits()
    edits.bind_devices = container.user_namespace
    device_edits(edits, config.text("host.dev-root"), facts)
    if "nvidia-uvm" in facts:
        warning = uvm_warning(config.text("host.proc-root"), facts["nvidia-uvm"][0])
        if warning:
            log.warn(warning)
    log.warnings += mig_warnings(grant.gpus)
    if container.privileged:
        log.warn(
            "The container may use every device of the host (it is privileged): it sees all GPUs, "
            "whatever it was granted."
        )
    elif container.every_gpu:
        log.warn(
            "The container's own device rules allow all GPUs: it can use them by nodes that it "
            "makes, whatever it was granted."
        )
    gpus = [(gpu.index, gpu.uuid) for gpu in grant.gpus]
    strict = config.text("request.cuda-visible-devices") == "strict"
    # What is refused here is so before the container's root is written to.
    container_environment(container.environment, gpus, "", strict)
    tree = inventory.trees[capability_key(grant.capabilities)]
    sockets = [(host, inside) for host, inside in inventory.sockets if _is_there(host)]
    has_nvidia_smi = _is_there(tree.path + "/bin/nvidia-smi")
    params_hook(edits, container, inventory, call.places.params, config.flag("inject.params-hook"))
    with RootFs(container.root) as root:
        container.obstacles = find_obstacles(root)
        place = driver_edits(edits, container, grant, inventory, tree, sockets, has_nvidia_smi)
        target = Target(tree, place, posix.uname().machine)
        may_write = (
            config.text("inject.rootfs-write") == "private"
            and not container.readonly
            and private(root, call.invocation.container_id)
        )
        over = container.mounted_over(CACHE)
        outcome = make_visible(root, target, may_write, is_host_root(root), call.places, over)
    edits.mounts += outcome.mounts
    log.warnings += outcome.warnings
    log.fields["notes"] = outcome.written + outcome.notes
    library_path = ":".join(outcome.library_path)
    environment, said = container_environment(container.environment, gpus, library_path, strict)
    edits.env.update(environment)
    log.warnings += said
    return edits, library_path


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
        return True
    except OSError:
        return False


def apply_to(bundle: Bundle, edits: Edits) -> str:
    """The bundle's spec with `edits`, as text. Raises GpushimError for one of odd types."""
    try:
        return apply(bundle.text, edits, bundle.members)
    except ValueError as error:
        raise GpushimError(f"{bundle.config_path} is not a valid spec: {error}.") from None
