"""Lists of processors as the kernel writes them."""

from __future__ import annotations

import pytest
from gpushim.limits.numberlist import read_list, write_list
from hypothesis import given
from hypothesis import strategies as st


@given(st.sets(st.integers(0, 300)))
def test_what_is_written_is_read(numbers: set[int]) -> None:
    assert read_list(write_list(numbers)) == numbers


@given(st.text(alphabet="0123456789,- \n²", max_size=12))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        found = read_list(text)
    except ValueError:
        return
    assert read_list(write_list(found)) == found


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        ("2, 0", [0, 2]),
        ("5-5", [5]),
    ],
)
def test_lists(text: str, numbers: list[int]) -> None:
    assert read_list(text) == set(numbers)


@pytest.mark.parametrize("text", [",", "0,", "3-1", "-1", "1-", "a", "65536", "0-99999999999", "²"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_list(text)


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3, 1, 2], "1-3"), ([0, 2], "0,2"), ([7, 7], "7")]
)
def test_the_shortest_text(numbers: list[int], text: str) -> None:
    assert write_list(numbers) == text
