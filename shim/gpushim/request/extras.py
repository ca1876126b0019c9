"""NVIDIA's variables for more than GPUs: features with devices of their own, IMEX channels, MIG.

Source: as in `gpushim.request.nvidia`.
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request.nvidia import brief, variable, visible_devices
from gpushim.request.request import ALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
MIG_CONFIG_DEVICES = "NVIDIA_MIG_CONFIG_DEVICES"
MIG_MONITOR_DEVICES = "NVIDIA_MIG_MONITOR_DEVICES"
# Variables that ask for more than GPUs -> the name of what they ask for.
FEATURES = {
    "NVIDIA_GDS": "gds",
    "NVIDIA_MOFED": "mofed",
    "NVIDIA_GDRCOPY": "gdrcopy",
    "NVIDIA_NVSWITCH": "nvswitch",
}
_ENABLED = "enabled"
# Channel numbers are minor numbers, of which Linux has 20 bits.
_LAST_CHANNEL = (1 << 20) - 1
# As many as the driver has unless told otherwise (its parameter NVreg_ImexChannelCount). Each gets
# a node on the host where it has none, and an image may ask for as many as it likes.
_MOST_CHANNELS = 2048


def features(environment: Sequence[object]) -> tuple[list[str], list[str]]:
    """What is asked for by NVIDIA_GDS and its like, and sentences to warn with.

    Only `enabled` asks for something, as with the vendor's runtime; that another value does
    nothing is worth a sentence, unless it says so itself.
    """
    wanted, warnings = [], []
    for name, feature in FEATURES.items():
        value = variable(environment, name)
        if value == _ENABLED:
            wanted.append(feature)
        elif value and value != "disabled":
            warnings.append(
                f"{name}={brief(value)} does nothing: only {name}={_ENABLED} asks for it."
            )
    return wanted, warnings


def imex_channels(value: str | None, from_mounts: Sequence[str]) -> list[int]:
    """The IMEX channels that a container asks for, in their order, each once.

    value: of NVIDIA_IMEX_CHANNELS; from_mounts: names beneath imex/ in the list of devices that
    mounts make, which outrank it. `all` adds none, as with the vendor's runtime (nor do `none` and
    `void`). Raises GpushimError for a name that is no number of a channel.
    """
    if from_mounts:
        names = visible_devices(",".join(from_mounts))
        source = "A mount beneath /var/run/nvidia-container-devices/imex"
    else:
        names = visible_devices(value)
        source = f"{IMEX_CHANNELS}={brief(value or '')}"
    if not names or names == [ALL]:
        return []
    channels = []
    for name in names:
        # Python reads no integer of thousands of digits.
        number = int(name) if name.isascii() and name.isdigit() and len(name) <= 7 else -1
        if not 0 <= number <= _LAST_CHANNEL:
            raise GpushimError(
                f"{source} names the IMEX channel '{brief(name)}', which is no number from 0 to "
                f"{_LAST_CHANNEL}.",
                "Give numbers of channels, as in 0,1.",
            )
        channels.append(number)
    channels = list(dict.fromkeys(channels))
    if len(channels) > _MOST_CHANNELS:
        raise GpushimError(
            f"{source} names {len(channels)} IMEX channels, and {_MOST_CHANNELS} are the most.",
            "Name those that are needed.",
        )
    return channels


def mig_modes(environment: Sequence[object], privileged: bool) -> tuple[bool, bool]:
    """Whether the container may partition GPUs, and whether it may watch all MIG devices.

    Each has a device node of the whole machine and not of a GPU, so that a list of GPUs gives as
    much as `all` does. Raises GpushimError where a container asks for one and is not privileged.
    """
    found = []
    for name in (MIG_CONFIG_DEVICES, MIG_MONITOR_DEVICES):
        value = variable(environment, name)
        if value and not privileged:
            raise GpushimError(
                f"{name}={brief(value)} asks for more than a container without CAP_SYS_ADMIN may "
                "have.",
                "Remove the variable, or start the container privileged (--cap-add SYS_ADMIN).",
            )
        found.append(bool(visible_devices(value)))
    return found[0], found[1]
