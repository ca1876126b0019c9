"""NVIDIA's variables, with the meaning that the vendor's toolkit gives them.

Source: NVIDIA/nvidia-container-toolkit 1.20, internal/config/image (behaviour, tried case by case).
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request.request import ALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
CUDA_VERSION = "CUDA_VERSION"
REQUIRE_CUDA = "NVIDIA_REQUIRE_CUDA"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
MIG_CONFIG_DEVICES = "NVIDIA_MIG_CONFIG_DEVICES"
MIG_MONITOR_DEVICES = "NVIDIA_MIG_MONITOR_DEVICES"

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CAPABILITIES = ("compute", "utility")

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

_BRIEF = 200


def variable(environment: Sequence[object], name: str) -> str | None:
    """The value of `name` in a spec's list of NAME=value; the last one counts, as with runc."""
    start = name + "="
    for entry in reversed(environment):
        if isinstance(entry, str) and entry.startswith(start):
            return entry[len(start) :]
    return None


def variables(environment: Sequence[object], prefix: str) -> dict[str, str]:
    """Name -> value of all variables whose names begin with `prefix`; of the same, the last.

    In the order in which each name is first seen.
    """
    found: dict[str, str] = {}
    for entry in environment:
        if isinstance(entry, str) and entry.startswith(prefix):
            name, equals, value = entry.partition("=")
            if equals and len(name) >= len(prefix):
                found[name] = value
    return found


def brief(value: str) -> str:
    """A value as a sentence or a log can hold it: whatever a variable holds, only its beginning."""
    return value if len(value) <= _BRIEF else f"{value[:_BRIEF]}..."


def visible_devices(value: str | None) -> list[str] | None:
    """The devices that a value of NVIDIA_VISIBLE_DEVICES names.

    None: no request (unset, empty, blanks, or `void` anywhere in the list). []: `none`, the
    driver's files without a GPU. Else names (CDI names, too) in their order, each once; the first
    of `all` and `none` in a list takes it over.
    """
    if value is None:
        return None
    names = [name for name in (part.strip() for part in value.split(",")) if name]
    if not names or "void" in names:
        return None
    for name in names:
        if name == ALL:
            return [ALL]
        if name == "none":
            return []
    return list(dict.fromkeys(names))


def is_legacy(environment: Sequence[object]) -> bool:
    """Whether this is an image of the first generation: it has a CUDA_VERSION, but says nothing of
    the driver that it needs (NVIDIA_REQUIRE_CUDA).
    """
    return bool(variable(environment, CUDA_VERSION)) and not variable(environment, REQUIRE_CUDA)


def devices_of(environment: Sequence[object]) -> list[str] | None:
    """The devices that an environment names, as `visible_devices`.

    A legacy image means `all` as long as nobody says anything else: where the variable is set to
    nothing or to `void`, that is said.
    """
    value = variable(environment, VISIBLE_DEVICES)
    if value is None and is_legacy(environment):
        return [ALL]
    return visible_devices(value)


def driver_capabilities(
    value: str | None, supported: Sequence[str], legacy: bool = False
) -> list[str]:
    """The capabilities that a value of NVIDIA_DRIVER_CAPABILITIES names, sorted.

    Unset or empty means the default, `all` (also among others) all that are supported, and so does
    unset in a legacy image. A list without a name in it, such as `,`, means none. Raises
    GpushimError for a name that is unknown or not supported.
    """
    if value is None and legacy:
        return sorted(set(supported))
    if not value:
        return sorted(set(DEFAULT_CAPABILITIES) & set(supported))
    names = {name for name in (part.strip() for part in value.split(",")) if name}
    if ALL in names:
        return sorted(set(supported))
    refused = sorted(names.difference(supported))
    if refused:
        there = ", ".join(sorted(supported))
        hint = "Change the variable."
        if refused[0] in CAPABILITIES:
            hint = (
                "Change the variable, or request.supported-driver-capabilities in the "
                "configuration."
            )
        elif refused[0].lower() in (*CAPABILITIES, ALL):
            hint = f"Write {refused[0].lower()} in lower case."
        raise GpushimError(
            f"{DRIVER_CAPABILITIES}={brief(value)} names the driver capability "
            f"'{brief(refused[0])}', "
            + (f"but here there are only {there} (and all)." if there else "but here is none."),
            hint,
        )
    return sorted(names)


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
