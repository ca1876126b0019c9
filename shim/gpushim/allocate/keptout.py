"""Devices that no container is given: kept out by the configuration, drained, or in quarantine.

<lib>/drained.json is {"format": 1, "devices": {UUID: {"since": seconds, "by": user}}}; it outlives
boots. <run>/quarantine has a file for each GPU that failed while containers had it, UUID.json:
{"format": 1, "uuid", "why": words, "since": seconds, "holders": [lease, ...]}. It is over when no
process of these is left: whatever a container that met with a dying GPU still holds of it is gone
then. Only root writes either, under the lock on leases, which whoever gives devices holds, too.
"""

from __future__ import annotations

import posix
import time

from gpushim.allocate.filter import KEPT_OUT
from gpushim.allocate.grant import uuid_of
from gpushim.errors import GpushimError, why
from gpushim.host import statefiles
from gpushim.host.model import HEALTHY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpushim.allocate.lease import Lease
    from gpushim.host.model import Gpu
    from gpushim.places import Places

DRAINED = "drained (gpushimctl undrain gives it again)"


def kept_out(
    places: Places,
    configured: Sequence[str],
    gpus: Sequence[Gpu],
    leases: Sequence[Lease],
    troubles: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """UUID -> why a GPU or MIG device is not given, as words behind "is".

    places: the machine's; configured: allocate.keep-out; leases: all there are; troubles: UUID ->
    what NVML says of a GPU just now. GPUs that are ill while a container has them are put in
    quarantine here, and let out when it is over; for that the lock on leases is held. Raises
    GpushimError for a state file of a newer gpushim.
    """
    # Choosing looks at the health itself, and says what is wrong.
    found = dict(troubles or {})
    ill = {gpu.uuid: gpu.health for gpu in gpus if gpu.health != HEALTHY and gpu.uuid}
    for uuid, words in {**ill, **found}.items():
        if any(booking.uuid == uuid for lease in leases for booking in lease.bookings):
            try:
                enter(places, uuid, words, leases)
            except GpushimError:
                pass  # not root's lookout, then: for this user it is out of the question anyway
    found.update(_quarantined(places))
    for uuid in drained(places):
        found[uuid] = DRAINED
    for uuid in _configured(configured, gpus):
        found[uuid] = KEPT_OUT
    return found


def _configured(names: Sequence[str], gpus: Sequence[Gpu]) -> list[str]:
    if not names:
        return []
    from gpushim.allocate.names import matching

    return [uuid_of(device) for name in names for device in matching(name, gpus)]


def drained(places: Places) -> dict[str, dict[str, Any]]:
    """UUID -> {"since": seconds since the epoch, "by": user} of each drained device."""
    data = statefiles.read(places.drained)
    devices = data.get("devices") if data is not None else None
    if not isinstance(devices, dict):
        return {}
    return {uuid: about for uuid, about in devices.items() if isinstance(about, dict)}


def set_drained(places: Places, devices: dict[str, dict[str, Any]]) -> None:
    """Keeps which devices are drained; for the holder of the lock. Raises GpushimError."""
    _write(places.drained, {"format": statefiles.FORMAT, "devices": devices})


def quarantine(places: Places) -> dict[str, dict[str, Any]]:
    """UUID -> what the file of each GPU in quarantine says, whether or not that is over."""
    found = {}
    try:
        names = posix.listdir(places.quarantine)
    except OSError:
        return {}
    for name in names:
        data = statefiles.read(f"{places.quarantine}/{name}")
        if data is not None and f"{data.get('uuid')}.json" == name:
            found[name.removesuffix(".json")] = data
    return found


def holders(data: dict[str, Any]) -> list[Lease] | None:
    """Whose processes a quarantine waits for: those that are not gone; None if nobody can tell."""
    leases = _leases(data)
    return None if leases is None else _living(leases)


def _leases(data: dict[str, Any]) -> list[Lease] | None:
    from gpushim.allocate.lease import Lease

    try:
        return [Lease.from_json(each) for each in data["holders"]]
    except (KeyError, TypeError, ValueError):
        return None


def _living(leases: Sequence[Lease]) -> list[Lease]:
    from gpushim.allocate.liveness import Roots, lives

    roots = Roots()
    return [lease for lease in leases if lives(lease, roots)]


def let_out(places: Places, uuid: str) -> None:
    """Ends the quarantine of a GPU; for the holder of the lock. Raises GpushimError."""
    try:
        posix.unlink(f"{places.quarantine}/{uuid}.json")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise GpushimError(
            f"The quarantine of {uuid} in {places.quarantine} can't be ended: {why(error)}."
        ) from None


def words_of(data: dict[str, Any], waiting: Sequence[Lease] | None) -> str:
    """A quarantine as words behind "is"; waiting: what `holders` said."""
    names = [lease.name or lease.id[:12] for lease in waiting or ()]
    rest = f", until {' and '.join(names)} {'has' if len(names) == 1 else 'have'} ended"
    return f"in quarantine ({data.get('why')}){rest if names else ''}"


def _quarantined(places: Places) -> dict[str, str]:
    found = {}
    for uuid, data in quarantine(places).items():
        waiting = holders(data)
        if waiting == []:
            try:
                let_out(places, uuid)
            except GpushimError:
                pass  # only root can, and it need not be done
        else:
            found[uuid] = words_of(data, waiting)
    return found


def enter(places: Places, uuid: str, words: str, leases: Sequence[Lease]) -> None:
    """Puts a GPU in quarantine until nothing is left of the containers that have it.

    words: what is wrong with it; leases: all there are. Who has a GPU that is there already is
    added. For the holder of the lock. Raises GpushimError if it can't be kept.
    """
    path = f"{places.quarantine}/{uuid}.json"
    data = statefiles.read(path) or {
        "format": statefiles.FORMAT,
        "uuid": uuid,
        "why": words,
        "since": int(time.time()),
        "holders": [],
    }
    known = _leases(data)
    if known is None:
        return
    names = [(lease.id, lease.state_root) for lease in known]
    new = _living(
        [
            lease
            for lease in leases
            if (lease.id, lease.state_root) not in names
            and any(booking.uuid == uuid for booking in lease.bookings)
        ]
    )
    if new:
        _write(path, {**data, "holders": data["holders"] + [lease.to_json() for lease in new]})


def _write(path: str, data: dict[str, Any]) -> None:
    from gpushim.oci.files import make_directories, write_whole
    from gpushim.oci.jsontext import dumps

    try:
        make_directories(path.rpartition("/")[0])
        write_whole(path, dumps(data).encode("ascii"), 0o644)
    except OSError as error:
        raise GpushimError(f"{path} can't be written: {why(error)}.") from None
