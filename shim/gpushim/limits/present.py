"""What a spec says of limits already: what the user set stays as it is.

Each limit is called by its file in cgroup version 2 ("memory.max"), whichever version the host
has and however it was said: by a classic member of linux.resources or by one of
linux.resources.unified (OCI runtime specification, config-linux.md, "Control groups").
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.oci.bundle import Bundle

SHM = "/dev/shm"

# Limit -> the classic members that say it. Zero, an empty text and an empty list say nothing:
# engines write them where the user did not say anything.
CLASSIC = {
    "cpu.max": ("cpu", ("quota",)),
    "cpu.weight": ("cpu", ("shares",)),
    "cpu.idle": ("cpu", ("idle",)),
    "cpu.max.burst": ("cpu", ("burst",)),
    "cpuset.cpus": ("cpu", ("cpus",)),
    "cpuset.mems": ("cpu", ("mems",)),
    "memory.max": ("memory", ("limit",)),
    "memory.low": ("memory", ("reservation",)),
    "memory.swap.max": ("memory", ("swap",)),
    "pids.max": ("pids", ("limit",)),
    "io.weight": ("blockIO", ("weight", "weightDevice")),
    "io.max": (
        "blockIO",
        (
            "throttleReadBpsDevice",
            "throttleWriteBpsDevice",
            "throttleReadIOPSDevice",
            "throttleWriteIOPSDevice",
        ),
    ),
}
# Files for the same limit.
_SAME = {"cpu.weight.nice": "cpu.weight", "io.bfq.weight": "io.weight"}
# How Podman marks its containers, and the limits of processes that it has set by itself over the
# years where the user did not (containers.conf, pids_limit).
_MANAGER = ("io.container.manager", "libpod")
_PODMAN_PIDS = (2048, 4096)


class Present:
    """What is in one container's spec.

    said: the limits that the user set; unified: those of them in linux.resources.unified, by the
    names there; resources: linux.resources; shm: the mount at /dev/shm, None without one;
    memory_policy: whether there is a linux.memoryPolicy; cgroup: linux.cgroupsPath, or "";
    privileged: whether the container may use every device.
    """

    __slots__ = (
        "cgroup",
        "memory_policy",
        "privileged",
        "resources",
        "said",
        "shm",
        "unified",
    )

    def __init__(self, resources: dict[str, Any], podman: bool = False) -> None:
        self.resources = resources
        self.unified = _object(resources.get("unified"))
        self.said = _said(resources, self.unified, podman)
        self.shm: dict[str, Any] | None = None
        self.memory_policy = False
        self.cgroup = ""
        self.privileged = False

    def number(self, section: str, member: str) -> int:
        """A number in linux.resources; 0 where there is none."""
        value = _object(self.resources.get(section)).get(member)
        return value if type(value) is int else 0

    def text(self, section: str, member: str) -> str:
        """A text in linux.resources; "" where there is none."""
        value = _object(self.resources.get(section)).get(member)
        return value if isinstance(value, str) else ""

    @property
    def oom_killer_is_off(self) -> bool:
        return _object(self.resources.get("memory")).get("disableOOMKiller") is True


def present_in(bundle: Bundle, privileged: bool = False) -> Present:
    """What the spec of a bundle says; odd values count as absent, as the runtime judges them.

    privileged: see `Present`.
    """
    annotations = _object(bundle.section("annotations"))
    podman = annotations.get(_MANAGER[0]) == _MANAGER[1]
    found = Present(_object(bundle.section("linux", "resources")), podman)
    for mount in bundle.items("mounts"):
        if isinstance(mount, dict) and str(mount.get("destination")).rstrip("/") == SHM:
            found.shm = mount  # of several, the last is seen
    found.memory_policy = bundle.section("linux", "memoryPolicy") is not None
    cgroup = bundle.section("linux", "cgroupsPath")
    found.cgroup = cgroup if isinstance(cgroup, str) else ""
    found.privileged = privileged
    return found


def limit_of(file: str) -> str:
    """The limit that a file of cgroup version 2 is for: some have two files."""
    return _SAME.get(file, file)


def _said(resources: dict[str, Any], unified: dict[str, Any], podman: bool) -> set[str]:
    said = {limit_of(name) for name in unified}
    for limit, (section, members) in CLASSIC.items():
        values = _object(resources.get(section))
        if any(values.get(member) for member in members):
            said.add(limit)
    pids = _object(resources.get("pids")).get("limit")
    # No limit at all is what engines write for one that was not asked for.
    nothing = isinstance(pids, int) and (pids < 0 or (podman and pids in _PODMAN_PIDS))
    if nothing and "pids.max" not in unified:
        said.discard("pids.max")
    return said


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
