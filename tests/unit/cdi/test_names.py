"""Qualified names, and the annotations that hold them (facts C: names; facts A 1: annotations)."""

from __future__ import annotations

import pytest
from gpushim.cdi.names import (
    device_problem,
    from_annotations,
    is_qualified,
    kind_problem,
    parse_qualified,
    problem,
)
from gpushim.errors import GpushimError
from hypothesis import given
from hypothesis import strategies as st

GOOD = [
    ("nvidia.com/gpu=0", ("nvidia.com", "gpu", "0")),
    ("nvidia.com/gpu=all", ("nvidia.com", "gpu", "all")),
    ("vendor1.com/cla_ss-1.x=De_v-1.2:3", ("vendor1.com", "cla_ss-1.x", "De_v-1.2:3")),
    ("v/c=d", ("v", "c", "d")),
    ("Vendor_x/Class=9", ("Vendor_x", "Class", "9")),
    ("nvidia.com/gpu=GPU-1:2", ("nvidia.com", "gpu", "GPU-1:2")),
    ("v/" + "c" * 63 + "=d", ("v", "c" * 63, "d")),
    (
        ".".join(["a" * 63] * 3) + "." + "b" * 61 + "/c=d",
        (".".join(["a" * 63] * 3) + "." + "b" * 61, "c", "d"),
    ),
]

BAD = [
    ("", "no '='"),
    ("0", "no '='"),
    ("GPU-1234", "no '='"),
    ("nvidia.com/gpu", "no '='"),
    ("nvidia.com=0", "not of the form vendor/class"),
    ("=0", "not of the form vendor/class"),
    ("/gpu=0", "its vendor is empty"),
    ("nvidia.com/=0", "its class is empty"),
    ("nvidia.com/gpu=", "its device is empty"),
    ("1nvidia.com/gpu=0", "begin with a letter"),
    ("nvidia.com/1gpu=0", "begin with a letter"),
    ("nvidia.com-/gpu=0", "end with a letter or digit"),
    ("nvidia.com/gpu-=0", "end with a letter or digit"),
    ("nvidia.com/gpu=-0", "begin with a letter or digit"),
    ("nvidia.com/gpu=0:", "end with a letter or digit"),
    ("nvidia.com/g:pu=0", "character ':'"),
    ("nvidia.com/gpu/x=0", "character '/'"),
    ("nvidia.com/gpu=0=1", "character '='"),
    ("nvidia.com/gpu=0 ", "character ' '"),
    (" nvidia.com/gpu=0", "begin with a letter"),
    ("nvidia.com/gpu=ü", "begin with a letter or digit"),
    ("nvidia.com/gpu=1ü", "character 'ü'"),
    ("nvidia.com/gpu=\u0661", "begin with a letter or digit"),
    ("v/" + "c" * 64 + "=d", "more than 63"),
    ("a." * 126 + "ab/c=d", "more than 253"),
    ("a..b/c=d", "no DNS name"),
    ("a" * 64 + ".com/c=d", "no DNS name"),
]


@pytest.mark.parametrize(("text", "parts"), GOOD)
def test_a_qualified_name_has_three_parts(text: str, parts: tuple[str, str, str]) -> None:
    assert parse_qualified(text) == parts
    assert is_qualified(text)


@pytest.mark.parametrize(("text", "said"), BAD)
def test_what_is_none_is_refused_with_the_reason(text: str, said: str) -> None:
    assert not is_qualified(text)
    assert said in problem(text)
    with pytest.raises(GpushimError, match="not the name of a CDI device"):
        parse_qualified(text)


@given(st.text(st.sampled_from("aZ0_-.:/= ,é\ud800")))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    if is_qualified(text):
        vendor, class_, device = parse_qualified(text)
        assert f"{vendor}/{class_}={device}" == text
        assert not kind_problem(f"{vendor}/{class_}")
        assert not device_problem(device)
    else:
        with pytest.raises(GpushimError):
            parse_qualified(text)


PREFIXES = ["cdi.k8s.io/"]


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        ({}, []),
        ({"cdi.k8s.io/x": "v/c=1"}, ["v/c=1"]),
        ({"cdi.k8s.io/x": "v/c=1,v/c=2"}, ["v/c=1", "v/c=2"]),
        ({"cdi.k8s.io/b": "v/c=1", "cdi.k8s.io/a": "v/c=2"}, ["v/c=2", "v/c=1"]),
        ({"cdi.k8s.io/b": "v/c=1", "cdi.k8s.io/a": "v/c=1,v/c=2"}, ["v/c=1", "v/c=2"]),
        ({"cdi.k8s.io/x": " v/c=1 , ,"}, ["v/c=1"]),
        ({"cdi.k8s.io/x": ""}, []),
        ({"cdi.k8s.io": "v/c=1", "other/cdi.k8s.io/": "nonsense"}, []),
        ({"cdi.k8s.io/x": 5}, []),
    ],
)
def test_annotations(annotations: dict[str, object], names: list[str]) -> None:
    assert from_annotations(annotations, PREFIXES) == names


def test_other_prefixes() -> None:
    annotations = {"a.b/x": "v/c=1", "c.d/x": "v/c=2", "cdi.k8s.io/x": "v/c=3"}
    assert from_annotations(annotations, ["a.b/", "c.d/"]) == ["v/c=1", "v/c=2"]
    assert from_annotations(annotations, []) == []


def test_a_wrong_name_in_an_annotation_is_refused_with_its_key() -> None:
    with pytest.raises(GpushimError) as refused:
        from_annotations({"cdi.k8s.io/x": "v/c=1,gpu0"}, PREFIXES)
    assert "'cdi.k8s.io/x'" in refused.value.sentence
    assert "'gpu0'" in refused.value.sentence


@given(st.dictionaries(st.text("acdik8s./o", max_size=12), st.text("v/c=1, ") | st.none()))
def test_any_annotations_are_names_or_refused(annotations: dict[str, object]) -> None:
    try:
        names = from_annotations(annotations, ["", "cdi.k8s.io/"])
    except GpushimError:
        return
    assert all(map(is_qualified, names))
    assert names == from_annotations(dict(reversed(annotations.items())), ["cdi.k8s.io/", ""])
