"""What is kept of a decision: its record, and the note beside the spec."""

from __future__ import annotations

import posix
import time

from gpushim import records
from gpushim.errors import GpushimError, why
from gpushim.host.devicenodes import gpu_node, instance_nodes
from gpushim.oci.files import real_path
from gpushim.oci.invocation import state_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.grant import Grant
    from gpushim.create import NodeFacts
    from gpushim.host.model import Gpu
    from gpushim.main import Call
    from gpushim.oci.bundle import Bundle
    from gpushim.oci.edits import Edits
    from gpushim.request.request import Request


def note(grant: Grant, facts: NodeFacts) -> list[dict[str, object]]:
    """The granted devices with their device numbers, as kept beside the spec for a later restore.

    For a MIG device index, minor and device are those of its GPU, and "nodes" has those of its
    instances.
    """

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


def keep(
    call: Call,
    bundle: Bundle,
    request: Request,
    grant: Grant,
    edits: Edits,
    library_path: str,
) -> None:
    """Keeps the decision for exec and explain, and drops those of containers that are gone."""
    places = call.places
    records.collect(places.containers)
    data = {
        "runtime": call.low_level,
        "bundle": bundle.directory,
        "config": bundle.config_path,
        "creator": [posix.getpid(), call.given.start_time],
        "created": int(time.time()),
        "request": request.to_json(),
        "grant": grant.to_json(),
        "edits": edits.to_json(),
        "library_path": library_path,
        "warnings": call.log.warnings,
        "notes": call.log.fields["notes"],
    }
    try:
        records.write(places.containers, call.invocation.container_id, state_root_of(call), data)
    except OSError as error:
        raise GpushimError(
            f"The decision cannot be kept in {places.containers}: {why(error)}.",
            "GPUs are given only where it is on record who has them.",
        ) from None


def drop(call: Call) -> None:
    """Drops the record of a container of this name, if there is one."""
    records.remove(call.places.containers, call.invocation.container_id, state_root_of(call))


def state_root_of(call: Call) -> str:
    """Where the low-level runtime keeps the state of its containers, without symbolic links."""
    return real_path(state_root(call.invocation, call.family, _environment(), posix.geteuid()))


def _environment() -> dict[str, str]:
    """This process's environment as text."""
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for name, value in posix.environ.items()
    }
