"""What the cgroup of a container allows it and what it uses, for ps and explain.

Version 1 is read by cgroupspy. That knows no version 2 (its tree gives such groups no controller
at all) and not the pids controller, so the classes for these are ours, on its file descriptors.
Its trees are not used: they read every group of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cgroupspy.controllers import (
    Controller,
    CpuAcctController,
    CpuController,
    CpuSetController,
    MemoryController,
)
from cgroupspy.interfaces import CommaDashSetFile, DictFile, IntegerFile, ListFile

from gpushim.host import procfiles

MOUNT = "/sys/fs/cgroup"
# No limit of memory reads as the largest multiple of a page in version 1 (mm/page_counter.c).
_UNLIMITED = 1 << 62
_NANOSECONDS = 1_000_000_000
_MICROSECONDS = 1_000_000


class _LimitFile(IntegerFile):  # type: ignore[misc]
    """A number, or None for "max", which cgroupspy's own does not read."""

    def sanitize_get(self, value: str) -> Any:
        return None if value.strip() == "max" else super().sanitize_get(value)


class _Pids(Controller):  # type: ignore[misc]
    """The pids controller, the same in both versions."""

    current = IntegerFile("pids.current", readonly=True)
    max = _LimitFile("pids.max")


class _Unified(Controller):  # type: ignore[misc]
    """A group of version 2 (Linux, Documentation/admin-guide/cgroup-v2.rst)."""

    memory_current = IntegerFile("memory.current", readonly=True)
    memory_max = _LimitFile("memory.max")
    cpu_max = ListFile("cpu.max")
    cpu_stat = DictFile("cpu.stat", readonly=True)
    cpus = CommaDashSetFile("cpuset.cpus.effective", readonly=True)
    mems = CommaDashSetFile("cpuset.mems.effective", readonly=True)


class _Group:
    """What cgroupspy's controllers want of the node that they belong to."""

    def __init__(self, directory: str) -> None:
        self.full_path = directory.encode("utf-8", "surrogateescape")


class Reading:
    """One container's cgroup; None for what is not limited or cannot be read.

    memory, memory_limit: bytes; processors: how many it may use at once, by time; cpu_seconds:
    used in all; pids, pids_limit: tasks; cpus, memory_nodes: numbers of those it may use.
    """

    __slots__ = (
        "cpu_seconds",
        "cpus",
        "memory",
        "memory_limit",
        "memory_nodes",
        "pids",
        "pids_limit",
        "processors",
    )

    def __init__(self) -> None:
        self.memory: int | None = None
        self.memory_limit: int | None = None
        self.processors: float | None = None
        self.cpu_seconds: float | None = None
        self.pids: int | None = None
        self.pids_limit: int | None = None
        self.cpus: list[int] | None = None
        self.memory_nodes: list[int] | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def read(directories: Sequence[str], mount: str = MOUNT) -> Reading:
    """What the group says that has these directories, one for each hierarchy of version 1.

    mount: where cgroups are mounted. A group that is gone has nothing to say.
    """
    if procfiles.text(mount + "/cgroup.controllers") is not None:
        return _read_unified(directories[0]) if directories else Reading()
    found = Reading()
    for directory in directories:
        controllers = directory[len(mount) + 1 :].partition("/")[0].split(",")
        for name in controllers:
            reader = _READERS.get(name)
            if reader is not None:
                reader(found, _Group(directory))
    return found


def of_process(pid: int, mount: str = MOUNT, proc: str = "/proc") -> list[str]:
    """The directories of the group that a process is in, as `read` wants them.

    They are as this process sees them: of a group outside its own part of the hierarchy the path
    begins with /.. (cgroup_namespaces(7)), and there is no directory here.
    """
    unified = procfiles.text(mount + "/cgroup.controllers") is not None
    found = []
    for line in (procfiles.text(f"{proc}/{pid}/cgroup") or "").split("\n"):
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in path.split("/"):
            continue
        if unified and number == "0":
            return [mount + path.rstrip("/")]
        if not unified and names and not names.startswith("name="):
            found.append(f"{mount}/{names}{path.rstrip('/')}")
    return found


def _read_unified(directory: str) -> Reading:
    found = Reading()
    group = _Unified(_Group(directory))
    found.memory = _value(group, "memory_current")
    found.memory_limit = _value(group, "memory_max")
    quota = _value(group, "cpu_max") or ["max"]
    if len(quota) == 2 and all(part.isdecimal() for part in quota) and int(quota[1]):
        found.processors = int(quota[0]) / int(quota[1])
    used = (_value(group, "cpu_stat") or {}).get("usage_usec")
    found.cpu_seconds = None if used is None else used / _MICROSECONDS
    _read_pids(found, _Group(directory))
    found.cpus = _numbers(_value(group, "cpus"))
    found.memory_nodes = _numbers(_value(group, "mems"))
    return found


def _read_memory(found: Reading, group: _Group) -> None:
    memory = MemoryController(group)
    found.memory = _value(memory, "usage_in_bytes")
    limit = _value(memory, "limit_in_bytes")
    found.memory_limit = None if limit is None or limit >= _UNLIMITED else limit


def _read_cpu(found: Reading, group: _Group) -> None:
    cpu = CpuController(group)
    quota, period = _value(cpu, "cfs_quota_us"), _value(cpu, "cfs_period_us")
    found.processors = quota / period if quota and period else None


def _read_cpuacct(found: Reading, group: _Group) -> None:
    used = _value(CpuAcctController(group), "usage")
    found.cpu_seconds = None if used is None else used / _NANOSECONDS


def _read_cpuset(found: Reading, group: _Group) -> None:
    cpuset = CpuSetController(group)
    found.cpus = _numbers(_value(cpuset, "cpus"))
    found.memory_nodes = _numbers(_value(cpuset, "mems"))


def _read_pids(found: Reading, group: _Group) -> None:
    pids = _Pids(group)
    found.pids, found.pids_limit = _value(pids, "current"), _value(pids, "max")


_READERS = {
    "memory": _read_memory,
    "cpu": _read_cpu,
    "cpuacct": _read_cpuacct,
    "cpuset": _read_cpuset,
    "pids": _read_pids,
}


def _value(controller: Any, name: str) -> Any:
    """One file's value; None where it is not there or holds something else."""
    try:
        return getattr(controller, name)
    except (OSError, ValueError):
        return None


def _numbers(found: set[int] | None) -> list[int] | None:
    return sorted(found) if found else None
