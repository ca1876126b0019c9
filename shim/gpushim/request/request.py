"""What a container asks for, whoever said it and how."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALL = "all"


class Request:
    """GPUs that a container asks for.

    devices: names as they were given (index, UUID, UUID prefix), each once and in their order, or
    [ALL]; empty for the driver's files without a GPU. capabilities: of the driver, sorted.
    sources: what was said -> where ("environment NVIDIA_VISIBLE_DEVICES=0,1"), for explain.
    """

    __slots__ = ("capabilities", "devices", "sources")

    def __init__(
        self, devices: list[str], capabilities: list[str], sources: dict[str, str]
    ) -> None:
        self.devices = devices
        self.capabilities = capabilities
        self.sources = sources

    def to_json(self) -> dict[str, Any]:
        return {
            "devices": self.devices,
            "capabilities": self.capabilities,
            "sources": self.sources,
        }
