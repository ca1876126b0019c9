"""CUDA_VISIBLE_DEVICES by its table, and the variables that a grant sets (B41)."""

from __future__ import annotations

import pytest
from gpushim.errors import GpushimError
from gpushim.inject.cudadevices import cuda_visible_devices
from gpushim.inject.environment import container_environment
from hypothesis import given
from hypothesis import strategies as st

ONE, THREE = "GPU-11111111-aaaa", "GPU-33333333-bbbb"
GPUS = [("1", ONE), ("3", THREE)]

ALONE = "left alone"
WARNED = "a warning"
SHORTENED = "a warning that CUDA uses only a part"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        # The user wants no CUDA device.
        ("", ALONE),
        (" ", ALONE),
        ("-1", ALONE),
        ("NoDevFiles", ALONE),
        # Each entry is valid in the container's own numbering, or a granted UUID.
        ("0", ALONE),
        ("1", ALONE),
        ("0,1", ALONE),
        ("1,0", ALONE),
        (ONE, ALONE),
        (f"{THREE},{ONE}", ALONE),
        ("GPU-3", ALONE),
        (f" {ONE} ", ALONE),
        # Host indices of granted GPUs, not all valid inside.
        ("1,3", f"{ONE},{THREE}"),
        ("3", THREE),
        ("3,1", f"{THREE},{ONE}"),
        (" 3 , 1 ", f"{THREE},{ONE}"),
        # CUDA stops at the entry that is none.
        ("0,7", SHORTENED),
        ("0,GPU-99", SHORTENED),
        # Anything else.
        ("2", WARNED),
        ("3,0", WARNED),
        ("3,2", WARNED),
        ("3,", WARNED),
        (",3", WARNED),
        ("3,-1", WARNED),
        ("-1,0", WARNED),
        ("all", WARNED),
        ("none", WARNED),
        ("nodevfiles", WARNED),
        ("GPU-", WARNED),
        ("GPU-9", WARNED),
        ("gpu-11111111-aaaa", WARNED),
        ("MIG-1", WARNED),
        ("9" * 5000, WARNED),
        ("²", WARNED),
        ("٣", WARNED),
        ("\ud800", WARNED),
        ("+3", WARNED),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_the_table(value: str, outcome: str) -> None:
    new, said = cuda_visible_devices(value, GPUS)
    if outcome == ALONE:
        assert (new, said) == (None, "")
    elif outcome == WARNED:
        assert new is None
        assert "leaves CUDA without a device" in said
        assert "0 to 1" in said
        assert ONE in said
    elif outcome == SHORTENED:
        assert new is None
        assert "CUDA uses no more than 0:" in said
    else:
        assert new == outcome
        assert value in said


def test_the_table_is_applied() -> None:
    def cuda(value: str, strict: bool = False) -> tuple[str | None, list[str]]:
        changed, said = container_environment([f"CUDA_VISIBLE_DEVICES={value}"], GPUS, "", strict)
        return changed.get("CUDA_VISIBLE_DEVICES"), said

    assert cuda("0") == (None, [])
    assert cuda("3")[0] == THREE
    assert len(cuda("3")[1]) == 1
    assert cuda("7")[0] is None
    assert len(cuda("7")[1]) == 1
    # What can be translated is not refused; what leaves no device is.
    assert cuda("3", strict=True)[0] == THREE
    assert cuda("-1", strict=True) == (None, [])
    with pytest.raises(GpushimError, match="CUDA_VISIBLE_DEVICES=7"):
        cuda("7", strict=True)


def test_an_ambiguous_uuid_is_no_device() -> None:
    gpus = [("0", "GPU-1a"), ("1", "GPU-1b")]
    assert cuda_visible_devices("GPU-1", gpus)[1]
    assert cuda_visible_devices("GPU-1a", gpus) == (None, "")


def test_no_gpus() -> None:
    assert cuda_visible_devices("", []) == (None, "")
    assert cuda_visible_devices("0", [])[1]


def test_the_variables() -> None:
    """B41: UUIDs mean the same inside and outside."""
    assert container_environment([], GPUS, "", False) == (
        {"NVIDIA_VISIBLE_DEVICES": f"{ONE},{THREE}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        [],
    )
    own = ["CUDA_DEVICE_ORDER=FASTEST_FIRST", "NVIDIA_VISIBLE_DEVICES=all"]
    assert container_environment(own, GPUS[:1], "", False)[0] == {"NVIDIA_VISIBLE_DEVICES": ONE}
    # B33: no GPU, and nothing for a second injector to do.
    assert container_environment(own, [], "", False)[0] == {"NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], "/n/lib64:/n/lib"),
        (["LD_LIBRARY_PATH="], "/n/lib64:/n/lib"),
        (["LD_LIBRARY_PATH=/a"], "/a:/n/lib64:/n/lib"),
        (["LD_LIBRARY_PATH=/a:/n/lib64"], "/a:/n/lib64:/n/lib"),
        (["LD_LIBRARY_PATH=/n/lib64:/n/lib"], "/n/lib64:/n/lib"),
        (["LD_LIBRARY_PATH=/n/lib:/a"], "/n/lib:/a:/n/lib64"),
        (["LD_LIBRARY_PATH=/x", "LD_LIBRARY_PATH=:/a:"], ":/a::/n/lib64:/n/lib"),
    ],
)
def test_the_library_path(own: list[str], expected: str) -> None:
    changed, _ = container_environment(own, GPUS, "/n/lib64:/n/lib", False)
    assert changed["LD_LIBRARY_PATH"] == expected


MIG_ONE, MIG_TWO = "MIG-aaaaaaaa-1111", "MIG-bbbbbbbb-2222"
MIXED = [("0:1", MIG_ONE), ("0:3", MIG_TWO), ("2", ONE)]


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("0", ALONE),
        ("2", ALONE),
        (MIG_ONE, ALONE),
        (f"{MIG_TWO},{ONE}", ALONE),
        ("MIG-b", ALONE),
        ("", ALONE),
        ("0:1", MIG_ONE),
        ("0:3,0:1,2", f"{MIG_TWO},{MIG_ONE},{ONE}"),
        ("0:0", WARNED),
        ("0:1,0:0", WARNED),
        ("3", WARNED),
        ("MIG-", WARNED),
        ("MIG-c", WARNED),
        ("MIG-GPU-11111111-aaaa/1/0", WARNED),
        ("GPU-2", WARNED),
        (":", WARNED),
    ],
)
def test_the_table_with_mig_devices(value: str, outcome: str) -> None:
    """B41: a MIG device's name on the host means nothing inside; its UUID does."""
    new, said = cuda_visible_devices(value, MIXED)
    if outcome == ALONE:
        assert (new, said) == (None, "")
    elif outcome == WARNED:
        assert new is None
        assert MIG_TWO in said
    else:
        assert new == outcome


def test_mig_devices_in_the_variable_of_the_vendor() -> None:
    changed, _ = container_environment([], MIXED, "", False)
    assert changed["NVIDIA_VISIBLE_DEVICES"] == f"{MIG_ONE},{MIG_TWO},{ONE}"


entries = st.lists(
    st.sampled_from(
        [
            "A",
            "=",
            "CUDA_VISIBLE_DEVICES=3",
            "CUDA_VISIBLE_DEVICES=1",
            "LD_LIBRARY_PATH=/a",
            "X=\ud800",
        ]
    )
    | st.builds("CUDA_VISIBLE_DEVICES={}".format, st.text(max_size=5))
)


@given(entries, st.sampled_from(["", "/n", "/n:/m"]))
def test_twice_is_once(own: list[str], library_path: str) -> None:
    """B05: a second pass over its own output changes nothing."""
    first, _ = container_environment(own, GPUS, library_path, False)
    merged = [e for e in own if e.partition("=")[0] not in first]
    merged += [f"{name}={value}" for name, value in first.items()]
    second, _ = container_environment(merged, GPUS, library_path, False)
    assert all(f"{name}={value}" in merged for name, value in second.items())
