"""Which variables a container with a grant has, at create and in each later exec."""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request.nvidia import VISIBLE_DEVICES, variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
LIBRARY_PATH = "LD_LIBRARY_PATH"


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
        from gpushim.inject.cudadevices import cuda_visible_devices

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
