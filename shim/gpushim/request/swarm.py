"""Docker Swarm's generic resources, which reach a service as variables DOCKER_RESOURCE_<KIND>.

Source: moby, daemon/cluster/executor/container (EnvFormat of generic resources); the setting
swarm-resource of NVIDIA's runtime. The value is a list of what the node was told to hand out, for
GPUs their UUIDs or the beginnings of them, or a number where the node only counts. A UUID with
"/1of4" behind it is one of four parts of that GPU (`gpushimctl install --swarm-slots`).
"""

from __future__ import annotations

from gpushim.request.nvidia import brief, variable, variables, visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "DOCKER_RESOURCE_"
MOST_SLOTS = 50
_WHOLE = 100  # percent
_UUID_DIGITS = frozenset("0123456789abcdefABCDEF-")


def swarm_devices(
    environment: Sequence[object], configured: Sequence[str]
) -> tuple[list[str] | None, str] | None:
    """The devices that Swarm assigned, and which variables say so; None if none does.

    configured: the variables to look at, in their order; empty means every DOCKER_RESOURCE_
    variable that holds UUIDs of GPUs and nothing else. The devices are as `visible_devices` gives
    them, so None where the variables that are set name nothing: then the container gets no GPU,
    whatever NVIDIA_VISIBLE_DEVICES says.
    """
    found = _counted(environment, configured)
    if not found:
        return None
    devices = visible_devices(",".join(found.values()))
    source = " and ".join(f"{name}={brief(value)}" for name, value in found.items())
    return devices, f"environment {source}"


def share_of(devices: Sequence[str]) -> tuple[list[str], int]:
    """The devices without what says which part of them is meant, each once; and percent of each.

    0 where whole devices are meant, or all parts of one. Of several devices the largest part
    counts, since a booking is of so much of each.
    """
    parts: dict[str, int] = {}
    for name in devices:
        uuid, part = _slot(name)
        parts[uuid] = min(parts.get(uuid, 0) + part, _WHOLE)
    largest = max(parts.values(), default=_WHOLE)
    return list(parts), 0 if largest == _WHOLE else largest


def _slot(name: str) -> tuple[str, int]:
    """A device and how many percent of it: ("GPU-7af7a99b", 25) for "GPU-7af7a99b/1of4"."""
    uuid, slash, slot = name.partition("/")
    number, of, slots = slot.partition("of")
    if not (slash and of and _is_number(number) and _is_number(slots)):
        return name, _WHOLE
    if not 1 <= int(number) <= int(slots) <= MOST_SLOTS:
        return name, _WHOLE
    return uuid, _WHOLE // int(slots)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MOST_SLOTS))


def ignored_resources(environment: Sequence[object], configured: Sequence[str]) -> list[str]:
    """A sentence on each DOCKER_RESOURCE_ variable that seems to be about GPUs and is not counted.

    Whoever relies on it would find that all replicas on a node share the same GPUs.
    """
    counted = _counted(environment, configured)
    return [
        f"{name}={brief(value)} is not counted as a request for GPUs: "
        + (
            f"request.swarm-resource names only {', '.join(configured)}."
            if configured
            else "it holds no UUIDs of GPUs, such as GPU-7af7a99b, which is what the node's "
            "generic resources have to name."
        )
        for name, value in variables(environment, PREFIX).items()
        if "GPU" in name[len(PREFIX) :].upper() and name not in counted
    ]


def _counted(environment: Sequence[object], configured: Sequence[str]) -> dict[str, str]:
    """Name -> value of the variables that count, in the order in which they do."""
    if configured:
        values = {name: variable(environment, name) for name in configured}
        return {name: value for name, value in values.items() if value is not None}
    every = variables(environment, PREFIX)
    return {name: value for name, value in every.items() if _names_gpus(value)}


def _names_gpus(value: str) -> bool:
    names = [name for name in (part.strip() for part in value.split(",")) if name]
    return bool(names) and all(_is_uuid(name) for name in names)


def _is_uuid(name: str) -> bool:
    """Whether this is the UUID of a GPU or a MIG device, or the beginning of one.

    There are GPU-<uuid>, MIG-<uuid> and, from drivers before 470, MIG-GPU-<uuid>/<gi>/<ci>.
    """
    kind, _, rest = _slot(name)[0].partition("-")
    if kind not in ("GPU", "MIG"):
        return False
    if kind == "MIG" and rest.startswith("GPU-"):
        rest, *instances = rest[len("GPU-") :].split("/")
        if len(instances) > 2 or not all(part.isascii() and part.isdigit() for part in instances):
            return False
    return bool(rest.strip("-")) and _UUID_DIGITS.issuperset(rest)
