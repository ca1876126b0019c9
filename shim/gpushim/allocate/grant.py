"""Which GPUs and MIG devices a container gets.

A grant by name, as with the vendor's runtime: what a name means, whoever has the device. Whether
it may be had is `choose`'s to say.
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.host.model import HEALTHY
from gpushim.request.nvidia import brief
from gpushim.request.request import ALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
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


def grant_named(request: Request, gpus: Sequence[Gpu]) -> Grant:
    """The devices that `request` names among those of this machine, whoever has them now.

    `all` is every GPU that works, and of those in MIG mode each of their MIG devices. What is named
    must be there and work. A GPU in MIG mode that is named as a whole is given as its node alone,
    as by the vendor's runtime: programs that partition it need no more. Raises Unavailable.
    """
    warnings: list[str] = []
    if request.devices == [ALL]:
        chosen = _all(request, gpus, warnings)
    else:
        chosen = [_find(name, request, gpus) for name in request.devices]
    once = {position(device): device for device in chosen}
    ordered = [once[place] for place in sorted(once)]
    return Grant(
        [gpu for gpu, mig in ordered if mig is None],
        request.capabilities,
        [(gpu, mig) for gpu, mig in ordered if mig is not None],
        warnings,
    )


def _all(request: Request, gpus: Sequence[Gpu], warnings: list[str]) -> list[Device]:
    chosen: list[Device] = []
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
            else:
                chosen.append(device)
    if not chosen:
        raise Unavailable(f"{_asked(request)}, but there is none that works: {_table(gpus)}.")
    return chosen


def _find(name: str, request: Request, gpus: Sequence[Gpu]) -> Device:
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


def _what(device: Device) -> str:
    kind = "MIG device" if device[1] else "GPU"
    return f"{kind} {name_of(device)} ({uuid_of(device)})"


def _asked(request: Request) -> str:
    return f"GPUs were asked for by {request.sources['devices']}"


def _table(gpus: Sequence[Gpu]) -> str:
    from gpushim.allocate.names import table

    return table(gpus)
