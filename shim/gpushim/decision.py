"""What is kept of a decision: its record, and the note beside the spec."""

from __future__ import annotations

import posix
import time

from gpushim import records
from gpushim.allocate.grant import Grant
from gpushim.errors import GpushimError, why
from gpushim.host.devicenodes import gpu_node, instance_nodes
from gpushim.oci.edits import Edits
from gpushim.oci.files import real_path
from gpushim.oci.invocation import state_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.lease import Lease
    from gpushim.granting import NodeFacts
    from gpushim.host.model import Gpu
    from gpushim.main import Call
    from gpushim.oci.bundle import Bundle


class Given:
    """What a container is given.

    grant: None where it gets CDI devices alone, or starts without a GPU; facts: the numbers of its
    device nodes; lease: None where nothing is booked; library_path: what LD_LIBRARY_PATH has to
    name, in later processes, too; variables: others that later processes are to have, beside those
    of the grant; by_engine: whether all of it was in the spec already.
    """

    __slots__ = ("by_engine", "edits", "facts", "grant", "lease", "library_path", "variables")

    def __init__(self, grant: Grant | None = None, by_engine: bool = False) -> None:
        self.grant = grant
        self.by_engine = by_engine
        self.facts: NodeFacts = {}
        self.edits = Edits()
        self.lease: Lease | None = None
        self.library_path = ""
        self.variables: dict[str, str] = {}


def note(given: Given) -> dict[str, object]:
    """What is kept beside the spec for a later restore: devices and lease, each if there is one."""
    kept: dict[str, object] = {"grant": _devices(given)}
    if given.lease is not None:
        kept["lease"] = given.lease.to_json()
    return kept


def _devices(given: Given) -> list[dict[str, object]]:
    """The granted devices with their device numbers.

    For a MIG device index, minor and device are those of its GPU, and "nodes" has those of its
    instances.
    """

    grant, facts = given.grant, given.facts
    if grant is None:
        return []

    def of(gpu: Gpu, uuid: str) -> dict[str, object]:
        device = list(facts[gpu_node(gpu.minor)][:2])
        return {"index": gpu.index, "uuid": uuid, "minor": gpu.minor, "device": device}

    whole = [of(gpu, gpu.uuid) for gpu in grant.gpus]
    return whole + [
        {
            **of(gpu, mig.uuid),
            "nodes": {name: list(facts[name][:2]) for name in instance_nodes(mig)},
        }
        for gpu, mig in grant.mig
    ]


def keep(call: Call, bundle: Bundle, given: Given) -> None:
    """Keeps the decision for exec and explain, and drops those of containers that are gone.

    Request, grant and edits are those that were noted for the log.
    """
    places = call.own
    records.collect(places.containers)
    data = {
        "name": call.log.fields.get("name", ""),
        "runtime": call.low_level,
        "bundle": bundle.directory,
        "config": bundle.config_path,
        "creator": [posix.getpid(), call.given.start_time],
        "created": int(time.time()),
        "request": call.log.fields["request"],
        "grant": call.log.fields.get("grant") or Grant([], []).to_json(),
        "edits": call.log.fields.get("edits") or given.edits.to_json(),
        "library_path": given.library_path,
        "variables": given.variables,
        "has_driver": given.grant is not None,
        "lease": given.lease.to_json() if given.lease is not None else None,
        "by_engine": given.by_engine,
        "warnings": call.log.warnings,
        "notes": call.log.fields.get("notes", []),
    }
    try:
        posix.unlink(f"{places.refusals}/{call.invocation.container_id}")  # of an earlier attempt
    except OSError:
        pass
    try:
        records.write(places.containers, call.invocation.container_id, state_root_of(call), data)
    except OSError as error:
        raise GpushimError(
            f"The decision cannot be kept in {places.containers}: {why(error)}.",
            "GPUs are given only where it is on record who has them.",
        ) from None


def drop(call: Call) -> None:
    """Drops the record of a container of this name, if there is one."""
    records.remove(call.own.containers, call.invocation.container_id, state_root_of(call))


def state_root_of(call: Call) -> str:
    """Where the low-level runtime keeps the state of its containers, without symbolic links."""
    if not call.state_root:
        call.state_root = real_path(
            state_root(call.invocation, call.family, _environment(), posix.geteuid())
        )
    return call.state_root


def _environment() -> dict[str, str]:
    """This process's environment as text."""
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for name, value in posix.environ.items()
    }
