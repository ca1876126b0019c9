"""The shared memory of a container, which NCCL and PyTorch's data loaders live on."""

from __future__ import annotations

from gpushim.limits.present import SHM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.limits.limits import Limits
    from gpushim.limits.present import Present
    from gpushim.limits.settings import Settings

# What Docker, Podman and containerd give without a word of the user's.
_SHM_OF_ENGINES = 64 << 20
_PAGE = 4096
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def add_shm(limits: Limits, present: Present, settings: Settings, gpus: float) -> None:
    """Sizes /dev/shm where the engine left it at its default, and it is the container's own."""
    if not settings.shm:
        return
    mount = present.shm
    if mount is None or mount.get("type") != "tmpfs":
        limits.notes.append(
            f"limits.shm-per-gpu is not applied: {SHM} is no tmpfs of the container's own."
        )
        return
    options = mount.get("options")
    sizes = [
        str(option)[5:]
        for option in (options if isinstance(options, list) else ())
        if str(option).startswith("size=")
    ]
    if sizes and _bytes(sizes[-1]) not in (0, _SHM_OF_ENGINES):
        return  # The user's own.
    size = max(_SHM_OF_ENGINES, int(settings.shm * gpus) // _PAGE * _PAGE)
    if size > _SHM_OF_ENGINES or not sizes:
        limits.edits.tmpfs_sizes[SHM] = size


def _bytes(text: str) -> int:
    """A tmpfs's size option in bytes (tmpfs(5)); -1 for a percentage and what is no number."""
    unit = text[-1:].lower()
    number = text if unit.isdecimal() else text[:-1]
    known = _SIZES.get("" if unit.isdecimal() else unit)
    return int(number) * known if known and number.isdecimal() and number.isascii() else -1
