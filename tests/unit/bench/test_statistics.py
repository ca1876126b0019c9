"""The bench's arithmetic: what decides over a row and over a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import statistics
from tests.bench.statistics import Sample, summarise


def walls(*values: float) -> list[Sample]:
    return [Sample(value, value / 2, value / 4) for value in values]


def test_samples_add_up() -> None:
    assert Sample(1, 2, 3) + Sample(10, 20, 30) == Sample(11, 22, 33)


def test_turns_are_abba() -> None:
    assert [statistics.first_of_pair(n) for n in range(4)] == [0, 1, 0, 1]


def test_medians_are_those_of_the_pairs() -> None:
    """The median of the differences is not the difference of the medians, nor is the ratio."""
    found = summarise(walls(10, 20, 90), walls(11, 30, 40))
    assert (found.base, found.other) == (20, 30)
    assert found.difference == 1
    assert found.ratio == pytest.approx(1.1)
    assert found.cpu_difference == 0.5
    assert found.cpu_ratio == pytest.approx(1.1)
    assert found.later_difference == 0.25
    assert found.pairs == 3


def test_one_disturbed_pair_changes_little() -> None:
    quiet = summarise(walls(*[10] * 9), walls(*[12] * 9))
    disturbed = summarise(walls(*[10] * 9), walls(*[12] * 8, 500))
    assert quiet == disturbed


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=1))
def test_swapping_the_sides_turns_the_sign(pairs: list[tuple[float, float]]) -> None:
    base, other = walls(*[a for a, _ in pairs]), walls(*[b for _, b in pairs])
    there, back = summarise(base, other), summarise(other, base)
    assert there.difference == pytest.approx(-back.difference)
    assert there.cpu_difference == pytest.approx(-back.cpu_difference)
    if len(pairs) % 2:
        assert there.ratio == pytest.approx(1 / back.ratio)


@pytest.mark.parametrize(("base", "other"), [([], []), (walls(1), walls(1, 2)), ([], walls(1))])
def test_what_is_no_pairs_is_refused(base: list[Sample], other: list[Sample]) -> None:
    with pytest.raises(ValueError, match="no pairs"):
        summarise(base, other)


@pytest.mark.parametrize(
    ("base", "other", "ratio"), [(0.0, 0.0, 1.0), (0.0, 1.0, float("inf")), (2.0, 0.0, 0.0)]
)
def test_times_below_the_clock(base: float, other: float, ratio: float) -> None:
    assert summarise([Sample(1, base)], [Sample(1, other)]).cpu_ratio == ratio


@pytest.mark.parametrize(
    ("ratios", "quiet"),
    [([1.0], True), ([0.96], True), ([1.04], True), ([0.959], False), ([1.0, 1.041], False)],
)
def test_quiet(ratios: list[float], quiet: bool) -> None:
    assert statistics.is_quiet(ratios) is quiet


@pytest.mark.parametrize(
    ("value", "bar", "held"), [(1.2, 1.2, True), (1.201, 1.2, False), (99.0, None, True)]
)
def test_bars(value: float, bar: float | None, held: bool) -> None:
    assert statistics.holds(value, bar) is held


@pytest.mark.parametrize(
    ("quiet", "held", "status"),
    [
        (True, [True, True], 0),
        (True, [], 0),
        (True, [True, False], 1),
        (False, [True], 2),
        (False, [False], 2),
    ],
)
def test_exit_status(quiet: bool, held: list[bool], status: int) -> None:
    assert statistics.status(quiet, held) == status


@pytest.mark.parametrize(("base", "bar"), [(9000, 16384), (20000, 22000)])
def test_memory_bar(base: float, bar: float) -> None:
    assert statistics.memory_bar(base) == pytest.approx(bar)
