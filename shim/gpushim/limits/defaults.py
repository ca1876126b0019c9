"""What a container gets for each GPU that it has, where its user set nothing.

It is put into the classic members of linux.resources, which the low-level runtime turns into the
host's version of cgroups (OCI runtime specification, config-linux.md, "Control groups").
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.limits.cgroups import Cgroups
    from gpushim.limits.limits import Limits
    from gpushim.limits.present import Present
    from gpushim.limits.settings import Settings

# Docker's and the kernel's own default (kernel/sched/fair.c), in microseconds.
_PERIOD = 100_000
# The kernel takes no less (min_cfs_quota_period).
_LEAST_QUOTA = 1000
# However small a share is, the low-level runtime itself starts in the group: its init is a program
# of 10 MiB with a dozen threads.
LEAST_MEMORY = 64 << 20
LEAST_PIDS = 32
_PAGE = 4096


def add_defaults(
    limits: Limits, present: Present, settings: Settings, cgroups: Cgroups, gpus: float
) -> None:
    """Adds the limits for each GPU, times how many of them the container has (also parts)."""
    for limit, key, each, add in (
        ("cpu.max", "cpus-per-gpu", settings.cpus, _add_cpus),
        ("memory.max", "memory-per-gpu", settings.memory, _add_memory),
        ("pids.max", "pids-per-gpu", settings.pids, _add_pids),
    ):
        if not each or limit in present.said:
            continue  # the user's own is what this is the default for
        controller = limit.partition(".")[0]
        if limit in limits.said:
            limits.notes.append(f"limits.{key} is not applied: limits.unified decides {limit}.")
        elif not cgroups.has(controller):
            limits.warnings.append(cgroups.missing(controller, f"limits.{key}"))
        else:
            add(limits, present, each * gpus)


def _add_cpus(limits: Limits, present: Present, wanted: float) -> None:
    period = max(present.number("cpu", "period"), 0) or _PERIOD
    quota = max(_LEAST_QUOTA, round(wanted * period))
    limits.edits.resources.setdefault("cpu", {}).update({"quota": quota, "period": period})


def _add_memory(limits: Limits, present: Present, wanted: float) -> None:
    if present.oom_killer_is_off:
        limits.warnings.append(
            "limits.memory-per-gpu is not applied: the container has no OOM killer, so at a limit "
            "it would stand still for good."
        )
        return
    limit = max(LEAST_MEMORY, int(wanted) // _PAGE * _PAGE)
    limits.edits.resources.setdefault("memory", {})["limit"] = limit


def _add_pids(limits: Limits, present: Present, wanted: float) -> None:
    # Rounded up, but not for a fraction of bytes that makes 25.000000001 of a quarter of 100.
    whole = -int(-round(wanted, 6) // 1)
    limits.edits.resources.setdefault("pids", {})["limit"] = max(LEAST_PIDS, whole)


def fit(limits: Limits, present: Present, cgroups: Cgroups) -> None:
    """Makes new limits such that they go with the user's own and with those of the groups above.

    The kernel refuses others, and with them the container.
    """
    memory = limits.edits.resources.get("memory", {})
    # OCI's swap is memory and swap together, of which memory alone cannot be more; -1 and absent
    # are no limit, and stay.
    swap = present.number("memory", "swap")
    if 0 < swap < memory.get("limit", 0):
        limits.notes.append(
            f"The limit of memory is {swap} bytes and not {memory['limit']}: the container's own "
            "limit of memory and swap together allows no more."
        )
        memory["limit"] = swap
    cpu = limits.edits.resources.get("cpu", {})
    allowed = cgroups.processors_allowed() if "quota" in cpu else 0.0
    if allowed and cpu["quota"] > allowed * cpu["period"]:
        limits.warnings.append(
            f"The container gets {allowed:g} processors and not {cpu['quota'] / cpu['period']:g}: "
            "the cgroup that it goes into has no more."
        )
        cpu["quota"] = int(allowed * cpu["period"])
