"""restore of a checkpoint: the same GPUs again, or a refusal.

A checkpoint has the device numbers of its GPUs in it, so another GPU under the same number, or the
same GPU under another, would give the container somebody else's.
"""

from __future__ import annotations

from gpushim.asking import configure_log
from gpushim.errors import GpushimError
from gpushim.host.devicenodes import gpu_node, node_facts
from gpushim.host.model import HEALTHY, capability_key
from gpushim.oci.bundle import load
from gpushim.oci.jsontext import dumps
from gpushim.request.nvidia import DEFAULT_CAPABILITIES
from gpushim.snapshot import obtain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.main import Call
    from gpushim.snapshot import Snapshot


def restore(call: Call) -> None:
    """Lets a restore pass if the GPUs of its checkpoint are here under the same numbers."""
    try:
        bundle = load(call.invocation.bundle or ".", "config.json")
    except OSError:
        return
    granted = (bundle.written or {}).get("grant")
    if not granted:
        return
    snapshot = obtain(call.places, capability_key(list(DEFAULT_CAPABILITIES)))
    configure_log(call, snapshot.config)
    call.log.warnings += snapshot.problems
    for gpu in granted:
        _check(gpu, snapshot)
    call.log.fields["grant"] = granted
    call.log.write("info", "restored with the same GPUs", dumps)


def _check(gpu: dict[str, Any], snapshot: Snapshot) -> None:
    """Raises GpushimError unless the GPU of a checkpoint is here as it was."""
    asked = f"The checkpoint was made with GPU {gpu['uuid']} as /dev/{gpu_node(gpu['minor'])}"
    hint = "Restore it where that GPU is, or start the container anew."
    now = [found for found in snapshot.inventory.gpus if found.uuid == gpu["uuid"]]
    if not now:
        raise GpushimError(f"{asked}, and that GPU is not here.", hint)
    if now[0].health != HEALTHY:
        raise GpushimError(f"{asked}, and that GPU does not work: {now[0].health}.", hint)
    facts = node_facts(snapshot.config.text("host.dev-root"), gpu_node(now[0].minor))
    if facts is None or now[0].minor != gpu["minor"] or list(facts[:2]) != gpu["device"]:
        raise GpushimError(
            f"{asked}, and that GPU is {gpu_node(now[0].minor)} with other numbers now.", hint
        )
