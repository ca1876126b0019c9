"""Patterns for models, held to the standard library's; MIG profiles; sizes in words."""

from __future__ import annotations

import fnmatch
import time

import pytest
from gpushim.allocate.pattern import is_model, is_plain, matches
from gpushim.allocate.profiles import covers, measures
from gpushim.allocate.wish import size_words
from hypothesis import example, given
from hypothesis import strategies as st


@given(st.text("ab*?[]!-\\", max_size=12), st.text("ab]-!\\", max_size=8))
@example("[!]a]b", "xb")
@example("[]-a]", "]")
@example("[b-a]", "a")
@example("[a-]", "-")
@example("[", "[")
@example("[!", "[!")
@example("a[]b", "a[]b")
@example("*a*b?", "xaxbxbb")
@example("**", "")
@example("", "")
def test_patterns_are_those_of_the_shell(pattern: str, text: str) -> None:
    assert matches(pattern, text) == fnmatch.fnmatchcase(text, pattern)


def test_a_pattern_that_is_meant_to_take_long_does_not() -> None:
    start = time.process_time()
    assert not matches("*a" * 99 + "b", "a" * 200)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("pattern", "model", "fits"),
    [
        ("*A100*", "NVIDIA A100-SXM4-80GB", True),
        ("*a100*", "NVIDIA A100-SXM4-80GB", True),
        ("A100*", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA A100*", "NVIDIA A100-SXM4-80GB", True),
        ("A100", "NVIDIA A100-SXM4-80GB", False),
        ("Tesla T4", "Tesla T4", True),
        ("*[AH]100*", "NVIDIA H100 PCIe", True),
        ("*[!A]100*", "NVIDIA A100-PCIE-40GB", False),
    ],
)
def test_models(pattern: str, model: str, fits: bool) -> None:
    assert is_model(pattern, model) is fits


def test_plain_text() -> None:
    assert is_plain("Tesla T4")
    assert not any(is_plain(pattern) for pattern in ("*", "T?", "[T]4"))


@pytest.mark.parametrize(
    ("profile", "wanted", "has_it_all"),
    [
        ("1g.10gb", "1g.10gb", True),
        ("1G.10GB", "1g.10gb", True),
        ("2g.20gb", "1g.10gb", True),
        ("1g.10gb", "2g.20gb", False),
        ("1g.20gb", "1g.10gb", True),
        ("1g.20gb", "2g.10gb", False),
        ("3g.40gb", "1c.3g.40gb", True),
        ("1c.3g.40gb", "3g.40gb", False),
        ("2c.3g.40gb", "1c.3g.40gb", True),
        ("1c.3g.40gb", "1g.10gb", True),
        ("1g.10gb+me", "1g.10gb", True),
        ("1g.10gb", "1g.10gb+me", False),
        ("2g.20gb+me", "1g.10gb+me", True),
        ("2g.20gb+gfx", "1g.10gb+me", False),
        ("1g.24gb+me.all", "1g.24gb+me", False),
        ("1g.24gb-me", "1g.24gb", False),
        ("1g.24gb-me", "1g.24gb-me", True),
        ("1g.24gb", "1g.24gb-me", True),
        ("new", "new", True),
        ("new", "1g.10gb", False),
        ("7g.80gb", "new", False),
    ],
)
def test_profiles(profile: str, wanted: str, has_it_all: bool) -> None:
    assert covers(profile, wanted) is has_it_all


def test_measures() -> None:
    assert measures("1g.10gb") == (10, 1, 1)
    assert measures("2c.3g.40gb+me") == (40, 2, 3)
    for nothing in ("", "gb", "g.gb", "1g", "10gb", "1g.1g.1g", "²g.10gb", "a.b.c.d"):
        assert measures(nothing) == (0, 0, 0)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1 << 30, "1 GiB"),
        (20 << 30, "20 GiB"),
        (81559 << 20, "79.6 GiB"),
        (512 << 20, "512 MiB"),
        ((1 << 30) - 1, "1023.9 MiB"),
        (0, "0 MiB"),
        (3 << 18, "0.7 MiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_words(size) == words
