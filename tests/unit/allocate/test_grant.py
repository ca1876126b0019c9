"""Which GPUs a name is, and what is said where it is none (B36, B37, B51, B52, B54)."""

from __future__ import annotations

import pytest
from gpushim.allocate.grant import Grant, Unavailable, grant_named
from gpushim.host.model import Gpu, MigDevice
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
    grant = grant_named(request(*devices), machine())
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
        grant_named(request("0", name), machine())
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
        grant_named(request(name), machine())
    assert hint in caught.value.hint


def test_a_name_that_is_two_gpus() -> None:
    """B43: only a unique prefix is a name."""
    for name in ("GPU-7af7a99b", "GPU-7AF7"):
        with pytest.raises(Unavailable) as caught:
            grant_named(request(name), machine())
        assert A in str(caught.value)
        assert B in str(caught.value)
        assert C not in str(caught.value)


def test_a_whole_uuid_that_begins_another_is_no_ambiguity() -> None:
    gpus = [Gpu(0, "GPU-1", 0, "x", "m"), Gpu(1, "GPU-12", 1, "y", "m")]
    assert uuids_of(grant_named(request("GPU-1"), gpus)) == ["GPU-1"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("3", "lost from the bus"), (BROKEN, "lost from the bus"), ("4", "does not know its UUID")],
)
def test_a_broken_gpu_by_name(name: str, why: str) -> None:
    """B54: the others are given; this one is refused with what is wrong with it."""
    assert uuids_of(grant_named(request("0"), machine())) == [A]
    with pytest.raises(Unavailable, match=why):
        grant_named(request("0", name), machine())


def test_all_of_none() -> None:
    with pytest.raises(Unavailable, match="no GPU that its driver knows of"):
        grant_named(request("all"), [])
    with pytest.raises(Unavailable, match="none that works"):
        grant_named(request("all"), machine()[3:])
    with pytest.raises(Unavailable, match="no GPU that its driver knows of"):
        grant_named(request("0"), [])
    assert grant_named(request(), []).gpus == []


def mig(
    index: int, profile: str, gi: int, ci: int = 0, minors: tuple[int, int] = (12, 13)
) -> MigDevice:
    uuid = f"MIG-{index}{gi}{ci}00000-0000-0000-0000-00000000000{index}"
    return MigDevice(index, uuid, profile, 10 << 30, gi, ci, *minors)


def cut() -> list[Gpu]:
    """GPU 0 is cut into four, GPU 1 is in MIG mode with nothing in it, GPU 2 is whole."""
    gpus = machine()[:3]
    gpus[0].mig_enabled = gpus[1].mig_enabled = True
    gpus[2].mig_enabled = False
    gpus[0].mig_devices = [
        mig(0, "3g.40gb", 2),
        mig(1, "1c.2g.20gb", 3, 0),
        mig(2, "1c.2g.20gb", 3, 1),
        mig(3, "1g.10gb", 9),
    ]
    return gpus


def names_of(grant: Grant) -> list[str]:
    return [name for name, _ in grant.devices()]


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        # B37: all three forms are one device.
        (["0:1"], ["0:1"]),
        (["MIG-13000000-0000-0000-0000-000000000001"], ["0:1"]),
        (["MIG-13000000-0000-0000-0000-000000000001".upper()], ["0:1"]),
        (["MIG-130"], ["0:1"]),
        ([f"MIG-{A}/3/0"], ["0:1"]),
        ([f"MIG-{A.upper()}/3/0"], ["0:1"]),
        (["0:1", f"MIG-{A}/3/0", "MIG-130"], ["0:1"]),
        # In the order of the machine, whatever that of the names.
        (["2", "0:3", "0:0"], ["0:0", "0:3", "2"]),
        (["all"], ["0:0", "0:1", "0:2", "0:3", "2"]),
        # A GPU in MIG mode by its own name is its node, as with the vendor's runtime.
        (["0"], ["0"]),
        ([A], ["0"]),
        (["1"], ["1"]),
        (["0", "0:2"], ["0", "0:2"]),
    ],
)
def test_names_of_mig_devices(devices: list[str], names: list[str]) -> None:
    grant = grant_named(request(*devices), cut())
    assert names_of(grant) == names
    assert [gpu.index for gpu in grant.boards()] == sorted({int(name[0]) for name in names})
    assert grant.uuids() == [uuid for _, uuid in grant.devices()]


NO_MIG = [
    "0:9", "0:4", "1:0", "2:0", "7:0", "0:", ":0", ":", "0:0:0", "0:-1", "0:²",
    "0:" + "9" * 5000,
    "MIG-", "MIG-9", "MIG-13000000-0000-0000-0000-0000000000010", f"MIG-{A}", f"MIG-{A}/3",
    f"MIG-{A}/3/9", f"MIG-{A}/8/0", f"MIG-{A}/3/0/0", f"MIG-{B}/3/0", f"MIG-{A}//", "MIG-GPU-/3/0",
    "mig-13", "GPU-13",
]  # fmt: skip


@pytest.mark.parametrize("name", NO_MIG, ids=lambda name: ascii(name)[:30])
def test_mig_devices_that_are_not_there(name: str) -> None:
    """B37, B51: it is named with what there is, and never becomes the whole GPU."""
    with pytest.raises(Unavailable) as caught:
        grant_named(request("2", name), cut())
    said = caught.value.sentence
    kind = "MIG device" if name.startswith("MIG-") or ":" in name else "GPU"
    assert f"there is no {kind} '{brief(name)}' here" in said
    assert "0:0 3g.40gb, 0:1 to 0:2 1c.2g.20gb, 0:3 1g.10gb" in said
    assert "MIG devices: none" in said
    if ":" in name or name.startswith("MIG-"):
        assert "none outlives a reboot" in caught.value.hint


def test_all_mig_devices_are_gone() -> None:
    """B51: MIG mode outlives a reboot, instances do not."""
    gpus = cut()
    gpus[0].mig_devices = []
    with pytest.raises(Unavailable) as caught:
        grant_named(request("MIG-13"), gpus)
    assert "make them with nvidia-smi mig" in caught.value.hint
    with pytest.raises(Unavailable, match="none that works"):
        grant_named(request("all"), gpus[:2])


def test_a_prefix_of_several_mig_devices() -> None:
    with pytest.raises(Unavailable) as caught:
        grant_named(request("MIG-0"), [*cut()[:1], *_twin()])
    assert "begins more than one UUID: MIG-02000000-" in caught.value.sentence
    assert caught.value.hint == "Give more of it."


def _twin() -> list[Gpu]:
    gpu = Gpu(5, "GPU-9", 9, "x", "m", mig_enabled=True)
    gpu.mig_devices = [mig(0, "1g.10gb", 8)]
    return [gpu]


def test_a_large_machine_stays_readable() -> None:
    gpus = [
        Gpu(n, f"GPU-{n}", n, f"{n}", "NVIDIA H100 80GB HBM3", mig_enabled=True) for n in range(8)
    ]
    for gpu in gpus:
        gpu.mig_devices = [mig(n, "1g.10gb", 7 + n) for n in range(7)]
    with pytest.raises(Unavailable) as caught:
        grant_named(request("MIG-x"), gpus)
    assert (
        "3 = NVIDIA H100 80GB HBM3 GPU-3 (MIG devices: 3:0 to 3:6 1g.10gb)" in caught.value.sentence
    )
    assert len(caught.value.sentence) < 800
    with pytest.raises(Unavailable) as caught:
        grant_named(request("MIG-0"), gpus)
    assert len(caught.value.sentence) < 800


def test_all_says_what_it_leaves_out() -> None:
    grant = grant_named(request("all"), cut())
    (said,) = grant.warnings
    assert f"GPU 1 ({B}) is in MIG mode and has no MIG devices" in said


def test_who_partitions_gets_those_that_are_not_partitioned_yet() -> None:
    asking = request("all")
    asking.mig_config = True
    grant = grant_named(asking, cut())
    assert names_of(grant) == ["0:0", "0:1", "0:2", "0:3", "1", "2"]
    assert grant.warnings == []


def test_a_mig_device_of_a_broken_gpu() -> None:
    gpus = cut()
    gpus[0].health = "lost from the bus"
    with pytest.raises(Unavailable, match="lost from the bus"):
        grant_named(request("0:1"), gpus)
    assert names_of(grant_named(request("all"), gpus)) == ["2"]


@pytest.mark.parametrize("minors", [(-1, 13), (12, -1)])
def test_a_mig_device_without_nodes(minors: tuple[int, int]) -> None:
    gpus = cut()
    gpus[0].mig_devices[1] = mig(1, "1g.10gb", 3, 0, minors)
    with pytest.raises(Unavailable, match="no device nodes for MIG device 0:1"):
        grant_named(request("0:1"), gpus)
    grant = grant_named(request("all"), gpus)
    assert names_of(grant) == ["0:0", "0:2", "0:3", "2"]
    assert "no device nodes for MIG device 0:1" in grant.warnings[0]


MEANINGFUL = [
    "no such file or directory",
    "executable file not found",
    "permission denied",
    "is a directory",
]
naming = st.text("0123456789:/-MIGPU,.² ", max_size=14) | st.sampled_from(NO_MIG)


@given(st.lists(naming, max_size=4))
def test_any_names_end_in_a_grant_or_a_refusal(names: list[str]) -> None:
    try:
        grant = grant_named(request(*names), cut())
    except Unavailable:
        return
    assert len(set(grant.uuids())) == len(grant.uuids()) <= len(names)
    assert grant_named(request(*reversed(names)), cut()).uuids() == grant.uuids()


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
        grant_named(request(name), machine())
    except Unavailable as error:
        said = str(error)
        assert "\n" not in said
        assert said.isprintable()
        said.encode()
        # Go's ToLower, which Docker uses, makes an i of U+0130.
        lower = said.replace("İ", "i").lower()
        assert not [word for word in MEANINGFUL if word in lower]


def test_what_is_kept_of_a_grant() -> None:
    assert grant_named(request("2"), machine()).to_json() == {
        "gpus": [{"index": 2, "uuid": C, "minor": 0, "model": "NVIDIA H100"}],
        "mig": [],
        "capabilities": ["compute"],
    }


def test_what_is_kept_of_a_grant_of_mig_devices() -> None:
    assert grant_named(request("0:3"), cut()).to_json() == {
        "gpus": [],
        "mig": [
            {
                "name": "0:3",
                "uuid": cut()[0].mig_devices[3].uuid,
                "profile": "1g.10gb",
                "gpu": A,
                "minor": 3,
                "model": "NVIDIA A100",
            }
        ],
        "capabilities": ["compute"],
    }
