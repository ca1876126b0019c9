"""Which GPUs a name is, and what is said where it is none (B36, B54)."""

from __future__ import annotations

import pytest
from gpushim.allocate.grant import Grant, Unavailable, grant_named
from gpushim.host.model import Gpu
from gpushim.request.nvidia import brief
from gpushim.request.request import Request
from hypothesis import example, given
from hypothesis import strategies as st

A = "GPU-7af7a99b-0000-0000-0000-000000000001"
B = "GPU-7af7a99b-1111-0000-0000-000000000002"
C = "GPU-c0ffee00-0000-0000-0000-000000000003"
BROKEN = "GPU-dead0000-0000-0000-0000-000000000004"


def machine() -> list[Gpu]:
    """Four GPUs: minors are not indices, one is broken, one not known yet to the driver."""
    return [
        Gpu(0, A, 3, "0000:07:00.0", "NVIDIA A100"),
        Gpu(1, B, 1, "0000:0b:00.0", "NVIDIA A100"),
        Gpu(2, C, 0, "0000:48:00.0", "NVIDIA H100"),
        Gpu(3, BROKEN, 2, "0000:4c:00.0", "NVIDIA H100", health="lost from the bus"),
        Gpu(4, "", 4, "0000:88:00.0", "NVIDIA H100"),
    ]


def request(*devices: str) -> Request:
    source = "environment NVIDIA_VISIBLE_DEVICES=" + ",".join(devices)
    return Request(list(devices), ["compute"], {"devices": source})


def uuids_of(grant: Grant) -> list[str]:
    return grant.uuids()


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        (["0"], [0]),
        (["2"], [2]),
        (["2", "0"], [0, 2]),
        ([A], [0]),
        ([A.lower().replace("gpu-", "GPU-")], [0]),
        ([A.upper()], [0]),
        ([A, "0"], [0]),
        (["0", A[:17], "0"], [0]),
        (["GPU-c"], [2]),
        (["GPU-7af7a99b-1"], [1]),
        ([C, B, A], [0, 1, 2]),
        (["all"], [0, 1, 2]),
        ([], []),
    ],
)
def test_names(devices: list[str], indices: list[int]) -> None:
    grant = grant_named(request(*devices), machine(), {})
    assert [gpu.index for gpu in grant.gpus] == indices
    assert uuids_of(grant) == [machine()[index].uuid for index in indices]
    assert grant.capabilities == ["compute"]


NOT_THERE = [
    "5", "7", "-1", "99999999999", "9" * 5000, "²", "٣", "①", "0x0", "1.0", "+1", "0:1", "1 2",
    "0-3", "GPU-", "GPU", "gpu", "GPU-7af7a99b-2", A + "0", A[4:], "c0ffee", "MIG-" + A[4:], "ALL",
    "None", "nvidia0", "/dev/nvidia0", "nvidia.com/gpu=0", "0000:07:00.0", "\ud800", "\n", "",
]  # fmt: skip


@pytest.mark.parametrize("name", NOT_THERE, ids=lambda name: ascii(name)[:20])
def test_what_is_not_there(name: str) -> None:
    """B36: the sentence names what was asked for and what exists; nothing is given in part."""
    with pytest.raises(Unavailable) as caught:
        grant_named(request("0", name), machine(), {})
    said = str(caught.value)
    assert "NVIDIA_VISIBLE_DEVICES=0," in said
    assert f"'{brief(name)}' here" in caught.value.sentence
    for gpu in machine():
        assert f"{gpu.index} = {gpu.model} {gpu.uuid}" in said
    assert "lost from the bus" in said
    assert "UUID unknown" in said


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("0-3", "0,1,2,3"),
        ("ALL", "all in lower case"),
        ("None", "none in lower case"),
        ("MIG-" + A[4:], "MIG devices"),
        ("0:1", "MIG devices"),
        ("nvidia.com/gpu=0", "VENDOR/CLASS"),
        ("9", "by index or UUID"),
        ("-1", "Ask for one of these"),
        ("٣-٤", "Ask for one of these"),
    ],
)
def test_the_hint_fits_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(Unavailable) as caught:
        grant_named(request(name), machine(), {})
    assert hint in caught.value.hint


def test_a_name_that_is_two_gpus() -> None:
    """B43: only a unique prefix is a name."""
    for name in ("GPU-7af7a99b", "GPU-7AF7"):
        with pytest.raises(Unavailable) as caught:
            grant_named(request(name), machine(), {})
        assert A in str(caught.value)
        assert B in str(caught.value)
        assert C not in str(caught.value)


def test_a_whole_uuid_that_begins_another_is_no_ambiguity() -> None:
    gpus = [Gpu(0, "GPU-1", 0, "x", "m"), Gpu(1, "GPU-12", 1, "y", "m")]
    assert uuids_of(grant_named(request("GPU-1"), gpus, {})) == ["GPU-1"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("3", "lost from the bus"), (BROKEN, "lost from the bus"), ("4", "does not know its UUID")],
)
def test_a_broken_gpu_by_name(name: str, why: str) -> None:
    """B54: the others are given; this one is refused with what is wrong with it."""
    assert uuids_of(grant_named(request("0"), machine(), {})) == [A]
    with pytest.raises(Unavailable, match=why):
        grant_named(request("0", name), machine(), {})


def test_all_of_none() -> None:
    with pytest.raises(Unavailable, match="no GPU that its driver knows of"):
        grant_named(request("all"), [], {})
    with pytest.raises(Unavailable, match="none that works"):
        grant_named(request("all"), machine()[3:], {})
    with pytest.raises(Unavailable, match="no GPU that its driver knows of"):
        grant_named(request("0"), [], {})
    assert grant_named(request(), [], {}).gpus == []


MEANINGFUL = [
    "no such file or directory",
    "executable file not found",
    "permission denied",
    "is a directory",
]
hostile = st.lists(
    st.sampled_from(
        [*MEANINGFUL, "PERMISSION", "\tDenied", " ", "\n", "İ", "\ud800", "\x1b[2J", "\0"]
    )
    | st.text(max_size=3),
    max_size=6,
).map("".join)


@example("permİssion denied")
@example("İİİİİİİİİİpermission denied")
@example("no such file\nor directory")
@given(hostile)
def test_a_sentence_never_has_words_that_docker_reads(name: str) -> None:
    try:
        grant_named(request(name), machine(), {})
    except Unavailable as error:
        said = str(error)
        assert "\n" not in said
        assert said.isprintable()
        said.encode()
        # Go's ToLower, which Docker uses, makes an i of U+0130.
        lower = said.replace("İ", "i").lower()
        assert not [word for word in MEANINGFUL if word in lower]


def test_what_is_kept_of_a_grant() -> None:
    assert grant_named(request("2"), machine(), {}).to_json() == {
        "gpus": [{"index": 2, "uuid": C, "minor": 0, "model": "NVIDIA H100"}],
        "mig": [],
        "capabilities": ["compute"],
    }
