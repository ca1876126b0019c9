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
    """Gives the container what its spec asks for; raises GpushimError if it can't."""
    bundle = _load(call)
    if bundle is None:
        return
    asked = gather_all(call, bundle)
    if asked is None:
        _leave_as_it_was(bundle)
        _forget_former(call)
        return
    _refuse_taken_name(call)
    call.log.step("bundle")

    understood = understand(call, asked)
    container = describe(bundle, asked.environment)
    request = understood.request
    if request is None:
        _leave_as_it_was(bundle)
        if understood.snapshot is None or not adopt(call, bundle, asked, container, understood):
            _forget_former(call)
        return

    # With nothing to change, this finds out a spec of odd types before anything is written.
    apply_to(bundle, Edits())
    given = _give(call, asked, container, understood, request)
    text = apply_to(bundle, given.edits)
    call.log.fields["edits"] = given.edits.to_json()
    call.log.step("edits")

    # The spec comes last: if either fails, it is as it was, and so is all else.
    decision.keep(call, bundle, request, given)
    call.log.step("record")
    try:
        store(bundle, text, {"grant": decision.note(given.grant, given.facts)})
    except GpushimError:
        decision.drop(call)
        raise
    call.log.step("spec")
    call.log.write("info", "granted", dumps)


def _give(
    call: Call, asked: Asked, container: Container, understood: Understood, request: Request
) -> Given:
    """Decides, and makes the Edits. Raises GpushimError for what can't be given.

    A container that may start without a GPU does, whatever the reason that there is none.
    """
    given = Given()
    if request.cdi:
        from gpushim.cdi.resolve import resolve

        given.edits.add(resolve(request.cdi, call.places, understood.config))
    if not request.driver:
        return given
    try:
        if understood.snapshot is None:
            assert understood.problem is not None
            raise understood.problem
        snapshot, grant, facts = decide(call, understood.snapshot, request)
    except GpushimError as error:
        if not request.keys.get("optional"):
            raise
        call.log.warn(f"The container starts without a GPU, which is optional for it: {error}")
        given.edits.add(without_gpu(container))
        return given
    given.grant, given.facts = grant, facts
    call.log.fields["grant"] = grant.to_json()
    call.log.step("grant")
    edits, given.library_path = edits_for(
        call, asked, container, snapshot, request, grant, facts
    )
    given.edits.add(edits)
    return given


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
