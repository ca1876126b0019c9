"""What GPUs are doing, settable from outside while programs use the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .description import Gpu
from .state import Load, Running

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class LoadControl:
    """The part of FakeHost that says what its GPUs are doing."""

    root: Path
    gpus: list[Gpu]
    running: Running

    if TYPE_CHECKING:

        def _changing(self) -> AbstractContextManager[None]: ...

    @contextlib.contextmanager
    def _load(self, index: int) -> Iterator[Load]:
        with self._changing():
            yield self.running.loads.setdefault(self.gpus[index].uuid, Load())

    def set_memory_used(self, index: int, used: int, mig: str | None = None) -> None:
        """Bytes in use by programs, on the GPU or on the MIG device of that UUID.

        NVML's older memory call adds to these what the driver keeps for itself (`Gpu.reserved`).
        """
        with self._load(index) as load:
            if mig is None:
                load.used = used
            else:
                load.mig_used[mig] = used

    def set_lost(self, index: int, lost: bool = True) -> None:
        """A GPU that fell off the bus: all calls say that it is lost."""
        with self._load(index) as load:
            load.lost = lost

    def set_processes(
        self,
        index: int,
        processes: Iterable[tuple[int, int]],
        kind: str = "c",
        mig: str | None = None,
    ) -> None:
        """Programs on a GPU as (pid, bytes); kind is c (compute), g (graphics) or m (MPS client).

        Those of other kinds, and of other MIG devices, stay. Memory in use is not altered.
        """
        gi, ci = 0xFFFFFFFF, 0xFFFFFFFF
        for device in self.gpus[index].mig:
            if device.uuid == mig:
                gi, ci = device.gi, device.ci
        with self._load(index) as load:
            others = [p for p in load.processes if p[2] != kind or p[3:] != (gi, ci)]
            load.processes = others + [(pid, used, kind, gi, ci) for pid, used in processes]

    def set_utilization(self, index: int, gpu: int, memory: int = 0) -> None:
        """Percent of time in which the GPU, and its memory, was busy."""
        with self._load(index) as load:
            load.gpu_util, load.mem_util = gpu, memory

    def set_temperature(self, index: int, celsius: int) -> None:
        """What the GPU's sensor says."""
        with self._load(index) as load:
            load.temperature = celsius

    def set_power(self, index: int, milliwatts: int, energy_mj: int | None = None) -> None:
        """Power drawn, and the energy counter."""
        with self._load(index) as load:
            load.power_mw = milliwatts
            load.energy_mj = load.energy_mj if energy_mj is None else energy_mj

    def set_compute_mode(self, index: int, mode: int) -> None:
        """NVML_COMPUTEMODE_*: 0 default, 2 prohibited, 3 exclusive process."""
        with self._load(index) as load:
            load.compute_mode = mode

    def set_delay(self, seconds: float) -> None:
        """How long each call for a device takes."""
        with self._changing():
            self.running.delay_us = int(seconds * 1_000_000)

    def hang_nvml(self, hang: bool = True) -> None:
        """All calls wait until this is set to False."""
        with self._changing():
            self.running.hang = hang

    def memory_limits(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Limits that programs have set by NVML: (UUID, control group) to (soft, hard)."""
        limits: dict[tuple[str, str], tuple[int, int]] = {}
        path = self.root / "var/lib/fakehost/limits"
        for line in path.read_text().splitlines() if path.exists() else ():
            uuid, soft, hard, group = line.split(" ", 3)
            limits[uuid, group] = (int(soft), int(hard))
        return limits
