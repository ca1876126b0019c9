"""NVIDIA's variables, with the meaning that the vendor's toolkit gives them.

Source: NVIDIA/nvidia-container-toolkit 1.20, internal/config/image (behaviour, tried case by case).
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request.request import ALL, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"

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


def read_request(environment: Sequence[object], supported: Sequence[str]) -> Request | None:
    """The request in a spec's environment; None if it asks for nothing.

    supported: driver capabilities that this installation allows. Raises GpushimError for a
    capability that does not exist or is not allowed, but only if a GPU was asked for.
    """
    value = variable(environment, VISIBLE_DEVICES)
    devices = visible_devices(value)
    if devices is None:
        return None
    wanted = variable(environment, DRIVER_CAPABILITIES)
    sources = {"devices": f"environment {VISIBLE_DEVICES}={brief(value or '')}"}
    if wanted:
        sources["capabilities"] = f"environment {DRIVER_CAPABILITIES}={brief(wanted)}"
    else:
        sources["capabilities"] = "default"
    return Request(devices, driver_capabilities(wanted, supported), sources)


def visible_devices(value: str | None) -> list[str] | None:
    """The devices that a value of NVIDIA_VISIBLE_DEVICES names.

    None: no request (unset, empty, blanks, or `void` anywhere in the list). []: `none`, the
    driver's files without a GPU. Else names in their order, each once; the first of `all` and
    `none` in a list takes it over.
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


def brief(value: str) -> str:
    """A value as a sentence or a log can hold it: whatever a variable holds, only its beginning."""
    return value if len(value) <= _BRIEF else f"{value[:_BRIEF]}..."


def driver_capabilities(value: str | None, supported: Sequence[str]) -> list[str]:
    """The capabilities that a value of NVIDIA_DRIVER_CAPABILITIES names, sorted.

    Unset or empty means the default, `all` (also among others) all that are supported.
    """
    if not value:
        return sorted(set(DEFAULT_CAPABILITIES) & set(supported))
    names = {name for name in (part.strip() for part in value.split(",")) if name}
    if ALL in names:
        return sorted(supported)
    refused = sorted(names.difference(supported))
    if refused:
        raise GpushimError(
            f"{DRIVER_CAPABILITIES}={brief(value)} names the driver capability "
            f"'{brief(refused[0])}', "
            f"but here there are only {', '.join(sorted(supported))} (and all).",
            "Change the variable, or request.supported-driver-capabilities in the configuration."
            if refused[0] in CAPABILITIES
            else "Change the variable.",
        )
    return sorted(names)
