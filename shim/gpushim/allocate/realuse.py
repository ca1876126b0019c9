"""What devices are really used for by processes that have booked nothing of them.

Asking NVML takes its time and is done before the lock on leases is taken; whose processes they are
is found out under it, since by then some may have ended, and others have a lease.
"""

from __future__ import annotations

from gpushim.allocate.attribution import first_known
from gpushim.allocate.filter import RealUse
from gpushim.allocate.lease import EXCLUSIVE, SHARED
from gpushim.allocate.liveness import Roots
from gpushim.allocate.processes import Processes
from gpushim.host.model import HEALTHY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.lease import Booking, Lease
    from gpushim.allocate.processes import Process
    from gpushim.allocate.wish import Wish
    from gpushim.host.deviceuse import DeviceUse, Reading
    from gpushim.host.model import Gpu
    from gpushim.places import Places

    Holders = Sequence[tuple[Lease, Booking]]

# What allocate.real-use may be.
AUTO, ALWAYS, NEVER = "auto", "always", "never"

# An X server has a little of each GPU even where it shows nothing.
_DISPLAY_BYTES = 64 << 20
# Memory that no process holds is somebody's who can't be seen, if it is more than what drivers
# lose track of; where they don't tell their own share apart, that may be in it.
_UNTOLD_BYTES, _UNTOLD_BYTES_WITH_RESERVED = 512 << 20, 1 << 30
# The server of NVIDIA's MPS waits for clients, which are told of by themselves (comm of 15 bytes).
_SERVERS = ("nvidia-cuda-mps",)


def is_called_for(setting: str, wish: Wish, gpus: Sequence[Gpu]) -> bool:
    """Whether NVML is to be asked before devices are chosen.

    setting: allocate.real-use. Names and `all` are given whoever uses them.
    """
    if setting == NEVER or wish.mode not in (EXCLUSIVE, SHARED):
        return False
    return setting == ALWAYS or (wish.count is not None and len(targets(gpus)) > wish.count)


def targets(gpus: Sequence[Gpu]) -> list[tuple[str, str]]:
    """UUID and bus id of each GPU that works, UUID and "" of MIG devices in place of their GPU."""
    found = []
    for gpu in gpus:
        if gpu.health == HEALTHY and gpu.uuid:
            if gpu.mig_enabled:
                found += [(mig.uuid, "") for mig in gpu.mig_devices]
            else:
                found.append((gpu.uuid, gpu.bus_id))
    return found


def look(places: Places, library: str, gpus: Sequence[Gpu], seconds: float) -> Reading:
    """What devices are used for: as the exporter has seen it if that is fresh, else as NVML tells.

    library: the inventory's `nvml`; seconds: for how long NVML may take. Never raises for what a
    driver does; the reading's problems are sentences for the log.
    """
    from gpushim.host.deviceuse import Reading, now, recent

    wanted = targets(gpus)
    found = recent(places, [uuid for uuid, _ in wanted])
    if found is not None:
        return found
    if not library:
        reading = Reading(now())
        reading.problems.append("What GPUs are used for is not known, as NVML is not installed.")
        return reading
    from gpushim.host.nvml_quick import read

    return read(library, wanted, seconds)


def real_use(
    reading: Reading, leases: Sequence[Lease], roots: Roots | None = None
) -> dict[str, RealUse]:
    """UUID -> what processes use of a device that have booked nothing of it.

    Where a container shares a device and booked no amount of memory, what it holds counts as
    memory, but not among the processes. leases: all there are; those of dead containers have no
    processes.
    """
    booked: dict[str, list[tuple[Lease, Booking]]] = {}
    for lease in leases:
        for booking in lease.bookings:
            if booking.mode in (EXCLUSIVE, SHARED):
                booked.setdefault(booking.uuid, []).append((lease, booking))
    processes = Processes(roots or Roots(), reading.stamp)
    return {
        uuid: _of_device(use, booked.get(uuid, []), processes)
        for uuid, use in reading.devices.items()
    }


def _of_device(use: DeviceUse, holders: Holders, processes: Processes) -> RealUse:
    if use.processes is None:
        # Whose it is can't be told; it is somebody else's for sure if nobody has the device.
        return RealUse(0 if holders else _untold(use, 0), use.busy)
    foreign = []
    told = memory = 0
    # Whether what nobody is known to hold is nobody's who has booked: there is no such holder, or
    # somebody without a booking holds an unknown amount.
    is_nobodys, is_somebodys = not holders, False
    for pid, held, kinds in use.processes:
        told += held or 0
        process = processes.get(pid)
        if process is None:
            is_nobodys = is_nobodys and held is not None
            continue
        booking = _booking(process, holders, processes)
        if booking is not None:
            if booking.mode == SHARED and not booking.memory:
                memory += held or 0
        elif not _is_aside(process, held, kinds, use):
            foreign.append((pid, process.name, held or 0))
            memory += held or 0
            is_somebodys = is_somebodys or held is None
    if is_nobodys or is_somebodys:
        memory += _untold(use, told)
    return RealUse(memory, use.busy, foreign)


def _untold(use: DeviceUse, told: int) -> int:
    """Bytes that are in use beyond those that processes are known to hold."""
    least = _UNTOLD_BYTES if use.reserved is not None else _UNTOLD_BYTES_WITH_RESERVED
    rest = (use.used or 0) - told
    return rest if rest >= least else 0


def _is_aside(process: Process, held: int | None, kinds: str, use: DeviceUse) -> bool:
    """Whether this is nobody's work: a display's process, or a server without clients."""
    if process.name in _SERVERS:
        return True
    return kinds == "g" and (use.display or (held is not None and held < _DISPLAY_BYTES))


def _booking(process: Process, holders: Holders, processes: Processes) -> Booking | None:
    """What the container of a process has booked of the device; None if that is nothing."""
    if not holders:
        return None
    known = first_known(process.cgroups, {lease.id for lease, _ in holders})
    for lease, booking in holders:
        if lease.id == known if known else processes.is_in(process, lease):
            return booking
    return None
