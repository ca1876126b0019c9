"""Which GPUs a container gets.

A grant by name, as with the vendor's runtime: what is named is given, and several containers may
name the same GPU.
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

    from gpushim.host.model import Gpu
    from gpushim.request.request import Request


class Grant:
    """What a container was given: GPUs in PCI bus order, each once, and driver capabilities."""

    __slots__ = ("capabilities", "gpus")

    def __init__(self, gpus: list[Gpu], capabilities: list[str]) -> None:
        self.gpus = gpus
        self.capabilities = capabilities

    def to_json(self) -> dict[str, Any]:
        return {
            "gpus": [
                {"index": gpu.index, "uuid": gpu.uuid, "minor": gpu.minor, "model": gpu.model}
                for gpu in self.gpus
            ],
            "capabilities": self.capabilities,
        }


class Unavailable(GpushimError):
    """A GPU that was asked for is not there or not usable, as far as the inventory knows."""


def grant_named(request: Request, gpus: Sequence[Gpu]) -> Grant:
    """The GPUs that `request` names, among those of this machine.

    `all` leaves out a GPU that does not work; one that is named must work. Raises Unavailable.
    """
    if request.devices == [ALL]:
        chosen = [gpu for gpu in gpus if gpu.health == HEALTHY and gpu.uuid]
        if not chosen:
            raise Unavailable(_asked(request) + f", but there is none that works: {_table(gpus)}.")
    else:
        chosen = [_find(name, request, gpus) for name in request.devices]
    order = {gpu.index: gpu for gpu in chosen}
    return Grant([order[index] for index in sorted(order)], request.capabilities)


def _find(name: str, request: Request, gpus: Sequence[Gpu]) -> Gpu:
    matching = _matching(name, gpus)
    if len(matching) > 1:
        found = ", ".join(gpu.uuid for gpu in matching)
        raise Unavailable(
            f"{_asked(request)}, but '{brief(name)}' begins more than one UUID: {found}.",
            "Give more of it.",
        )
    if not matching:
        raise Unavailable(
            f"{_asked(request)}, but there is no GPU '{brief(name)}' here: {_table(gpus)}.",
            _how_to_ask(name),
        )
    gpu = matching[0]
    if gpu.health != HEALTHY or not gpu.uuid:
        raise Unavailable(
            f"{_asked(request)}, but GPU {gpu.index} ({gpu.bus_id}) does not work: "
            f"{gpu.health if gpu.health != HEALTHY else 'the driver does not know its UUID yet'}.",
            f"The GPUs here: {_table(gpus)}. See 'nvidia-smi' and the kernel's log.",
        )
    return gpu


def _how_to_ask(name: str) -> str:
    """What to do about a name that is none, by the form that it has."""
    if name != name.lower() and name.lower() in (ALL, "none", "void"):
        return f"Write {name.lower()} in lower case."
    first, dash, last = name.partition("-")
    if dash and all(part.isascii() and part.isdigit() for part in (first, last)):
        return "Ranges are not known: write each index, as in 0,1,2,3."
    if name.startswith("MIG-") or ":" in name:
        return "MIG devices can't be asked for in this version: ask for a GPU by index or UUID."
    if "=" in name or "/" in name:
        return "CDI names and paths can't be asked for in this version: ask by index or UUID."
    return "Ask for one of these by index or UUID."


def _matching(name: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    if name.isascii() and name.isdigit():
        # Python reads no integer of thousands of digits; no machine has GPUs beyond four.
        number = int(name) if len(name) <= 4 else -1
        return [gpu for gpu in gpus if gpu.index == number]
    if not name.startswith("GPU-") or len(name) == len("GPU-"):
        return []
    wanted = name.lower()
    exact = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower() == wanted]
    return exact or [gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower().startswith(wanted)]


def _asked(request: Request) -> str:
    return f"GPUs were asked for by {request.sources['devices']}"


def _table(gpus: Sequence[Gpu]) -> str:
    """The GPUs of this machine in a few words."""
    if not gpus:
        return "this machine has no GPU that its driver knows of"
    return "; ".join(
        f"{gpu.index} = {gpu.model} {gpu.uuid or '(UUID unknown)'}"
        + ("" if gpu.health == HEALTHY else f" ({gpu.health})")
        for gpu in gpus
    )
