"""The order of names in a cache, as glibc's _dl_cache_libcmp has it."""

from __future__ import annotations

from functools import cmp_to_key
from pathlib import Path

import pytest
from gpushim.host.ldsocache import parse
from gpushim.host.libraryorder import order_key, sort_names
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.driver import ldconfig


def compare(one: bytes, other: bytes) -> int:
    """The comparison as it is described: character by character, runs of digits as numbers."""

    def units(name: bytes) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        place = 0
        while place < len(name):
            end = place
            while end < len(name) and chr(name[end]).isascii() and chr(name[end]).isdigit():
                end += 1
            if end > place:
                found.append((1, int(name[place:end])))
                place = end
            else:
                signed = name[place] - 256 if name[place] > 127 else name[place]
                found.append((0, signed))
                place += 1
        return [*found, (0, 0)]

    left, right = units(one), units(other)
    return (left > right) - (left < right)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (b"libz9.so", b"libz10.so"),
        (b"libz.so.1", b"libz.so.2"),
        (b"libz.so.2", b"libz.so.10"),
        (b"libza", b"libz1"),
        (b"libz", b"libz1"),
        (b"libz", b"libza"),
        (b"lib\xc3\xa9", b"lib"),
        (b"lib\xc3\xa9", b"liba"),
        (b"libA", b"liba"),
        (b"lib-a", b"liba"),
        (b"lib9x", b"lib10"),
        (b"lib9", b"lib10"),
        (b"libx.so.550.54.14", b"libx.so.550.163.01"),
        (b"lib99999999999", b"lib100000000000"),
    ],
)
def test_order(smaller: bytes, larger: bytes) -> None:
    assert order_key(smaller) < order_key(larger)
    assert compare(smaller, larger) < 0


@pytest.mark.parametrize(
    ("one", "other"), [(b"lib01", b"lib1"), (b"lib.00.1", b"lib.0.01"), (b"", b"")]
)
def test_leading_zeros_do_not_count(one: bytes, other: bytes) -> None:
    assert order_key(one) == order_key(other)


NAME = st.text("ab.-_019\u00e9+", max_size=8).map(str.encode)


@given(NAME, NAME)
def test_keys_compare_as_the_names_do(one: bytes, other: bytes) -> None:
    left, right = order_key(one), order_key(other)
    assert (left > right) - (left < right) == compare(one, other)


def test_ldconfig_agrees(tmp_path: Path) -> None:
    names = [
        *("liba.so", "libA.so", "liba-1.so", "liba1.so", "liba01b.so", "liba10.so", "liba9.so"),
        *("liba+.so.2", "liba.so.10", "liba.so.9", "lib_a.so", "libab.so", "liba\u00e9.so"),
    ]
    for name in names:
        ldconfig.library(tmp_path, f"lib/{name}", name)
    written = [entry[1].decode() for entry in parse(ldconfig.run(tmp_path, [])).entries]
    assert sort_names(names) == written
    ordered = sorted([name.encode() for name in names], key=cmp_to_key(compare), reverse=True)
    assert [name.decode() for name in ordered] == written
