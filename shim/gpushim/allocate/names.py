"""What names of GPUs and MIG devices mean, and how those of this machine are told to people.

A GPU is named by its index, its UUID or the beginning of one; a MIG device by `g:m` (the index of
its GPU and its own beneath it), by its UUID or the beginning of one, or as drivers before 470 had
it, MIG-GPU-<UUID>/<GPU instance>/<compute instance> (NVIDIA's MIG user guide, "Running on bare
metal" and "Running with Docker containers"). The create path imports this only for a name that is
no plain index, and for a refusal.
"""

from __future__ import annotations

from gpushim.allocate.grant import number, uuid_of
from gpushim.host.model import HEALTHY
from gpushim.request.keyvalues import how_to_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.grant import Device
    from gpushim.host.model import Gpu, MigDevice

_GPU, _MIG = "GPU-", "MIG-"


def matching(name: str, gpus: Sequence[Gpu]) -> list[Device]:
    """The devices that `name` can mean: none, one, or several whose UUIDs it begins."""
    index = number(name)
    if index >= 0:
        return [(gpu, None) for gpu in gpus if gpu.index == index]
    if name.startswith(_MIG):
        return _by_uuid(name, _MIG, [*_migs(gpus)]) or _by_instances(name, gpus)
    if name.startswith(_GPU):
        return _by_uuid(name, _GPU, [(gpu, None) for gpu in gpus])
    first, _, second = name.partition(":")
    wanted = (number(first), number(second))
    return [(gpu, mig) for gpu, mig in _migs(gpus) if (gpu.index, mig.index) == wanted]


def _migs(gpus: Sequence[Gpu]) -> list[tuple[Gpu, MigDevice]]:
    """All MIG devices, GPU by GPU."""
    return [(gpu, mig) for gpu in gpus for mig in gpu.mig_devices]


def _by_uuid(name: str, prefix: str, devices: Sequence[Device]) -> list[Device]:
    if len(name) == len(prefix):
        return []
    wanted = name.lower()
    known = [(uuid_of(device).lower(), device) for device in devices]
    exact = [device for uuid, device in known if uuid == wanted]
    return exact or [device for uuid, device in known if uuid.startswith(wanted)]


def _by_instances(name: str, gpus: Sequence[Gpu]) -> list[Device]:
    """MIG-GPU-<UUID>/<GPU instance>/<compute instance>."""
    words = name[len(_MIG) :].split("/")
    if len(words) != 3:
        return []
    wanted = (words[0].lower(), number(words[1]), number(words[2]))
    return [
        (gpu, mig)
        for gpu, mig in _migs(gpus)
        if (gpu.uuid.lower(), mig.gpu_instance, mig.compute_instance) == wanted
    ]


def how_to_ask(name: str, gpus: Sequence[Gpu]) -> str:
    """What to do about a name that is none, by the form that it has."""
    misspelt = how_to_name(name)
    if misspelt:
        return misspelt
    if ":" in name and "." in name:
        return "PCI bus ids are no names of GPUs: ask for one of these by index or UUID."
    if name.startswith("MIG-") or ":" in name:
        if not any(gpu.mig_devices for gpu in gpus):
            return (
                "There are no MIG devices here, and none outlives a reboot: make them with "
                "nvidia-smi mig, or ask for a GPU by index or UUID."
            )
        return (
            "MIG devices get new UUIDs when they are made anew, and none outlives a reboot: "
            "'gpushimctl inventory' and 'nvidia-smi -L' show those that there are now."
        )
    if "=" in name or "/" in name:
        return "Ask by index or UUID; a CDI name has the form VENDOR/CLASS=DEVICE."
    return "Ask for one of these by index or UUID."


def table(gpus: Sequence[Gpu]) -> str:
    """The GPUs of this machine in a few words, and their MIG devices without their UUIDs."""
    if not gpus:
        return "this machine has no GPU that its driver knows of"
    return "; ".join(_words(gpu) for gpu in gpus)


def _words(gpu: Gpu) -> str:
    text = f"{gpu.index} = {gpu.model} {gpu.uuid or '(UUID unknown)'}"
    if gpu.mig_enabled:
        text += f" (MIG devices: {mig_words(gpu)})"
    return text if gpu.health == HEALTHY else f"{text} ({gpu.health})"


def mig_words(gpu: Gpu) -> str:
    """The MIG devices of a GPU by name and profile, neighbours that are alike together.

    "0:0 3g.40gb, 0:1 to 0:4 1g.10gb", or "none".
    """
    runs: list[tuple[str, int, int]] = []
    for mig in gpu.mig_devices:
        if runs and runs[-1][0] == mig.profile and runs[-1][2] == mig.index - 1:
            runs[-1] = (mig.profile, runs[-1][1], mig.index)
        else:
            runs.append((mig.profile, mig.index, mig.index))
    return (
        ", ".join(
            f"{gpu.index}:{first}"
            + (f" to {gpu.index}:{last}" if last != first else "")
            + f" {profile}"
            for profile, first, last in runs
        )
        or "none"
    )
