"""The few calls of NVML that allocation needs, by ctypes; for a process of their own alone.

Structures and values are those of nvml.h (as nvidia-ml-py has them, which a test compares): any
call may hang in a driver that is ill, and a library that does not fit may crash.
"""

from __future__ import annotations

import ctypes

from gpushim.host import procfiles
from gpushim.host.deviceuse import DeviceUse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from gpushim.host.deviceuse import Process

    Say = Callable[[dict[str, Any]], None]

_OK, _INSUFFICIENT_SIZE = 0, 7
# What NVML says of a GPU that is of no use until somebody resets it.
_TROUBLE = {15: "lost", 16: "in need of a reset"}
_NOT_AVAILABLE = (1 << 64) - 1
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_LISTS = (
    ("c", "nvmlDeviceGetComputeRunningProcesses"),
    ("g", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("m", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# Driver 535.54.03 took the entries of its lists for larger than its header says; the buffer has to
# hold them nevertheless.
_LARGEST_ENTRY = 64
_MOST_PIDS = 1 << 22  # the kernel's limit (PID_MAX_LIMIT)


class Memory(ctypes.Structure):
    """nvmlMemory_t"""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t, which tells what the driver keeps for itself apart from what is used."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


MEMORY_V2 = ctypes.sizeof(MemoryV2) | 2 << 24


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which the third version of the calls has as well."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Utilization(ctypes.Structure):
    """nvmlUtilization_t"""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class InTrouble(Exception):
    """The GPU is lost or wants a reset; the text says which."""


def tell(library: str, targets: Sequence[tuple[str, str]], say: Say) -> None:
    """Says what each target is used for, as soon as it is known.

    library: absolute path of libnvidia-ml.so.1; targets: UUID and bus id of each, without one for a
    MIG device. First comes {"ready": true} or {"error": words}, then a line for each target, in
    order: {"use": DeviceUse as JSON} or {"failed": words}.
    """
    # Whoever asked may be killed, and nobody else waits for this.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    try:
        nvml = ctypes.CDLL(library)
        code = nvml.nvmlInit_v2()
    except (OSError, AttributeError):
        say({"error": f"{library} can't be loaded"})
        return
    if code != _OK:
        say({"error": f"NVML says: {_words(nvml, code)}"})
        return
    say({"ready": True})
    for uuid, bus_id in targets:
        say(_target(nvml, uuid, bus_id))


def _target(nvml: Any, uuid: str, bus_id: str) -> dict[str, Any]:
    handle = ctypes.c_void_p()
    found = DeviceUse()
    try:
        if bus_id:
            code = nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(handle))
        else:
            code = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        if not _is_ok(code):
            return {"failed": _words(nvml, code)}
        _add_memory(nvml, handle, found)
        _add_load(nvml, handle, found)
        found.processes = _processes(nvml, handle, found.total)
    except InTrouble as trouble:
        found.trouble = str(trouble)
    return {"use": found.to_json()}


def _is_ok(code: int) -> bool:
    """Whether NVML answered; raises InTrouble for a GPU that is beyond answers."""
    if code in _TROUBLE:
        raise InTrouble(_TROUBLE[code])
    return code == _OK


def _words(nvml: Any, code: int) -> str:
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    return (nvml.nvmlErrorString(code) or b"").decode("utf-8", "replace") or f"error {code}"


def _add_memory(nvml: Any, handle: Any, found: DeviceUse) -> None:
    """Drivers before 510 have only the first call, and count nothing of their own in it."""
    memory = MemoryV2(version=MEMORY_V2)
    function = getattr(nvml, "nvmlDeviceGetMemoryInfo_v2", None)
    if function is not None and _is_ok(function(handle, ctypes.byref(memory))):
        found.total, found.reserved, found.used = memory.total, memory.reserved, memory.used
        return
    older = Memory()
    if _is_ok(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(older))):
        found.total, found.used = older.total, older.used


def _add_load(nvml: Any, handle: Any, found: DeviceUse) -> None:
    rates = Utilization()
    if _is_ok(nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates))):
        found.busy = min(rates.gpu, 100)
    active = ctypes.c_int()
    if _is_ok(nvml.nvmlDeviceGetDisplayActive(handle, ctypes.byref(active))):
        found.display = bool(active.value)


def _processes(nvml: Any, handle: Any, total: int | None) -> list[Process] | None:
    """All processes on a device, each once; None if what NVML says of them can't be."""
    merged: dict[int, Process] = {}
    for kind, name in _LISTS:
        entries = _believable(nvml, name, handle, total)
        if entries is None:
            return None
        for pid, memory in entries:
            _, before, kinds = merged.get(pid, (pid, None, ""))
            # One that computes and draws is in both lists, with the same amount in each.
            known = [amount for amount in (memory, before) if amount is not None]
            merged[pid] = (pid, max(known, default=None), kinds + kind)
    return list(merged.values())


def _believable(
    nvml: Any, name: str, handle: Any, total: int | None
) -> list[tuple[int, int | None]] | None:
    """One of NVML's lists, from the latest call whose answer is possible; None if none is.

    Nothing at all where the driver has no such list.
    """
    was_odd = False
    for version in ("_v3", "_v2"):
        function = getattr(nvml, name + version, None)
        entries = _listed(function, handle) if function is not None else None
        if entries is None:
            continue
        if all(_is_possible(pid, memory, total) for pid, memory in entries):
            return entries
        was_odd = True
    return None if was_odd else []


def _is_possible(pid: int, memory: int | None, total: int | None) -> bool:
    return 0 < pid <= _most_pids() and (memory is None or total is None or memory <= total)


def _most_pids() -> int:
    text = (procfiles.text("/proc/sys/kernel/pid_max") or "").strip()
    return int(text) if text.isdecimal() else _MOST_PIDS


def _listed(function: Any, handle: Any) -> list[tuple[int, int | None]] | None:
    """pid and bytes of each entry; None if the driver has no answer."""
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    for _ in range(3):
        if code != _INSUFFICIENT_SIZE:
            break
        # More may have come meanwhile.
        count.value = count.value * 2 + 8
        room = ctypes.create_string_buffer(count.value * _LARGEST_ENTRY)
        code = function(handle, ctypes.byref(count), room)
        if code == _OK:
            entries = (ProcessInfo * count.value).from_buffer(room)
            return [
                (entry.pid, None if entry.used == _NOT_AVAILABLE else entry.used)
                for entry in entries
            ]
    return [] if _is_ok(code) else None
