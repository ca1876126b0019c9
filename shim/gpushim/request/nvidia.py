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
CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CAPABILITIES = ("compute", "utility")

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
