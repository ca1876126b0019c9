"""From a bundle to what its container asks for, with the configuration that decides what counts."""

from __future__ import annotations

from gpushim.asker import is_dockers
from gpushim.decision import state_root_of
from gpushim.errors import GpushimError
from gpushim.host.model import capability_key
from gpushim.oci.jsontext import dumps
from gpushim.request.gather import asks_for_sure, gather, may_ask
from gpushim.request.nvidia import DEFAULT_CAPABILITIES
from gpushim.request.read import read_request
from gpushim.snapshot import known_config, load, obtain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.config import Config
    from gpushim.main import Call
    from gpushim.oci.bundle import Bundle
    from gpushim.request.gather import Asked
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot


class Understood:
    """A container's request and what it was read with.

    request: None for a container that asks for nothing; snapshot: None if it could not be made,
    with `problem` as the reason; config: None where not even that could be read.
    """

    __slots__ = ("config", "problem", "request", "snapshot")

    def __init__(self) -> None:
        self.request: Request | None = None
        self.snapshot: Snapshot | None = None
        self.problem: GpushimError | None = None
        self.config: Config | None = None


def gather_all(call: Call, bundle: Bundle) -> Asked | None:
    """All that may be a request; None if there is nothing of the kind."""
    asked = gather(bundle)
    root = bundle.section("root", "path")
    if any("/containers/" in source for source, _ in asked.mounts) or is_dockers(
        call.invocation.root
    ):
        from gpushim.request import dockerrecord

        container_id = call.invocation.container_id
        asked.record, asked.problems = dockerrecord.find(
            asked.mounts, str(root or ""), container_id
        )
        if asked.record is not None:
            call.log.fields["name"] = asked.record.name
    # A record that cannot be used may have held a request, so that it is told at least.
    return asked if may_ask(asked) or asked.problems else None


def understand(call: Call, asked: Asked) -> Understood:
    """Reads the request by the configuration. Raises GpushimError for one that makes no sense.

    A machine without a driver is no reason to refuse a container that the configuration would
    leave without a GPU.
    """
    found = Understood()
    _configuration(call, found)
    if found.config is None:
        if asks_for_sure(asked) and found.problem is not None:
            raise found.problem
        return found
    configure_log(call, found.config)
    if found.config.flag("request.docker-records"):
        call.log.warnings += asked.problems
    else:
        asked.record = None
    prefixes = tuple(found.config.texts("cdi.annotation-prefixes"))
    if prefixes and any(name.startswith(prefixes) for name in asked.annotations):
        from gpushim.cdi.names import from_annotations

        asked.cdi = from_annotations(asked.annotations, prefixes)

    def reserved(ticket: str) -> Request:
        from gpushim.allocate.tickets import reserved_for

        state_root = state_root_of(call)
        return reserved_for(call.places, call.invocation.container_id, state_root)(ticket)

    found.request, warnings = read_request(asked, found.config, reserved)
    request = found.request
    needs_driver = request.driver if request is not None else asked.has_nodes
    if needs_driver and found.snapshot is None and found.problem is None:
        _obtain(call, found)
    if needs_driver and found.snapshot is not None:
        call.log.warnings += found.snapshot.problems
    call.log.step("snapshot")
    call.log.warnings += warnings
    if request is not None:
        call.log.fields["request"] = request.to_json()
    elif call.log.warnings:
        call.log.write("warning", "no GPU was given", dumps)
        _keep_reason(call, warnings)
    return found


def _configuration(call: Call, found: Understood) -> None:
    """Finds the configuration, without a look at the machine where it is known already.

    That look may wait for a driver, which most requests need and others shall not wait for.
    """
    try:
        found.snapshot = load(call.places)
        if found.snapshot is not None:
            found.config = found.snapshot.config
            return
    except GpushimError as error:
        found.problem = error
    found.config = known_config(call.places)
    if found.config is None and found.problem is None:
        _obtain(call, found)
        found.config = found.snapshot.config if found.snapshot else known_config(call.places)


def _obtain(call: Call, found: Understood) -> None:
    """The snapshot as of now, or the reason why there is none."""
    try:
        found.snapshot = obtain(call.places, capability_key(list(DEFAULT_CAPABILITIES)))
    except GpushimError as error:
        found.problem = error


def configure_log(call: Call, config: Config) -> None:
    call.log.path = config.text("runtime.log-file") or call.places.default_log_file
    call.log.level = config.text("runtime.log-level")
    call.log.max_size = config.size("runtime.log-max-size")
    call.log.fields["id"] = call.invocation.container_id


def _keep_reason(call: Call, warnings: list[str]) -> None:
    """Keeps why a container was left without a GPU, for `gpushimctl explain`."""
    from gpushim import refusals

    name = call.log.fields.get("name", "")
    data = {"name": name, "sentence": " ".join(warnings), "hint": "", "runs": True}
    try:
        refusals.write(call.own.refusals, call.invocation.container_id, data)
    except OSError:
        pass  # the log has it
