"""Whether a container's limits need a thought at all: mostly they do not."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# What is empty, zero or false where it is not set.
_KEYS = (
    "limits.cpus-per-gpu",
    "limits.memory-per-gpu",
    "limits.pids-per-gpu",
    "limits.shm-per-gpu",
    "limits.unified",
    "security.drop-capabilities",
    "security.no-new-privileges",
)


def wanted(
    values: Mapping[str, Any],
    keys: Mapping[str, Any],
    cpus: Mapping[str, str],
    modes: Sequence[str],
) -> bool:
    """Whether anything can come of `limits.decide`.

    values: of the configuration; keys: of the request; cpus: NUMA nodes of the machine; modes: of
    memory policies that low-level runtime and kernel know.
    """
    for key in _KEYS:
        if values.get(key):
            return True
    if values.get("security.privileged") == "refuse":
        return True
    numa = keys.get("numa") or values.get("limits.numa")
    return len(cpus) > 1 and (numa == "bind" or (numa == "prefer" and bool(modes)))
