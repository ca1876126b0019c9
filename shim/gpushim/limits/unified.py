"""`limits.unified`: files of cgroup version 2 that are set for every container with GPUs."""

from __future__ import annotations

from gpushim.limits.classic import NotInVersion1, classic, read_bytes
from gpushim.limits.present import CLASSIC, limit_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.limits.cgroups import Cgroups
    from gpushim.limits.limits import Limits
    from gpushim.limits.present import Present
    from gpushim.limits.settings import Settings

_KEY = "limits.unified"
_SWAP = "memory.swap.max"
_SIZES = (
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.high",
    "memory.swap.max",
    "memory.zswap.max",
)
# Seen with systemd 262 and runc 1.3, which tells it nothing of these.
_NOT_KEPT = ("memory.oom.group", "memory.zswap.max", "memory.zswap.writeback")


def add_unified(limits: Limits, present: Present, settings: Settings, cgroups: Cgroups) -> None:
    """Adds the files as they are on version 2, and what comes nearest to each on version 1.

    What cannot be set is warned about by name; what the user set stays, and is noted.
    """
    for file, value in settings.unified.items():
        controller = file.partition(".")[0]
        if limit_of(file) in present.said:
            limits.notes.append(f"{_KEY} {file} is not applied: the container has its own.")
        elif not cgroups.has(controller):
            limits.warnings.append(cgroups.missing(controller, f"{_KEY} {file}"))
        elif cgroups.version == 1:
            try:
                _add_classic(limits, present, cgroups, file, value)
            except NotInVersion1 as error:
                limits.warnings.append(
                    f"{_KEY} {file} is not applied: this host has cgroup version 1, {error}."
                )
        elif cgroups.has_file(file):
            _add_file(limits, file, value)
            _warn_of_loss(limits, present, file)
        else:
            limits.warnings.append(
                f"{_KEY} {file} is not applied: this kernel's groups have no such file."
            )


def _add_file(limits: Limits, file: str, value: str) -> None:
    """The kernel knows 128m; runc, where it has systemd set the limit, only plain numbers
    (unifiedResToSystemdProps in libcontainer/cgroups/systemd/v2.go)."""
    if file in _SIZES:
        try:
            number = read_bytes(value.strip())
        except ValueError as error:
            limits.warnings.append(f"{_KEY} {file} is not applied: {error}, nor 'max'.")
            return
        value = "max" if number < 0 else str(number)
    limits.edits.resources.setdefault("unified", {})[file] = value
    limits.said.add(limit_of(file))


def _warn_of_loss(limits: Limits, present: Present, file: str) -> None:
    """A cgroupsPath in three parts is a unit of systemd's, which writes what it knows again."""
    if file in _NOT_KEPT and not present.cgroup.startswith("/") and present.cgroup.count(":") == 2:
        limits.warnings.append(
            f"{_KEY} {file} lasts until the next 'systemctl daemon-reload' at the longest: systemd "
            "manages the container's cgroup, and writes a value of its own there."
        )


def _add_classic(limits: Limits, present: Present, cgroups: Cgroups, file: str, value: str) -> None:
    """Raises NotInVersion1."""
    if file == _SWAP:
        return  # It is counted from the limit of memory: see `add_swap`.
    limit, section, members = classic(file, value)
    if limit == "io.weight" and not any(
        cgroups.has_file(name) for name in ("blkio.weight", "blkio.bfq.weight")
    ):
        raise NotInVersion1("and its kernel has no weights of block devices")
    if limit in present.said:
        limits.notes.append(
            f"{_KEY} {file} is not applied: the container has its own {section} "
            f"{CLASSIC[limit][1][0]}, which is what comes nearest on cgroup version 1."
        )
    elif limit in limits.said:
        raise NotInVersion1("where another key of it is the same limit")
    else:
        limits.edits.resources.setdefault(section, {}).update(members)
        limits.said.add(limit)


def add_swap(limits: Limits, present: Present, settings: Settings, cgroups: Cgroups) -> None:
    """Adds memory.swap.max on version 1, once it is decided how much memory there is.

    Version 1 and OCI count swap together with memory.
    """
    value = settings.unified.get(_SWAP)
    if value is None or cgroups.version == 2 or _SWAP in present.said or not cgroups.has("memory"):
        return  # `add_unified` has said why
    memory = limits.edits.resources.get("memory", {})
    limit = memory.get("limit") or present.number("memory", "limit")
    why = ""
    if limit <= 0:
        why = "which counts swap together with memory, and the container has no limit of memory"
    elif not cgroups.has_file("memory.memsw.limit_in_bytes"):
        why = "whose kernel does not count swap (swapaccount=1)"
    try:
        swap = read_bytes(value.strip())
    except ValueError:
        why = f"and {value!r} cannot be said in it"
    if why:
        limits.warnings.append(
            f"{_KEY} {_SWAP} is not applied: this host has cgroup version 1, {why}."
        )
    else:
        limits.edits.resources.setdefault("memory", {})["swap"] = -1 if swap < 0 else limit + swap
