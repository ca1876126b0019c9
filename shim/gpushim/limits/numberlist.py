"""Lists of processors and memory nodes as the kernel writes them (cpuset(7), "List format")."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# No kernel is built for more processors (CONFIG_NR_CPUS ends at 8192) or nodes.
_LARGEST = 65535


def read_list(text: str) -> set[int]:
    """The numbers in "0-3,8"; none for an empty text. Raises ValueError for anything else."""
    found: set[int] = set()
    if not text.strip():
        return found
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        numbers = range(_number(first), _number(last if dash else first) + 1)
        if not numbers:
            raise ValueError(f"{part!r} ends before it begins")
        found.update(numbers)
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _LARGEST):
        raise ValueError(f"{text!r} is no number of a processor or a node")
    return int(text)


def write_list(numbers: Iterable[int]) -> str:
    """The shortest text for some numbers: "0-3,8"."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join([f"{a}-{b}" if a != b else str(a) for a, b in parts])
