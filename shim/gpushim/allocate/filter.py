"""Which devices a wish can be met with: ever on this machine, and as things stand.

A slot is a GPU as a whole or one MIG device, with what is booked of it. Pure but for one thing: a
lease in somebody's way is asked whether its container lives, by a callable that is handed in, and
each at most once.
"""

from __future__ import annotations

from gpushim.allocate.grant import position, uuid_of
from gpushim.allocate.lease import EXCLUSIVE, OPEN, SHARED
from gpushim.allocate.wish import size_words
from gpushim.host.model import HEALTHY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpushim.allocate.grant import Device
    from gpushim.allocate.lease import Booking, Lease
    from gpushim.allocate.wish import Wish
    from gpushim.host.model import Gpu

# The reason of a device that the configuration keeps out: the one that no waiting ends.
KEPT_OUT = "kept out by the configuration (allocate.keep-out)"

# What stands in the way of a booking of each kind. Bookings by `all` stand in nobody's way.
_AGAINST_EXCLUSIVE = (EXCLUSIVE, SHARED, OPEN)
_AGAINST_OTHERS = (EXCLUSIVE,)


class RealUse:
    """What a device is really used for by processes that have booked nothing of it.

    Those are processes of no container that gpushim knows, and of containers that were given the
    device by name or by `all`; a display's own processes don't count. memory: bytes that they hold,
    without what the driver keeps; busy: the device's utilisation in percent, None where it does not
    tell; processes: (pid, name, bytes) of each.
    """

    __slots__ = ("busy", "memory", "processes")

    def __init__(
        self,
        memory: int = 0,
        busy: int | None = None,
        processes: Sequence[tuple[int, str, int]] = (),
    ) -> None:
        self.memory = memory
        self.busy = busy
        self.processes = processes


class Slot:
    """A device and who has what of it.

    capacity: bytes that can be booked in all, None where nobody knows; entries: (lease, booking) of
    the device itself, but for those by `all`; around: of the GPU that a MIG device is a part of, or
    of the MIG devices that a GPU consists of; real: None where it was not looked at; kept: why it
    is not given now, or "".
    """

    __slots__ = ("around", "capacity", "entries", "gpu", "kept", "mig", "real", "uuid")

    def __init__(self, device: Device, reserve: int) -> None:
        self.gpu, self.mig = device
        self.uuid = uuid_of(device)
        memory = self.mig.memory if self.mig else self.gpu.memory
        # Of a MIG device, NVML tells what is left when the driver has taken its share.
        own = self.gpu.reserved if self.gpu.reserved is not None else reserve
        kept = 0 if self.mig else own
        self.capacity = max(memory - kept, 0) if memory is not None else None
        self.entries: list[tuple[Lease, Booking]] = []
        self.around: list[tuple[Lease, Booking]] = []
        self.real: RealUse | None = None
        self.kept = ""

    def device(self) -> Device:
        return self.gpu, self.mig

    def place(self) -> tuple[int, int]:
        return position((self.gpu, self.mig))

    def foreign(self) -> int:
        """Bytes that processes hold who booked nothing."""
        return self.real.memory if self.real else 0

    def used(self) -> int:
        """Bytes that are booked or really taken."""
        return self.foreign() + sum(booking.memory for _, booking in self.entries)

    def compute(self) -> int:
        """Percent that is booked."""
        return sum(booking.compute for _, booking in self.entries)

    def is_busy(self) -> bool:
        """Whether processes that booked nothing use it."""
        return self.real is not None and bool(self.real.memory > 0 or self.real.processes)

    def in_use(self) -> bool:
        """Whether somebody has it, or a part of it, so that it is nobody's alone any more."""
        return bool(self.entries or self.around) or self.is_busy()

    def against(self, wish: Wish) -> list[tuple[Lease, Booking]]:
        """What of the bookings is by itself in the way of one that the wish would make."""
        if wish.mode == EXCLUSIVE and self.mig is None:
            return [*self.entries, *self.around]
        modes = _AGAINST_EXCLUSIVE if wish.mode == EXCLUSIVE else _AGAINST_OTHERS
        found = [entry for entry in self.entries if entry[1].mode in modes]
        if self.mig is not None:
            # An open grant of a GPU in MIG mode is its node alone, which reaches no MIG device.
            found += [
                entry for entry in self.around if entry[1].mode in modes and entry[1].mode != OPEN
            ]
        return found

    def has_room(self, wish: Wish) -> bool:
        """Whether as much as a shared booking wants is left, as far as bookings go."""
        memory = wish.memory_of(self.capacity)
        if memory and (self.capacity is None or self.used() + memory > self.capacity):
            return False
        return not wish.compute or self.compute() + wish.compute <= 100

    def is_free(self, wish: Wish) -> bool:
        """Whether the wish can be met with it now, if all leases on it are alive."""
        if self.kept or self.against(wish):
            return wish.over and not self.kept
        if wish.mode == EXCLUSIVE:
            return not self.is_busy()
        return wish.mode != SHARED or self.has_room(wish)


class Table:
    """All slots of a machine, and the one look at each lease.

    slots: GPUs by index, each before its MIG devices; dead: how many leases were found dead.
    """

    __slots__ = ("_alive", "_verdicts", "dead", "slots")

    def __init__(
        self,
        gpus: Sequence[Gpu],
        leases: Sequence[Lease],
        real: Mapping[str, RealUse] | None,
        kept_out: Mapping[str, str],
        reserve: int,
        alive: Callable[[Lease], bool],
    ) -> None:
        self._alive = alive
        self._verdicts: dict[int, bool] = {}
        self.dead = 0
        self.slots: list[Slot] = []
        by_uuid: dict[str, tuple[Slot, list[Slot]]] = {}
        for gpu in sorted(gpus, key=lambda each: each.index):
            whole = Slot((gpu, None), reserve)
            parts = [Slot((gpu, mig), reserve) for mig in gpu.mig_devices]
            by_uuid[gpu.uuid] = (whole, parts)
            for part in parts:
                by_uuid[part.uuid] = (part, [whole])
            for slot in (whole, *parts):
                slot.real = real.get(slot.uuid) if real else None
                slot.kept = kept_out.get(gpu.uuid) or kept_out.get(slot.uuid) or ""
            self.slots += [whole, *parts]
        for lease in leases:
            for booking in lease.bookings:
                if booking.mode in _AGAINST_EXCLUSIVE and booking.uuid in by_uuid:
                    slot, others = by_uuid[booking.uuid]
                    slot.entries.append((lease, booking))
                    for other in others:
                        other.around.append((lease, booking))

    def lives(self, lease: Lease) -> bool:
        """Whether a lease's container lives; if not, its bookings are gone from all slots."""
        verdict = self._verdicts.get(id(lease))
        if verdict is None:
            verdict = self._verdicts[id(lease)] = self._alive(lease)
            if not verdict:
                self.dead += 1
                for slot in self.slots:
                    slot.entries = [entry for entry in slot.entries if entry[0] is not lease]
                    slot.around = [entry for entry in slot.around if entry[0] is not lease]
        return verdict

    def any_lives(self, entries: Sequence[tuple[Lease, Booking]]) -> bool:
        """Whether one of these lives, looking no further than that one."""
        return any(self.lives(lease) for lease, _ in entries)

    def look(self, slots: Sequence[Slot]) -> bool:
        """Asks all leases on `slots` whether they live; returns whether one of them is dead."""
        before = self.dead
        for slot in slots:
            for lease, _ in [*slot.entries, *slot.around]:
                self.lives(lease)
        return self.dead > before

    def is_free(self, slot: Slot, wish: Wish) -> bool:
        """Whether the wish can be met with a device now; asks leases only where they decide it."""
        if slot.kept or slot.is_free(wish):
            return not slot.kept
        if self.any_lives(slot.against(wish)):
            return False
        if wish.mode == SHARED:
            self.look([slot])
        return slot.is_free(wish)


def misfit(slot: Slot, wish: Wish) -> str:
    """Why a device never fits a wish, whoever has it now, in words about it; "" if it fits."""
    gpu, mig = slot.device()
    if gpu.health != HEALTHY or not gpu.uuid:
        why = gpu.health if gpu.health != HEALTHY else "its UUID is not known yet"
        return f"not usable ({why})"
    if slot.kept == KEPT_OUT:
        return KEPT_OUT
    if wish.mig and mig is None:
        return "not in MIG mode" if not gpu.mig_enabled else "a whole GPU"
    if mig is None and gpu.mig_enabled and (wish.count is not None or wish.mode == SHARED):
        return "in MIG mode"
    if mig is not None and min(mig.gpu_instance_minor, mig.compute_instance_minor) < 0:
        return "without device nodes"
    if wish.mig and mig is not None:
        from gpushim.allocate.profiles import covers

        if not covers(mig.profile, wish.mig):
            return f"of profile {mig.profile}"
    return _wrong_kind(slot, wish) or _too_small(slot, wish)


def _wrong_kind(slot: Slot, wish: Wish) -> str:
    if wish.model:
        from gpushim.allocate.pattern import is_model

        if not is_model(wish.model, slot.gpu.model):
            return "of another model"
    if wish.capability:
        have = slot.gpu.compute_capability
        if have is None:
            return "of a compute capability that nobody knows"
        if not compares(have, wish.capability[0], wish.capability[1]):
            return f"of compute capability {have}"
    return ""


def compares(have: str, operator: str, wanted: str) -> bool:
    """Whether a compute capability ("8.6") is as an operator and another one say."""
    one, other = (
        tuple(int(part) if part.isdigit() else 0 for part in text.split("."))
        for text in (have, wanted)
    )
    return {
        ">=": one >= other,
        "<=": one <= other,
        ">": one > other,
        "<": one < other,
        "!=": one != other,
    }.get(operator, one == other)


def _too_small(slot: Slot, wish: Wish) -> str:
    if not (wish.memory or wish.memory_percent):
        return ""
    if slot.capacity is None:
        return "of a memory size that nobody knows"
    if wish.memory > slot.capacity:
        return f"too small ({size_words(slot.capacity)})"
    return ""
