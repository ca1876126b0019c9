"""From pairs of samples to a row of the table, and from rows to an exit status: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

# Within these the row of the low-level runtime against itself calls a run quiet.
QUIET = (0.96, 1.04)

ALL_HOLD, MISSED, NOISY = 0, 1, 2


@dataclass(frozen=True)
class Sample:
    """One measured call, or several together, in milliseconds.

    cpu: user and system time of the called process and those it waited for, which is the wrapper,
    the low-level runtime and the hooks that this runs; later: CPU time of the container's init
    (with the hooks that run in the container's namespaces), which is known once it has ended.
    """

    wall: float
    cpu: float
    later: float = 0.0

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.wall + other.wall, self.cpu + other.cpu, self.later + other.later)


@dataclass(frozen=True)
class Summary:
    """Medians over pairs, of the base and of what is compared with it; times in milliseconds."""

    pairs: int
    base: float
    other: float
    difference: float
    ratio: float
    cpu_difference: float
    cpu_ratio: float
    later_difference: float


def first_of_pair(number: int) -> int:
    """Which side begins pair `number` (0: the base), so that a drift hits both alike: ABBA."""
    return number % 2


def summarise(base: Sequence[Sample], other: Sequence[Sample]) -> Summary:
    """Compare samples that were taken in pairs. Raises ValueError where they are not pairs."""
    if not base or len(base) != len(other):
        raise ValueError(f"{len(base)} and {len(other)} samples are no pairs")
    pairs = list(zip(base, other, strict=True))
    return Summary(
        pairs=len(pairs),
        base=median(a.wall for a in base),
        other=median(b.wall for b in other),
        difference=median(b.wall - a.wall for a, b in pairs),
        ratio=median(_ratio(b.wall, a.wall) for a, b in pairs),
        cpu_difference=median(b.cpu - a.cpu for a, b in pairs),
        cpu_ratio=median(_ratio(b.cpu, a.cpu) for a, b in pairs),
        later_difference=median(b.later - a.later for a, b in pairs),
    )


def _ratio(part: float, whole: float) -> float:
    """A ratio for which a time too short for the clock is no division by zero."""
    if whole > 0:
        return part / whole
    return 1.0 if part <= 0 else float("inf")


def is_quiet(ratios: Iterable[float]) -> bool:
    """Whether each ratio of the low-level runtime to itself is near enough to one."""
    return all(QUIET[0] <= ratio <= QUIET[1] for ratio in ratios)


def holds(value: float, bar: float | None) -> bool:
    """Whether a row's value is within its bar; one without a bar always holds."""
    return bar is None or value <= bar


def status(quiet: bool, held: Iterable[bool]) -> int:
    """The exit status: figures of a noisy run prove nothing, neither way."""
    if not quiet:
        return NOISY
    return ALL_HOLD if all(held) else MISSED


def memory_bar(base_kilobytes: float) -> float:
    """The peak that a create may have, in KB, where the low-level runtime's own is given."""
    return max(1.1 * base_kilobytes, 16 * 1024)
