"""What a container asks for, whoever said it and how."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALL = "all"


class Request:
    """GPUs that a container asks for.

    devices: names of GPUs and MIG devices as they were given (index, UUID, UUID prefix, "0:1"),
    each once and in their order, or [ALL]; empty for the driver's files without a GPU, and where
    `count` says how many of any. driver: whether the NVIDIA driver is wanted at all; if not, there
    are only CDI devices. cdi: qualified CDI names of what is no GPU by itself. capabilities: of the
    driver, sorted. keys: gpushim's own keys that were said, but for gpus -> value as `keys.parse`
    gives it. requirements: (variable, expression) pairs of NVIDIA_REQUIRE_*. features: of "gds",
    "mofed", "gdrcopy", "nvswitch". imex_channels: numbers. mig_config and mig_monitor: whether the
    container may partition GPUs, or watch all instances. open: whether what is named is given
    although others may have it, too (else a lease is wanted). sources: what was said -> where
    ("environment NVIDIA_VISIBLE_DEVICES=0,1"), for explain; its keys are "devices", "capabilities",
    "cdi", those of `keys`, and names of other variables.
    """

    __slots__ = (
        "capabilities",
        "cdi",
        "count",
        "devices",
        "driver",
        "features",
        "imex_channels",
        "keys",
        "mig_config",
        "mig_monitor",
        "open",
        "requirements",
        "sources",
    )

    def __init__(
        self, devices: list[str], capabilities: list[str], sources: dict[str, str]
    ) -> None:
        self.devices = devices
        self.capabilities = capabilities
        self.sources = sources
        self.count: int | None = None
        self.driver = True
        self.cdi: list[str] = []
        self.keys: dict[str, Any] = {}
        self.requirements: list[tuple[str, str]] = []
        self.features: list[str] = []
        self.imex_channels: list[int] = []
        self.mig_config = False
        self.mig_monitor = False
        self.open = True

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the log, the decision record and `gpushimctl explain`."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return {**data, "requirements": [list(pair) for pair in self.requirements]}
