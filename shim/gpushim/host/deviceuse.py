"""What devices are used for at a moment: memory, load and processes, as NVML tells.

The exporter keeps its latest finding in /run/gpushim/use.json, {"format": 1, "stamp": seconds of
CLOCK_BOOTTIME, "devices": {UUID: ...}}; a create that finds none which is fresh asks by itself (see
`nvml_quick`).
"""

from __future__ import annotations

import time

from gpushim.host import statefiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpushim.places import Places

    # pid, bytes (None where NVML does not tell), and what for: "c" compute, "g" graphics, "m" MPS.
    Process = tuple[int, int | None, str]

# What is older says too little of the present.
FRESH_SECONDS = 2.0


class DeviceUse:
    """What one GPU or MIG device is used for.

    total, reserved, used: bytes; reserved is what the driver keeps for itself, and not a part of
    used; None where NVML does not tell. busy: utilisation in percent, None where there is none, as
    on MIG devices; display: whether a display is drawn by it; processes: each once, None where
    NVML's list of them can't be believed; trouble: "" or what is wrong with it, of a GPU that NVML
    calls lost or in need of a reset.
    """

    __slots__ = ("busy", "display", "processes", "reserved", "total", "trouble", "used")

    def __init__(self) -> None:
        self.total: int | None = None
        self.reserved: int | None = None
        self.used: int | None = None
        self.busy: int | None = None
        self.display = False
        self.processes: list[Process] | None = []
        self.trouble = ""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DeviceUse:
        """What `to_json` made `data` of; KeyError, TypeError or ValueError for anything else."""
        made = cls()
        for name in cls.__slots__:
            setattr(made, name, data[name])
        if made.processes is not None:
            made.processes = [(pid, memory, kinds) for pid, memory, kinds in data["processes"]]
        return made


class Reading:
    """What several devices are used for.

    stamp: when, in seconds of CLOCK_BOOTTIME; devices: by UUID, those that NVML told of; problems:
    sentences on what it did not tell; silent: UUIDs of devices at which it hung or failed.
    """

    __slots__ = ("devices", "problems", "silent", "stamp")

    def __init__(self, stamp: float) -> None:
        self.stamp = stamp
        self.devices: dict[str, DeviceUse] = {}
        self.problems: list[str] = []
        self.silent: list[str] = []

    def reserve(self) -> int:
        """The most that the driver keeps of any of them; 0 where nobody knows."""
        return max((each.reserved or 0 for each in self.devices.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        """As use.json has it."""
        devices = {uuid: each.to_json() for uuid, each in self.devices.items()}
        return {"format": statefiles.FORMAT, "stamp": self.stamp, "devices": devices}


def recent(places: Places, uuids: Iterable[str]) -> Reading | None:
    """The exporter's finding, if it is fresh and tells of all these devices.

    Raises GpushimError if a newer version of gpushim wrote it.
    """
    data = statefiles.read(places.use)
    try:
        if data is None or not 0 <= now() - data["stamp"] <= FRESH_SECONDS:
            return None
        found = Reading(float(data["stamp"]))
        for uuid in uuids:
            found.devices[uuid] = DeviceUse.from_json(data["devices"][uuid])
    except (KeyError, TypeError, ValueError):
        return None
    return found


def now() -> float:
    """Seconds since boot, those of suspension included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
