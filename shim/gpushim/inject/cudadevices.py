"""CUDA_VISIBLE_DEVICES, which people write as their host counts, as the container counts."""

from __future__ import annotations

from gpushim.request.nvidia import brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = "CUDA_VISIBLE_DEVICES"
# Values by which a user says that CUDA is to see no device.
_NO_DEVICE = ("", "-1", "NoDevFiles")


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
            f"{_NAME}={brief(value)} counts as the host does; in the container it "
            f"was changed to {translated}."
        )
    if valid[0]:
        used = entries[: valid.index(False)]
        return None, (
            f"Of {_NAME}={brief(value)} CUDA uses no more than {','.join(used)}: "
            f"'{brief(entries[len(used)])}' is no device of the container, and ends the list."
        )
    inside = "none" if not gpus else "0" if len(gpus) == 1 else f"0 to {len(gpus) - 1}"
    return None, (
        f"{_NAME}={brief(value)} leaves CUDA without a device: the container's GPUs "
        f"are numbered {inside}, and its UUIDs are {', '.join(uuid for _, uuid in gpus) or 'none'}."
    )


def _valid_inside(entry: str, gpus: Sequence[tuple[str, str]]) -> bool:
    if entry.isascii() and entry.isdigit():
        return len(entry) <= 4 and int(entry) < len(gpus)
    if not entry.startswith(("GPU-", "MIG-")) or len(entry) == len("GPU-"):
        return False
    return sum(uuid.startswith(entry) for _, uuid in gpus) == 1
