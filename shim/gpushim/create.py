"""The create path: from a bundle's spec to one that has the container's GPUs.

Read `create` from top to bottom; it is the story of a container that asks for GPUs. Whatever
fails before the last steps leaves nothing written.
"""

from __future__ import annotations

import posix
from errno import EFBIG

from gpushim import decision
from gpushim.asking import gather_all, understand
from gpushim.decision import Given
from gpushim.errors import GpushimError, why
from gpushim.granting import decide
from gpushim.inject.container import describe
from gpushim.inject.gpus import VENDOR_HOOKS
from gpushim.injection import edits_for, without_gpu
from gpushim.oci.apply import apply
from gpushim.oci.bundle import MAX_SIZE, Bundle, UnreadableSpec, load, restore_original, store
from gpushim.oci.edits import Edits
from gpushim.oci.jsontext import dumps
from gpushim.request.gather import TRIGGERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.asking import Understood
    from gpushim.inject.container import Container
    from gpushim.main import Call
    from gpushim.request.gather import Asked
    from gpushim.request.request import Request


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
    call.log.step("bundle")

    understood = understand(call, asked)
    container = describe(bundle, asked.environment)
    request = understood.request
    if request is None:
        if not _keep_vendor_hooks_out(bundle, container):
            _leave_as_it_was(bundle)
        if not _adopt(call, bundle, asked, container, understood):
            _forget_former(call)
        return

    _refuse_taken_name(call)
    # With nothing to change, this finds out a spec of odd types before anything is written.
    apply_to(bundle, Edits())
    given = _give(call, bundle, asked, container, understood, request)
    text = apply_to(bundle, given.edits)
    call.log.fields["edits"] = given.edits.to_json()
    call.log.step("edits")

    # The spec comes last: if either fails, it is as it was, and so is all else.
    decision.keep(call, bundle, given)
    call.log.step("record")
    try:
        store(bundle, text, {"grant": decision.note(given)})
    except GpushimError:
        decision.drop(call)
        raise
    call.log.step("spec")
    call.log.write("info", "granted", dumps)


def _keep_vendor_hooks_out(bundle: Bundle, container: Container) -> bool:
    """Takes the hooks out that Docker's --gpus adds for the vendor's toolkit; whether any is there.

    They would give a GPU by rules of their own to a container that is to have none.
    """
    if not any(hook in VENDOR_HOOKS for hook in container.hooks):
        return False
    store(bundle, apply_to(bundle, without_gpu(container)), {"grant": []})
    return True


def _adopt(
    call: Call, bundle: Bundle, asked: Asked, container: Container, understood: Understood
) -> bool:
    """Puts on record the GPUs whose nodes are in the spec already; whether there are any.

    The engine gave them, for a CDI name or a node that the user named; the spec stays as it is.
    """
    if understood.snapshot is None or not asked.nodes or container.privileged:
        return False
    from gpushim.host.devicenodes import node_facts
    from gpushim.inject.injected import adopted

    control = node_facts(understood.snapshot.config.text("host.dev-root"), "nvidiactl")
    if control is None:
        return False
    found = adopted(asked.nodes, understood.snapshot.inventory.gpus, control[0])
    if found is None:
        return False
    request, grant = found
    call.log.fields["request"] = request.to_json()
    call.log.fields["grant"] = grant.to_json()
    try:
        decision.keep(call, bundle, Given(grant, by_engine=True))
    except GpushimError as error:
        call.log.warn(str(error))  # it has its devices all the same
    call.log.write("info", "granted by the engine", dumps)
    return True


def _give(
    call: Call,
    bundle: Bundle,
    asked: Asked,
    container: Container,
    understood: Understood,
    request: Request,
) -> Given:
    """Decides, and makes the Edits. Raises GpushimError for what can't be given.

    A container that may start without a GPU does, whatever the reason that there is none.
    """
    given = Given()
    if request.cdi:
        from gpushim.cdi.resolve import resolve, target

        whom = target(bundle, container.user_namespace, call.low_level)
        edits, said = resolve(request.cdi, call.places, whom)
        given.edits.extend(edits)
        given.variables.update(edits.env)
        call.log.warnings += said
    if not request.driver:
        return given
    if request.keys or not request.open:
        from gpushim.allocate.unsupported import refuse_unsupported

        refuse_unsupported(request)
    try:
        if understood.snapshot is None:
            assert understood.problem is not None
            raise understood.problem
        snapshot, grant, facts = decide(call, understood.snapshot, request)
    except GpushimError as error:
        if not request.keys.get("optional") or _misspelt(request):
            raise
        call.log.warn(f"The container starts without a GPU, which is optional for it: {error}")
        edits = without_gpu(container)
        given.edits.extend(edits)
        given.variables.update(edits.env)
        return given
    given.grant, given.facts = grant, facts
    call.log.fields["grant"] = grant.to_json()
    call.log.step("grant")
    edits, given.library_path = edits_for(call, asked, container, snapshot, request, grant, facts)
    given.edits.extend(edits)
    return given


def _misspelt(request: Request) -> bool:
    """Whether a name can mean no GPU of any machine's: then it is not for want of one."""
    from gpushim.request.keyvalues import is_name

    return not all(is_name(name) for name in request.devices)


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
        if any(word in error.text for word in TRIGGERS):
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
