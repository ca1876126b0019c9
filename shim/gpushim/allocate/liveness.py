"""Whether the container of a lease lives, or is being made.

It does while its creator runs, or the low-level runtime's state names an init that runs, or its
cgroup has processes: those of a container without a PID namespace of its own outlive its init. A
state directory by itself means nothing, since engines leave some for ever.
"""

from __future__ import annotations

import errno
import posix
import time

from gpushim.allocate import cgroup_of
from gpushim.host import procfiles
from gpushim.oci.files import read_small
from gpushim.oci.jsontext import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.allocate.lease import Lease
    from gpushim.allocate.ticket import Ticket

# runc's state holds its configuration with the whole environment, which has no limit.
_LARGEST_STATE = 16 << 20
# Family -> file in the container's state directory, its members for pid and start time of init
# (runc: libcontainer/container_linux.go, State; crun: src/libcrun/status.c).
_STATE = {
    "runc": ("state.json", "init_process_pid", "init_process_start"),
    "crun": ("status", "pid", "process-start-time"),
}
# ioctl_ns(2)
_NS_GET_PARENT = 0xB702
_NS_GET_OWNER_UID = 0xB704
_DEEPEST_NAMESPACE = 32  # the kernel's limit of nested user namespaces
# For how long GPUs may be kept for a container without a process that waits for it.
LONGEST_RESERVATION = 24 * 3600


class Roots:
    """Where the kernel shows processes and cgroups; other places than its own are for tests."""

    __slots__ = ("_boot", "cgroup", "proc")

    def __init__(self, proc: str = "/proc", cgroup: str = "/sys/fs/cgroup") -> None:
        self.proc = proc
        self.cgroup = cgroup
        self._boot = ""

    @property
    def boot(self) -> str:
        """What tells this boot from others, as leases have it."""
        self._boot = self._boot or procfiles.text(f"{self.proc}/sys/kernel/random/boot_id") or ""
        return self._boot


def lives(lease: Lease, roots: Roots) -> bool:
    """Whether the lease still stands for a container; where that can't be seen, it does.

    The machine's root, who can see everything, believes another user's lease only for processes
    that are that user's. Others may be unable to see root's state, and then go by the cgroup.
    """
    if lease.boot != roots.boot:
        return False
    owner = lease.owner if lease.owner != 0 and is_machine_root(roots) else None
    if _is_running(roots, *lease.creator, owner):
        return True
    if lease.expires:
        return _is_reserved(lease, roots, owner)
    state, is_hidden = _state(lease)
    _, pid, started = _STATE.get(lease.family, _STATE["runc"])
    if _is_running(roots, _number(state.get(pid)), _number(state.get(started)), owner):
        return True
    populated = _has_processes(lease, state, roots, owner)
    if populated is None:
        populated = is_hidden and _may_run(lease, roots)
    return populated or (lease.owner != posix.geteuid() and _hides_processes(roots))


def _is_reserved(lease: Lease, roots: Roots, owner: int | None) -> bool:
    """Whether GPUs are kept for a ticket whose client has ended, or has become another user's.

    The client may have become sudo(8), a process of root's: its command line then has the ticket
    in it, which only who started it can have put there.
    """
    left = lease.expires - time.clock_gettime(time.CLOCK_BOOTTIME)
    if 0 < left <= LONGEST_RESERVATION:
        return True
    if owner is not None and _is_running(roots, *lease.creator, None):
        words = procfiles.text(f"{roots.proc}/{lease.creator[0]}/cmdline") or ""
        return bool(lease.ticket) and lease.ticket in words
    return lease.owner != posix.geteuid() and _hides_processes(roots)


def client_lives(ticket: Ticket, roots: Roots) -> bool:
    """Whether the process that waits with a ticket is there."""
    if ticket.boot != roots.boot:
        return False
    owner = ticket.owner if ticket.owner != 0 and is_machine_root(roots) else None
    if _is_running(roots, *ticket.client, owner):
        return True
    return ticket.owner != posix.geteuid() and _hides_processes(roots)


def client_waits(ticket: Ticket, roots: Roots) -> bool:
    """Whether it is there and not stopped (by Ctrl-Z, say): one that is holds nobody up."""
    return client_lives(ticket, roots) and _stat_fields(roots, ticket.client[0])[:1] not in (
        ["T"],
        ["t"],
    )


def is_running(pid: int, started: int, roots: Roots) -> bool:
    """Whether the process of this number that began at `started` (clock ticks since boot) runs."""
    return _is_running(roots, pid, started, None)


def traces(lease: Lease, roots: Roots) -> tuple[int, list[str]]:
    """By what a container's processes are known: the pid of its init, 0 if its runtime does not
    tell, and the directories of its cgroup, one for each hierarchy.
    """
    state, _ = _state(lease)
    pid, _ = _STATE.get(lease.family, _STATE["runc"])[1:]
    return _number(state.get(pid)), cgroup_of.directories(lease, state, roots.cgroup)


def _is_running(roots: Roots, pid: int, started: int, owner: int | None) -> bool:
    if pid <= 0 or started <= 0 or _start_time(roots, pid) != started:
        return False
    return owner is None or _belongs_to(roots, pid, owner)


def _start_time(roots: Roots, pid: int) -> int:
    """When a process that runs began, in clock ticks since boot; 0 if it has ended.

    Fields 3, 20 and 22 of proc(5): a zombie has ended, unless only its first thread has.
    """
    fields = _stat_fields(roots, pid)
    try:
        if fields[0] in "ZXx" and int(fields[17]) < 2:
            return 0
        return int(fields[19])
    except (ValueError, IndexError):
        return 0


def _stat_fields(roots: Roots, pid: int) -> list[str]:
    """What proc(5) tells of a process from its state, field 3, onwards."""
    return (procfiles.text(f"{roots.proc}/{pid}/stat") or "").rpartition(")")[2].split()


def _state(lease: Lease) -> tuple[dict[str, Any], bool]:
    """What the low-level runtime says of the container, {} if nothing; whether it is hidden."""
    file = _STATE.get(lease.family, _STATE["runc"])[0]
    try:
        text = read_small(f"{lease.state_root}/{lease.id}/{file}", _LARGEST_STATE)
        data = loads(text.decode("utf-8", "surrogateescape"))
    except OSError as error:
        return {}, error.errno in (errno.EACCES, errno.EPERM)
    except ValueError:
        return {}, False
    return (data, False) if isinstance(data, dict) else ({}, False)


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def _has_processes(
    lease: Lease, state: dict[str, Any], roots: Roots, owner: int | None
) -> bool | None:
    """Whether processes of the container are in its cgroup; None if that is not known.

    Rootless runtimes go on without one where they may make none.
    """
    paths = cgroup_of.directories(lease, state, roots.cgroup)
    if not paths or (lease.owner and not any(map(cgroup_of.is_there, paths))):
        return None
    for path in paths:
        # A cgroup of the container's name is nobody else's. Another may be shared, and what was in
        # it before the container is not of it.
        first = 1 if cgroup_of.has_name(path, lease.id) else lease.creator[1]
        for pid in cgroup_of.processes(path):
            if _start_time(roots, pid) >= first and (
                owner is None or _belongs_to(roots, pid, owner)
            ):
                return True
    return False


def _may_run(lease: Lease, roots: Roots) -> bool:
    """Whether any process may be of a user's container about which nothing else can be seen.

    Its processes began after its creator, and are neither root's, who has no place in a user's
    namespace, nor this user's.
    """
    if lease.owner == 0:
        return True
    known = (["0"], [str(posix.geteuid())])
    return any(
        _start_time(roots, int(name)) >= lease.creator[1]
        and _status_words(roots, int(name), "Uid:")[:1] not in known
        for name in procfiles.names(roots.proc)
        if name.isascii() and name.isdigit()
    )


def is_machine_root(roots: Roots) -> bool:
    """Whether this process is root, and not only within a user namespace."""
    if posix.geteuid() != 0:
        return False
    return (procfiles.text(f"{roots.proc}/self/uid_map") or "").split() == ["0", "0", "4294967295"]


def _hides_processes(roots: Roots) -> bool:
    """Whether this user sees only processes of its own (proc(5), hidepid)."""
    return procfiles.text(f"{roots.proc}/1/stat") is None


def _belongs_to(roots: Roots, pid: int, uid: int) -> bool:
    """Whether a process is a user's: by its real user, or by who made its user namespace."""
    if _status_words(roots, pid, "Uid:")[:1] == [str(uid)]:
        return True
    try:
        namespace = posix.open(f"{roots.proc}/{pid}/ns/user", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return False
    return uid in _namespace_owners(namespace)


def _status_words(roots: Roots, pid: int, name: str) -> list[str]:
    """What proc(5) says behind a name in a process's status; [] if it says nothing."""
    for line in (procfiles.text(f"{roots.proc}/{pid}/status") or "").split("\n"):
        if line.startswith(name):
            return line.split()[1:]
    return []


def _namespace_owners(namespace: int) -> list[int]:
    """Who made a user namespace and those around it, but for the machine's own; closes it."""
    import fcntl

    owners: list[int] = []
    try:
        for _ in range(_DEEPEST_NAMESPACE):
            owner = int.from_bytes(fcntl.ioctl(namespace, _NS_GET_OWNER_UID, bytes(4)), "little")
            outer = fcntl.ioctl(namespace, _NS_GET_PARENT)
            owners.append(owner)
            posix.close(namespace)
            namespace = outer
    except OSError:
        pass  # there is none around it
    finally:
        posix.close(namespace)
    return owners
