"""What a file of cgroup version 2 is on a host with version 1."""

from __future__ import annotations

from gpushim.config import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NotInVersion1(Exception):
    """A limit that cannot be said in version 1; the text goes on after "this host has it"."""


def classic(file: str, value: str) -> tuple[str, str, dict[str, Any]]:
    """The limit (see `present`), a section of linux.resources, and what to put into it.

    The formulas are those by which runc and crun turn the classic values into version 2's, the
    other way round (crun(1), "cgroup v2"). memory.high, over which memory is taken back from a
    group, comes nearest to the reservation, above which version 1 does so under pressure. Raises
    NotInVersion1.
    """
    reader = _READERS.get(file)
    if reader is None:
        raise NotInVersion1("which has nothing of the kind")
    try:
        return reader(value.strip())
    except (ValueError, ZeroDivisionError):
        raise NotInVersion1(f"and {value!r} cannot be said in it") from None


def read_bytes(value: str) -> int:
    """Bytes, -1 for "max". Raises ValueError."""
    return -1 if value == "max" else size(value)


def _reservation(value: str) -> tuple[str, str, dict[str, Any]]:
    return "memory.low", "memory", {"reservation": read_bytes(value)}


def _memory(value: str) -> tuple[str, str, dict[str, Any]]:
    return "memory.max", "memory", {"limit": read_bytes(value)}


def _pids(value: str) -> tuple[str, str, dict[str, Any]]:
    return "pids.max", "pids", {"limit": -1 if value == "max" else int(value)}


def _cpu(value: str) -> tuple[str, str, dict[str, Any]]:
    quota, _, period = value.partition(" ")
    number = -1 if quota == "max" else int(quota)
    return "cpu.max", "cpu", {"quota": number, "period": int(period or "100000")}


def _shares(value: str) -> tuple[str, str, dict[str, Any]]:
    """Weights are 1 to 10000, shares 2 to 262144."""
    weight = _between(value, 10000)
    return "cpu.weight", "cpu", {"shares": 2 + (weight - 1) * 262142 // 9999}


def _block_weight(value: str) -> tuple[str, str, dict[str, Any]]:
    """Weights are 1 to 10000 there, 10 to 1000 in version 1."""
    weight = _between(value.removeprefix("default").strip(), 10000)
    return "io.weight", "blockIO", {"weight": 10 + (weight - 1) * 990 // 9999}


def _bfq_weight(value: str) -> tuple[str, str, dict[str, Any]]:
    """Weights are 1 to 1000, as in version 1, which begins at 10."""
    weight = _between(value.removeprefix("default").strip(), 1000)
    return "io.weight", "blockIO", {"weight": max(10, weight)}


def _between(value: str, most: int) -> int:
    number = int(value)
    if not 1 <= number <= most:
        raise ValueError
    return number


_READERS = {
    "memory.high": _reservation,
    "memory.low": _reservation,
    "memory.max": _memory,
    "pids.max": _pids,
    "cpu.max": _cpu,
    "cpu.weight": _shares,
    "io.weight": _block_weight,
    "io.bfq.weight": _bfq_weight,
}
