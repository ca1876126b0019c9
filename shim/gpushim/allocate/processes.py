"""Processes on this machine as they matter to allocation: who they are, and in whose container."""

from __future__ import annotations

import posix

from gpushim.allocate import attribution, cgroup_of
from gpushim.allocate.liveness import traces
from gpushim.host import procfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.lease import Lease
    from gpushim.allocate.liveness import Roots

# The first PID namespace of a machine (Linux, include/linux/proc_ns.h, PROC_PID_INIT_INO).
_FIRST_NAMESPACE = "pid:[4026531836]"


class Process:
    """A process: its name as the kernel has it, its cgroups, and when it began (clock ticks since
    boot; 0 for one that this user can't see).
    """

    __slots__ = ("cgroups", "name", "pid", "started")

    def __init__(self, pid: int, name: str, cgroups: list[str], started: int) -> None:
        self.pid = pid
        self.name = name
        self.cgroups = cgroups
        self.started = started


class Processes:
    """What there is to know of processes, each looked up once.

    stamp: when their numbers were true, in seconds of CLOCK_BOOTTIME.
    """

    __slots__ = ("_found", "_roots", "_stamp", "_traces")

    def __init__(self, roots: Roots, stamp: float) -> None:
        self._roots = roots
        self._stamp = stamp
        self._found: dict[int, Process | None] = {}
        self._traces: dict[int, tuple[int, list[str]]] = {}

    def get(self, pid: int) -> Process | None:
        """The process that had this number then; None if it has ended.

        Numbers of another PID namespace, and processes that are hidden from this user, are nobody
        that is known: a process without a name.
        """
        if pid not in self._found:
            self._found[pid] = self._look(pid)
        return self._found[pid]

    def _look(self, pid: int) -> Process | None:
        base = f"{self._roots.proc}/{pid}"
        name, _, rest = (procfiles.text(f"{base}/stat") or "").rpartition(")")
        fields = rest.split()
        if len(fields) < 20:
            return None if self._sees_all() else Process(pid, "", [], 0)
        started = int(fields[19])
        # One that began later has only got the number. The kernel's ticks are coarse.
        is_later = started - 1 > self._stamp * posix.sysconf("SC_CLK_TCK")
        if is_later or (fields[0] in "ZXx" and int(fields[17]) < 2):
            return None
        cgroups = attribution.paths(procfiles.text(f"{base}/cgroup") or "")
        return Process(pid, name.partition("(")[2], cgroups, started)

    def _sees_all(self) -> bool:
        """Whether what is not in proc is not there."""
        seen = procfiles.text(f"{self._roots.proc}/1/stat") is not None
        return seen and self._namespace("self") == _FIRST_NAMESPACE

    def _namespace(self, pid: int | str) -> str:
        try:
            return posix.readlink(f"{self._roots.proc}/{pid}/ns/pid")
        except OSError:
            return ""

    def is_in(self, process: Process, lease: Lease) -> bool:
        """Whether a process is in a lease's container, where its cgroup does not have its name.

        By the cgroup that the low-level runtime made, or by the PID namespace.
        """
        if id(lease) not in self._traces:
            self._traces[id(lease)] = traces(lease, self._roots)
        init, directories = self._traces[id(lease)]
        mount = self._roots.cgroup
        for directory in directories:
            # Another cgroup may be shared, and what was in it before the container is not of it.
            own = cgroup_of.has_name(directory, lease.id) or process.started >= lease.creator[1]
            if own and any(_is_within(path, directory, mount) for path in process.cgroups):
                return True
        if not init:
            return False
        namespace = self._namespace(init)
        return namespace not in ("", self._namespace("self")) and (
            namespace == self._namespace(process.pid)
        )


def _is_within(path: str, directory: str, mount: str) -> bool:
    """Whether a path in some hierarchy of cgroups is in a directory, or that itself.

    The hierarchy's own name comes first in the directory with version 1.
    """
    unified = directory[len(mount) :]
    classic = "/" + unified.lstrip("/").partition("/")[2]
    return any(base != "/" and f"{path}/".startswith(f"{base}/") for base in (unified, classic))
