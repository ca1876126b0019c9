"""What the cgroups of this host can do: the one place of limits that looks at the machine.

Nothing is written: the low-level runtime makes a container's cgroup by what its spec says.
"""

from __future__ import annotations

import posix

from gpushim.allocate.cgroup_of import paths_of
from gpushim.host import procfiles
from gpushim.limits.numberlist import read_list

MOUNT = "/sys/fs/cgroup"
_SYSTEM = "/sys/devices/system"
# Which controllers of version 1 have other names in version 2.
_IN_VERSION_1 = {"io": "blkio"}


class Cgroups:
    """The cgroup hierarchy that the low-level runtime will use for one container.

    mount: where cgroups are mounted; cgroup: the spec's cgroupsPath; system: where sysfs has
    processors and nodes. What is asked is looked up then, and not before.
    """

    __slots__ = ("_mount", "_paths", "_system", "version")

    def __init__(self, cgroup: str = "", mount: str = MOUNT, system: str = _SYSTEM) -> None:
        self._mount = mount
        self._system = system
        # As runc tells them apart: a unified hierarchy beside those of version 1 is not used.
        self.version = 2 if procfiles.text(mount + "/cgroup.controllers") is not None else 1
        self._paths = paths_of(cgroup, posix.geteuid())

    def has(self, controller: str) -> bool:
        """Whether limits of a controller ("memory", by its name in version 2) can be set here."""
        if self.version == 1:
            name = _IN_VERSION_1.get(controller, controller)
            return posix.access(f"{self._mount}/{name}/cgroup.procs", posix.W_OK)
        for group in self._above():
            # Whoever may write there may hand on each controller to the groups within.
            if posix.access(group + "/cgroup.subtree_control", posix.W_OK):
                return controller in (procfiles.text(group + "/cgroup.controllers") or "").split()
        return False

    def missing(self, controller: str, what: str) -> str:
        """A sentence on what cannot be set, for want of a controller."""
        return (
            f"{what} is not applied: the cgroup controller '{controller}' is not available to "
            f"containers on this host (cgroup version {self.version})."
        )

    def has_file(self, name: str) -> bool:
        """Whether groups have a file: some are there by the kernel's build or boot options.

        The root has few files of its own, so one is looked for in the groups there are; where
        none has the controller yet, nobody can tell, and the answer is yes.
        """
        controller = name.partition(".")[0]
        top = self._mount
        if self.version == 1:
            top = f"{top}/{_IN_VERSION_1.get(controller, controller)}"
        seen = False
        for child in procfiles.names(top):
            files = procfiles.names(f"{top}/{child}")  # of most there are none: they are files
            if name in files:
                return True
            seen = seen or any(file.startswith(controller + ".") for file in files)
        return not seen

    def processors(self) -> set[int]:
        """The processors that a container here can be bound to."""
        return self._online("cpus", self._system + "/cpu/online")

    def memory_nodes(self) -> set[int]:
        """The NUMA nodes whose memory a container here can be bound to."""
        return self._online("mems", self._system + "/node/has_memory")

    def processors_allowed(self) -> float:
        """The processors' worth of time that the groups above allow; 0.0 for no bound.

        In version 1 the kernel refuses a group more than the one above it has (tg_cfs_schedulable_
        down in kernel/sched/core.c); in version 2 it does not, and no bound is told.
        """
        found = 0.0
        for group in self._above("cpu") if self.version == 1 else ():
            quota = (procfiles.text(group + "/cpu.cfs_quota_us") or "").strip()
            period = (procfiles.text(group + "/cpu.cfs_period_us") or "").strip()
            if quota.isdecimal() and period.isdecimal() and int(period):
                bound = int(quota) / int(period)
                found = min(found, bound) if found else bound
        return found

    def _online(self, what: str, otherwise: str) -> set[int]:
        """What the nearest group above has, which is none of those that the runtime makes."""
        name = f"cpuset.{what}" if self.version == 1 else f"cpuset.{what}.effective"
        texts = [procfiles.text(f"{group}/{name}") for group in self._above("cpuset")]
        given = [text for text in texts if text and text.strip()]
        try:
            return read_list(given[-1] if given else procfiles.text(otherwise) or "")
        except ValueError:
            return set()

    def _above(self, controller: str = "") -> list[str]:
        """The directories of the groups that the container's will lie in, from the root down.

        In version 2 a user who may not write at the root has a part that was handed to him, which
        is found by where this process is.
        """
        top = f"{self._mount}/{controller}" if self.version == 1 else self._mount
        paths = list(self._paths)
        if self.version == 2 and not posix.access(top + "/cgroup.subtree_control", posix.W_OK):
            paths = [_own_group() + "/a-group-within"]
        for path in paths:
            groups = [top]
            for part in path.strip("/").split("/")[:-1]:
                groups.append(f"{groups[-1]}/{part}")
            there = [group for group in groups if _is_there(group)]
            if len(there) > 1 or path == paths[-1]:
                return there
        return [top]


def _own_group() -> str:
    """The group of this process in the unified hierarchy, as this process sees it."""
    for line in (procfiles.text("/proc/self/cgroup") or "").split("\n"):
        if line.startswith("0::/"):
            return line[3:].rstrip("/")
    return ""


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
        return True
    except OSError:
        return False
