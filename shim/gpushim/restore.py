"""restore of a checkpoint: the same GPUs again, or a refusal.

A checkpoint has the device numbers of its GPUs in it, so another GPU under the same number, or the
same GPU under another, would give the container somebody else's. What it had is booked again.
"""

from __future__ import annotations

import posix
import time

from gpushim.allocate.again import in_the_way, words
from gpushim.allocate.book import open_book
from gpushim.allocate.lease import Lease
from gpushim.asking import configure_log
from gpushim.decision import state_root_of
from gpushim.errors import GpushimError
from gpushim.host.devicenodes import gpu_node, node_facts
from gpushim.host.fingerprint import boot_id
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
    _book(call, snapshot, (bundle.written or {}).get("lease"))
    call.log.fields["grant"] = granted
    call.log.write("info", "restored with the same GPUs", dumps)


def _book(call: Call, snapshot: Snapshot, kept: object) -> None:
    """Books the devices as the container had them. Raises GpushimError, naming who has one.

    kept: the lease of then, as `Lease.to_json` made it; a version that kept none booked nothing.
    """
    try:
        lease = Lease.from_json(kept)  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError):
        return
    lease.id, lease.state_root = call.invocation.container_id, state_root_of(call)
    lease.creator = (posix.getpid(), call.given.start_time)
    lease.runtime, lease.family = call.low_level, call.family
    lease.boot, lease.since, lease.expires = boot_id(), int(time.time()), 0
    with open_book(call.places) as book:
        former = book.former(lease.id, lease.state_root)
        others = [each for each in book.leases if each is not former]
        for booking, other in in_the_way(
            lease.bookings, snapshot.inventory.gpus, others, book.alive
        ):
            raise GpushimError(
                f"The checkpoint was made with {booking.uuid} ({booking.mode}), and "
                f"{words(other, booking.uuid)} now.",
                "Restore it when that container has ended: a checkpoint can't get other GPUs.",
            )
        book.put(lease)
        call.log.warnings += book.said


def _check(device: dict[str, Any], snapshot: Snapshot) -> None:
    """Raises GpushimError unless the GPU or MIG device of a checkpoint is here as it was."""
    kind = "MIG device" if "nodes" in device else "GPU"
    node = gpu_node(device["minor"])
    asked = f"The checkpoint was made with {kind} {device['uuid']} as /dev/{node}"
    hint = f"Restore it where that {kind} is, or start the container anew."
    now = [
        (gpu, uuid)
        for gpu in snapshot.inventory.gpus
        for uuid in (gpu.uuid, *(mig.uuid for mig in gpu.mig_devices))
        if uuid == device["uuid"]
    ]
    if not now:
        raise GpushimError(f"{asked}, and that {kind} is not here.", hint)
    gpu = now[0][0]
    if gpu.health != HEALTHY:
        raise GpushimError(f"{asked}, and that GPU does not work: {gpu.health}.", hint)
    if gpu.minor != device["minor"]:
        raise GpushimError(f"{asked}, and that GPU is {gpu_node(gpu.minor)} now.", hint)
    expected = {node: device["device"], **device.get("nodes", {})}
    dev_root = snapshot.config.text("host.dev-root")
    for name, numbers in expected.items():
        facts = node_facts(dev_root, name)
        if facts is None or list(facts[:2]) != numbers:
            raise GpushimError(f"{asked}, and {name} is not there with its numbers now.", hint)
