"""What the configuration says of limits and of the security of containers with GPUs."""

from __future__ import annotations

from gpushim.config import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Settings:
    """The sections [limits] and [security].

    For each whole GPU that a container has, 0 where nothing is set: cpus (processors, also parts
    of one), memory and shm (bytes), pids. numa: "bind", "prefer" or "off"; unified: file of cgroup
    version 2 -> what is written to it; privileged: "warn" or "refuse"; drop_capabilities: names
    with CAP_ before them; no_new_privileges: whether a process may not get more privileges.
    """

    __slots__ = (
        "cpus",
        "drop_capabilities",
        "memory",
        "no_new_privileges",
        "numa",
        "pids",
        "privileged",
        "shm",
        "unified",
    )

    def __init__(self) -> None:
        self.cpus = 0.0
        self.memory = 0
        self.pids = 0
        self.shm = 0
        self.numa = "prefer"
        self.unified: dict[str, str] = {}
        self.privileged = "warn"
        self.drop_capabilities: list[str] = []
        self.no_new_privileges = False


def settings_of(values: Mapping[str, Any]) -> Settings:
    """What `Config.values` say; a key that they do not have is not set.

    Numbers may be texts. Raises ValueError for what is neither.
    """
    found = Settings()
    found.cpus = float(values.get("limits.cpus-per-gpu") or 0)
    found.memory = size(values.get("limits.memory-per-gpu") or "0")
    found.pids = int(values.get("limits.pids-per-gpu") or 0)
    found.shm = size(values.get("limits.shm-per-gpu") or "0")
    found.numa = values.get("limits.numa") or "prefer"
    found.unified = {name: str(value) for name, value in values.get("limits.unified", {}).items()}
    found.privileged = values.get("security.privileged") or "warn"
    for name in values.get("security.drop-capabilities", ()):
        found.drop_capabilities.append("CAP_" + name.upper().removeprefix("CAP_"))
    found.no_new_privileges = values.get("security.no-new-privileges") is True
    return found
