"""NVIDIA's variables mean what they mean to the vendor's toolkit (facts: A.1 and A.2)."""

from __future__ import annotations

import pytest
from gpushim.errors import GpushimError
from gpushim.request.nvidia import (
    CAPABILITIES,
    driver_capabilities,
    read_request,
    variable,
    visible_devices,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        (None, None),
        # B34: the same as plain runc.
        ("", None),
        ("  ", None),
        (",", None),
        (" , ,", None),
        ("void", None),
        ("0,void", None),
        ("void,all", None),
        ("all,void", None),
        ("none,void", None),
        (" void ", None),
        # B33: driver files without a GPU.
        ("none", []),
        ("0,none", []),
        ("none,all", []),
        ("all", ["all"]),
        ("0,all", ["all"]),
        ("all,none", ["all"]),
        ("1, all ,none", ["all"]),
        ("0", ["0"]),
        (" 0 , 1 ", ["0", "1"]),
        ("3,1,2", ["3", "1", "2"]),
        ("0,,1,", ["0", "1"]),
        ("0,0,1,0", ["0", "1"]),
        # Literal names: no case folding, ranges or other separators.
        ("ALL", ["ALL"]),
        ("VOID", ["VOID"]),
        ("None", ["None"]),
        ("0-3", ["0-3"]),
        ("0;1", ["0;1"]),
        ("0 1", ["0 1"]),
        ("GPU-1,MIG-2,0:1,nvidia.com/gpu=0", ["GPU-1", "MIG-2", "0:1", "nvidia.com/gpu=0"]),
        ("-1", ["-1"]),
        ("voidx", ["voidx"]),
    ],
)
def test_visible_devices(value: str | None, devices: list[str] | None) -> None:
    assert visible_devices(value) == devices


@pytest.mark.parametrize(
    ("value", "supported", "capabilities"),
    [
        (None, CAPABILITIES, ["compute", "utility"]),
        ("", CAPABILITIES, ["compute", "utility"]),
        (None, ("compute", "video"), ["compute"]),
        ("", ("graphics",), []),
        (None, (), []),
        ("all", CAPABILITIES, list(CAPABILITIES)),
        ("all", ("utility", "compute"), ["compute", "utility"]),
        ("compute,all", CAPABILITIES, list(CAPABILITIES)),
        ("all,foo", CAPABILITIES, list(CAPABILITIES)),
        ("video", CAPABILITIES, ["video"]),
        (" video , compute ", CAPABILITIES, ["compute", "video"]),
        ("video,video", CAPABILITIES, ["video"]),
        ("utility,compute", CAPABILITIES, ["compute", "utility"]),
        (",", CAPABILITIES, []),
        ("compute,", CAPABILITIES, ["compute"]),
        ("all", (), []),
    ],
)
def test_capabilities(
    value: str | None, supported: tuple[str, ...], capabilities: list[str]
) -> None:
    assert driver_capabilities(value, supported) == capabilities


@pytest.mark.parametrize("value", ["foo", "ALL", "none", "void", "compute,foo", "compute utility"])
def test_unknown_capabilities_are_refused(value: str) -> None:
    with pytest.raises(GpushimError) as caught:
        driver_capabilities(value, CAPABILITIES)
    wrong = value.partition(",")[2] or value
    assert f"'{wrong}'" in str(caught.value)
    assert "compute, display, graphics" in str(caught.value)
    assert "configuration" not in str(caught.value)


def test_a_capability_that_is_switched_off_is_refused() -> None:
    with pytest.raises(GpushimError, match="supported-driver-capabilities"):
        driver_capabilities("video", ("compute",))


def test_capabilities_are_not_looked_at_without_a_request() -> None:
    for devices in ([], ["NVIDIA_VISIBLE_DEVICES=void"], ["NVIDIA_VISIBLE_DEVICES="]):
        environment = [*devices, "NVIDIA_DRIVER_CAPABILITIES=foo"]
        assert read_request(environment, CAPABILITIES) is None


def test_the_last_of_two_counts() -> None:
    environment = ["X=1", "X=2", "XY=3", "X", "=X", 5, None, "x=4"]
    assert variable(environment, "X") == "2"
    assert variable(environment, "Y") is None
    assert variable(["X="], "X") == ""


def test_a_request_says_where_it_came_from() -> None:
    request = read_request(
        ["NVIDIA_VISIBLE_DEVICES=1,0", "NVIDIA_DRIVER_CAPABILITIES=all"], CAPABILITIES
    )
    assert request is not None
    assert request.to_json() == {
        "devices": ["1", "0"],
        "capabilities": list(CAPABILITIES),
        "sources": {
            "devices": "environment NVIDIA_VISIBLE_DEVICES=1,0",
            "capabilities": "environment NVIDIA_DRIVER_CAPABILITIES=all",
        },
    }
    request = read_request(["NVIDIA_VISIBLE_DEVICES=none"], CAPABILITIES)
    assert request is not None
    assert request.devices == []
    assert request.sources["capabilities"] == "default"


words = st.sampled_from(["void", "none", "all", "0", " 1", "", "GPU-x", "\ud800"]) | st.text(
    max_size=4
)


@given(st.lists(words))
def test_what_comes_out_of_any_list(names: list[str]) -> None:
    found = visible_devices(",".join(names))
    if found:
        assert len(set(found)) == len(found)
        assert all(name == name.strip() and name and "," not in name for name in found)
        assert "void" not in found
        assert "none" not in found
        assert found == ["all"] or "all" not in found
