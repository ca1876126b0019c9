"""Which GPUs and MIG devices a container gets.

A grant by name, as with the vendor's runtime: what is named is given, and several containers may
name the same device, but for what another container holds exclusively.
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.host.model import HEALTHY
from gpushim.request.nvidia import brief
from gpushim.request.request import ALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpushim.host.model import Gpu, MigDevice
    from gpushim.request.request import Request

    # A GPU as a whole, or one MIG device of it.
    Device = tuple[Gpu, MigDevice | None]

# Python reads no integer of thousands of digits; no machine has GPUs or instances beyond four.
_DIGITS = 4
# How many UUIDs a sentence lists.
_SHOWN = 8


def number(text: str) -> int:
    """A non-negative integer of ASCII digits; -1 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else -1


def uuid_of(device: Device) -> str:
    gpu, mig = device
    return mig.uuid if mig else gpu.uuid


def name_of(device: Device) -> str:
    """The short name on this host: "0" or "0:1"."""
    gpu, mig = device
    return f"{gpu.index}:{mig.index}" if mig else str(gpu.index)


def position(device: Device) -> tuple[int, int]:
    """What devices are sorted by: a whole GPU comes before its MIG devices."""
    gpu, mig = device
    return gpu.index, mig.index if mig else -1


class Grant:
    """What a container was given.

    gpus: those that it has as a whole, in PCI bus order, each once; mig: (GPU, MIG device) pairs
    in the same order; capabilities: of the driver; warnings: sentences on what `all` left out.
    """

    __slots__ = ("capabilities", "gpus", "mig", "warnings")

    def __init__(
        self,
        gpus: list[Gpu],
        capabilities: list[str],
        mig: list[tuple[Gpu, MigDevice]] | None = None,
        warnings: list[str] | None = None,
    ) -> None:
        self.gpus = gpus
        self.capabilities = capabilities
        self.mig = mig or []
        self.warnings = warnings or []

    def devices(self) -> list[tuple[str, str]]:
        """(name on this host, UUID) of each device: ("0", "GPU-...") or ("0:1", "MIG-...")."""
        every: list[Device] = [(gpu, None) for gpu in self.gpus]
        every += self.mig
        return [(name_of(device), uuid_of(device)) for device in sorted(every, key=position)]

    def uuids(self) -> list[str]:
        return [uuid for _, uuid in self.devices()]

    def boards(self) -> list[Gpu]:
        """The GPUs that the container reaches as a whole or in part, each once."""
        found = {gpu.index: gpu for gpu in [*self.gpus, *(gpu for gpu, _ in self.mig)]}
        return [found[index] for index in sorted(found)]

    def to_json(self) -> dict[str, Any]:
        return {
            "gpus": [
                {"index": gpu.index, "uuid": gpu.uuid, "minor": gpu.minor, "model": gpu.model}
                for gpu in self.gpus
            ],
            "mig": [
                {
                    "name": name_of((gpu, mig)),
                    "uuid": mig.uuid,
                    "profile": mig.profile,
                    "gpu": gpu.uuid,
                    "minor": gpu.minor,
                    "model": gpu.model,
                }
                for gpu, mig in self.mig
            ],
            "capabilities": self.capabilities,
        }


class Unavailable(GpushimError):
    """A device that was asked for is not there or not usable, as far as the inventory knows."""


class Held(GpushimError):
    """A device that was asked for is there, and somebody else has it for itself."""


def grant_named(request: Request, gpus: Sequence[Gpu], held: Mapping[str, str]) -> Grant:
    """The devices that `request` names, or as many as it wants, among those of this machine.

    held: UUID -> who has it for itself, in words that follow "held by". `all` is every GPU that
    works, and of those in MIG mode each of their MIG devices; it leaves out what somebody holds.
    A count takes the first whole GPUs that nobody holds. What is named must be there and work. A
    GPU in MIG mode that is named as a whole is given as its node alone, as by the vendor's
    runtime: programs that partition it need no more. Raises Unavailable or Held.
    """
    warnings: list[str] = []
    if request.count is not None:
        chosen = _count(request.count, request, gpus, held)
    elif request.devices == [ALL]:
        chosen = _all(request, gpus, held, warnings)
    else:
        chosen = [_find(name, request, gpus, held) for name in request.devices]
    once = {position(device): device for device in chosen}
    ordered = [once[place] for place in sorted(once)]
    return Grant(
        [gpu for gpu, mig in ordered if mig is None],
        request.capabilities,
        [(gpu, mig) for gpu, mig in ordered if mig is not None],
        warnings,
    )


def _all(
    request: Request, gpus: Sequence[Gpu], held: Mapping[str, str], warnings: list[str]
) -> list[Device]:
    chosen: list[Device] = []
    left: list[str] = []
    for gpu in gpus:
        if not _works(gpu):
            continue  # the inventory's problems tell of it
        devices: list[Device] = [(gpu, mig) for mig in gpu.mig_devices]
        # Who may partition GPUs gets those that are not partitioned yet.
        if not gpu.mig_enabled or (not devices and request.mig_config):
            devices = [(gpu, None)]
        elif not devices:
            warnings.append(
                f"GPU {gpu.index} ({gpu.uuid}) is in MIG mode and has no MIG devices, so 'all' "
                "leaves it out ('gpushimctl refresh' if that has changed)."
            )
        for device in devices:
            if not _has_nodes(device):
                warnings.append(
                    f"The driver lists no device nodes for {_what(device)}, so 'all' leaves it out."
                )
            elif _holder(device, held):
                left.append(_held_by(device, held))
            else:
                chosen.append(device)
    if not chosen and left:
        raise Held(f"{_asked(request)}, but none is free: {'; '.join(left)}.")
    if not chosen:
        raise Unavailable(f"{_asked(request)}, but there is none that works: {_table(gpus)}.")
    warnings += [f"{sentence}, so 'all' leaves it out." for sentence in left]
    return chosen


def _count(
    count: int, request: Request, gpus: Sequence[Gpu], held: Mapping[str, str]
) -> list[Device]:
    fit: list[Device] = [(gpu, None) for gpu in gpus if _works(gpu) and not gpu.mig_enabled]
    asked = f"{count} {'GPU was' if count == 1 else 'GPUs were'} asked for"
    asked += f" by {request.sources['devices']}"
    if len(fit) < count:
        words = ("works", "work")
        if fit and any(gpu.mig_enabled for gpu in gpus):
            words = ("works and is not in MIG mode", "work and are not in MIG mode")
        raise Unavailable(
            f"{asked}, but {_so_many(len(fit), *words)}: {_table(gpus)}.",
            "Ask for fewer, or for MIG devices by name."
            if any(gpu.mig_devices for gpu in gpus)
            else "Ask for fewer.",
        )
    free = [device for device in fit if not _holder(device, held)]
    if len(free) < count:
        taken = [_held_by(device, held) for device in fit if device not in free]
        raise Held(
            f"{asked}, but {_so_many(len(free), 'is free', 'are free')}: {'; '.join(taken)}."
        )
    return free[:count]


def _so_many(found: int, one: str, several: str) -> str:
    return "no whole one " + one if not found else f"only {found} {one if found == 1 else several}"


def _find(name: str, request: Request, gpus: Sequence[Gpu], held: Mapping[str, str]) -> Device:
    index = number(name)
    found: list[Device] = [(gpu, None) for gpu in gpus if gpu.index == index]
    if index < 0:
        from gpushim.allocate.names import matching

        found = matching(name, gpus)
    if len(found) != 1:
        raise _not_one(name, found, request, gpus)
    gpu = found[0][0]
    if not _works(gpu):
        raise Unavailable(
            f"{_asked(request)}, but GPU {gpu.index} ({gpu.bus_id}) does not work: "
            f"{gpu.health if gpu.health != HEALTHY else 'the driver does not know its UUID yet'}.",
            f"The GPUs here: {_table(gpus)}. See 'nvidia-smi' and the kernel's log.",
        )
    if not _has_nodes(found[0]):
        raise Unavailable(
            f"{_asked(request)}, but the driver lists no device nodes for {_what(found[0])}.",
            "See /proc/driver/nvidia-caps/mig-minors.",
        )
    if _holder(found[0], held):
        raise Held(f"{_asked(request)}, but {_held_by(found[0], held)}.")
    return found[0]


def _not_one(name: str, found: list[Device], request: Request, gpus: Sequence[Gpu]) -> Unavailable:
    """What is said of a name that means nothing here, or several devices."""
    from gpushim.allocate.names import how_to_ask

    if not found:
        is_mig = name.startswith("MIG-") or (":" in name and "." not in name)
        nothing = f"but there is no {'MIG device' if is_mig else 'GPU'}"
        return Unavailable(
            f"{_asked(request)}, {nothing} '{brief(name)}' here: {_table(gpus)}.",
            how_to_ask(name, gpus),
        )
    uuids = [uuid_of(device) for device in found]
    more = f" and {len(uuids) - _SHOWN} others" if len(uuids) > _SHOWN else ""
    return Unavailable(
        f"{_asked(request)}, but '{brief(name)}' begins more than one UUID: "
        f"{', '.join(uuids[:_SHOWN])}{more}.",
        "Give more of it.",
    )


def _works(gpu: Gpu) -> bool:
    return gpu.health == HEALTHY and bool(gpu.uuid)


def _has_nodes(device: Device) -> bool:
    """Whether the driver numbers the nodes of a MIG device's instances; true of a whole GPU."""
    mig = device[1]
    return mig is None or min(mig.gpu_instance_minor, mig.compute_instance_minor) >= 0


def _holder(device: Device, held: Mapping[str, str]) -> str:
    """Who holds a device, or the whole GPU that a MIG device is a part of; "" if nobody does."""
    return held.get(uuid_of(device)) or held.get(device[0].uuid) or ""


def _held_by(device: Device, held: Mapping[str, str]) -> str:
    return f"{_what(device)} is held by {_holder(device, held)}"


def _what(device: Device) -> str:
    kind = "MIG device" if device[1] else "GPU"
    return f"{kind} {name_of(device)} ({uuid_of(device)})"


def _asked(request: Request) -> str:
    return f"GPUs were asked for by {request.sources['devices']}"


def _table(gpus: Sequence[Gpu]) -> str:
    from gpushim.allocate.names import table

    return table(gpus)
