"""Which variables a container with a grant has, at create and in each later exec."""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request.nvidia import VISIBLE_DEVICES, brief, variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
LIBRARY_PATH = "LD_LIBRARY_PATH"
# Values by which a user says that CUDA is to see no device.
_NO_DEVICE = ("", "-1", "NoDevFiles")


def container_environment(
    environment: Sequence[object],
    gpus: Sequence[tuple[str, str]],
    library_path: str,
    strict: bool,
) -> tuple[dict[str, str], list[str]]:
    """What to set in a container's environment, and what to say about it.

    environment: the container's own NAME=value entries; gpus: (name on this host, UUID) of each
    granted device, "0" or for a MIG device "0:1"; library_path: directories for LD_LIBRARY_PATH,
    joined by colons, or "". Raises GpushimError for a CUDA_VISIBLE_DEVICES that leaves CUDA without
    a device, if `strict`.
    """
    # UUIDs mean the same inside and outside; with no GPU no second injector may find work to do.
    changed = {VISIBLE_DEVICES: ",".join(uuid for _, uuid in gpus) or "void"}
    if variable(environment, CUDA_DEVICE_ORDER) is None:
        changed[CUDA_DEVICE_ORDER] = "PCI_BUS_ID"
    said = []
    cuda = variable(environment, CUDA_VISIBLE_DEVICES)
    if cuda is not None:
        translated, sentence = cuda_visible_devices(cuda, gpus)
        if translated is not None:
            changed[CUDA_VISIBLE_DEVICES] = translated
        elif sentence and strict:
            raise GpushimError(
                sentence, "Leave it unset, or set request.cuda-visible-devices to 'translate'."
            )
        if sentence:
            said.append(sentence)
    if library_path:
        own = variable(environment, LIBRARY_PATH)
        parts = own.split(":") if own else []
        parts += [part for part in library_path.split(":") if part not in parts]
        changed[LIBRARY_PATH] = ":".join(parts)
    return changed, said


def cuda_visible_devices(value: str, gpus: Sequence[tuple[str, str]]) -> tuple[str | None, str]:
    """What CUDA would make of CUDA_VISIBLE_DEVICES in a container that has `gpus`.

    Returns (new value or None to leave it, sentence or ""). CUDA numbers the container's devices
    from 0 and uses the list up to its first invalid entry (CUDA C++ Programming Guide,
    "CUDA Environment Variables"); indices of the host, or "0:1" for a MIG device, are what people
    write most often instead.
    """
    if value.strip() in _NO_DEVICE:
        return None, ""
    entries = [entry.strip() for entry in value.split(",")]
    valid = [_valid_inside(entry, gpus) for entry in entries]
    if all(valid):
        return None, ""
    by_index = dict(gpus)
    if all(entry in by_index for entry in entries):
        translated = ",".join(by_index[entry] for entry in entries)
        return translated, (
            f"{CUDA_VISIBLE_DEVICES}={brief(value)} counts as the host does; in the container it "
            f"was changed to {translated}."
        )
    if valid[0]:
        used = entries[: valid.index(False)]
        return None, (
            f"Of {CUDA_VISIBLE_DEVICES}={brief(value)} CUDA uses no more than {','.join(used)}: "
            f"'{brief(entries[len(used)])}' is no device of the container, and ends the list."
        )
    inside = "none" if not gpus else "0" if len(gpus) == 1 else f"0 to {len(gpus) - 1}"
    return None, (
        f"{CUDA_VISIBLE_DEVICES}={brief(value)} leaves CUDA without a device: the container's GPUs "
        f"are numbered {inside}, and its UUIDs are {', '.join(uuid for _, uuid in gpus) or 'none'}."
    )


def _valid_inside(entry: str, gpus: Sequence[tuple[str, str]]) -> bool:
    if entry.isascii() and entry.isdigit():
        return len(entry) <= 4 and int(entry) < len(gpus)
    if not entry.startswith(("GPU-", "MIG-")) or len(entry) == len("GPU-"):
        return False
    return sum(uuid.startswith(entry) for _, uuid in gpus) == 1
