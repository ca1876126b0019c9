"""The create path: from a bundle's spec to one that has the container's GPUs.

Read `create` from top to bottom; it is the story of a container that asks for GPUs. Whatever
fails before the last steps leaves nothing written.
"""

from __future__ import annotations

import posix
from errno import EFBIG

from gpushim import decision
from gpushim.asker import Asker
from gpushim.asking import gather_all, understand
from gpushim.booking import book, give_back
from gpushim.decision import Given
from gpushim.errors import GpushimError, why
from gpushim.granting import decide
from gpushim.inject.container import describe
from gpushim.inject.gpus import VENDOR_HOOKS
from gpushim.injection import edits_for, limit_edits, without_gpu
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
    given = Given()
    try:
        _give(given, call, bundle, asked, container, understood, request)
        text = apply_to(bundle, given.edits)
        call.log.fields["edits"] = given.edits.to_json()
        call.log.step("edits")
        _keep(call, bundle, given, text)
    except BaseException:
        if given.lease is not None:
            give_back(given.lease)
        raise
    call.log.write("info", "granted", dumps)


def _keep(call: Call, bundle: Bundle, given: Given, text: str) -> None:
    """Writes record and spec. The spec comes last: if either fails, it is as it was."""
    decision.keep(call, bundle, given)
    call.log.step("record")
    try:
        store(bundle, text, decision.note(given))
    except GpushimError:
        decision.drop(call)
        raise
    call.log.step("spec")


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
    given = Given(grant, by_engine=True)
    try:
        _, given.lease = book(understood.snapshot, request, Asker(call, bundle, asked))
        decision.keep(call, bundle, given)
    except GpushimError as error:
        call.log.warn(str(error))  # it has its devices all the same
    call.log.write("info", "granted by the engine", dumps)
    return True


def _give(
    given: Given,
    call: Call,
    bundle: Bundle,
    asked: Asked,
    container: Container,
    understood: Understood,
    request: Request,
) -> None:
    """Decides, and makes the Edits, into `given`. Raises GpushimError for what can't be given.

    A container that may start without a GPU does, whatever the reason that there is none.
    """
    if request.cdi:
        from gpushim.cdi.resolve import resolve, target

        whom = target(bundle, container.user_namespace, call.low_level)
        edits, said = resolve(request.cdi, call.places, whom)
        given.edits.extend(edits)
        given.variables.update(edits.env)
        call.log.warnings += said
    if not request.driver:
        return
    try:
        if understood.snapshot is None:
            assert understood.problem is not None
            raise understood.problem
        found = decide(understood.snapshot, request, Asker(call, bundle, asked))
    except GpushimError as error:
        if not request.keys.get("optional") or _misspelt(request):
            raise
        call.log.warn(f"The container starts without a GPU, which is optional for it: {error}")
        edits = without_gpu(container)
        given.edits.extend(edits)
        given.variables.update(edits.env)
        return
    snapshot, grant = found.snapshot, found.grant
    given.grant, given.facts, given.lease = grant, found.facts, found.lease
    call.log.fields["grant"] = grant.to_json()
    call.log.step("grant")
    # Before anything is written into the container's root, since it may be refused.
    given.edits.extend(
        limit_edits(call, bundle, container, snapshot, request, grant, found.bookings)
    )
    if len(grant.gpus) > 1 and snapshot.config.text("inject.nccl") == "auto":
        from gpushim.inject.nccl import nccl_edits

        edits, said = nccl_edits(bundle, grant.gpus, snapshot.config, container.user_namespace)
        given.edits.extend(edits)
        given.variables.update(edits.env)
        call.log.warnings += said
    edits, given.library_path = edits_for(
        call, asked, container, snapshot, request, grant, found.facts
    )
    given.edits.extend(edits)
    if any(booking.memory for booking in found.bookings):
        # A booking is a promise among containers; nothing of the driver's holds them to it.
        given.variables["GPUSHIM_MEMORY_ENFORCEMENT"] = "none"
        given.edits.env["GPUSHIM_MEMORY_ENFORCEMENT"] = "none"


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
