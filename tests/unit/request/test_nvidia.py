"""NVIDIA's variables mean what they mean to the vendor's toolkit (facts: A.1 to A.3, A.5)."""

from __future__ import annotations

import pytest
from gpushim.errors import GpushimError
from gpushim.request.extras import features, imex_channels, mig_modes
from gpushim.request.nvidia import (
    CAPABILITIES,
    devices_of,
    driver_capabilities,
    is_legacy,
    variable,
    variables,
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
    with pytest.raises(GpushimError, match="but here is none"):
        driver_capabilities("video", ())


@pytest.mark.parametrize(
    ("value", "supported", "capabilities"),
    [
        (None, CAPABILITIES, list(CAPABILITIES)),
        (None, ("video", "compute"), ["compute", "video"]),
        (None, (), []),
        ("", CAPABILITIES, ["compute", "utility"]),
        ("", ("compute", "video"), ["compute"]),
        ("all", CAPABILITIES, list(CAPABILITIES)),
        ("video,compute", CAPABILITIES, ["compute", "video"]),
        (",", CAPABILITIES, []),
        (" ", CAPABILITIES, []),
    ],
)
def test_capabilities_of_a_legacy_image(
    value: str | None, supported: tuple[str, ...], capabilities: list[str]
) -> None:
    assert driver_capabilities(value, supported, legacy=True) == capabilities


@pytest.mark.parametrize("value", ["foo", "ALL", "none", "void"])
def test_unknown_capabilities_of_a_legacy_image_are_refused(value: str) -> None:
    with pytest.raises(GpushimError, match=f"'{value}'"):
        driver_capabilities(value, CAPABILITIES, legacy=True)


@pytest.mark.parametrize(
    ("environment", "legacy"),
    [
        ([], False),
        (["CUDA_VERSION="], False),
        (["CUDA_VERSION=12.4"], True),
        (["CUDA_VERSION=nonsense"], True),
        (["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA="], True),
        (["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"], False),
        # Other demands do not matter.
        (["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_DRIVER=driver>=1"], True),
        (["NVIDIA_REQUIRE_CUDA=cuda>=12.4"], False),
    ],
)
def test_legacy_images(environment: list[str], legacy: bool) -> None:
    assert is_legacy(environment) is legacy
    assert devices_of(environment) == (["all"] if legacy else None)


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("", None),
        (" ", None),
        (",", None),
        ("void", None),
        ("none", []),
        ("0", ["0"]),
        ("nvidia.com/gpu=0,1", ["nvidia.com/gpu=0", "1"]),
        ("all", ["all"]),
    ],
)
def test_devices_that_a_legacy_image_names(value: str, devices: list[str] | None) -> None:
    for image in ([], ["CUDA_VERSION=9.0"]):
        assert devices_of([*image, f"NVIDIA_VISIBLE_DEVICES={value}"]) == devices


def test_variables_of_a_prefix() -> None:
    environment = ["A_X=1", "A_Y=2", "A_X=3", "B_X=4", "A_", "A_Z", None, "A_=5", "A=6"]
    assert variables(environment, "A_") == {"A_X": "3", "A_Y": "2", "A_": "5"}
    # The prefix is of the name, so that no value is taken for a part of one.
    assert variables(["A=_X=1"], "A=_") == {}


@pytest.mark.parametrize(
    ("environment", "wanted", "warned"),
    [
        ([], [], []),
        (["NVIDIA_GDS=enabled"], ["gds"], []),
        (
            [
                "NVIDIA_NVSWITCH=enabled",
                "NVIDIA_GDRCOPY=enabled",
                "NVIDIA_MOFED=enabled",
                "NVIDIA_GDS=enabled",
            ],
            ["gds", "mofed", "gdrcopy", "nvswitch"],
            [],
        ),
        (["NVIDIA_GDS=", "NVIDIA_MOFED=disabled"], [], []),
        (["NVIDIA_GDS=true", "NVIDIA_MOFED=Enabled"], [], ["NVIDIA_GDS=true", "NVIDIA_MOFED=Ena"]),
        (["NVIDIA_GDS=enabled", "NVIDIA_GDS="], [], []),
    ],
)
def test_features(environment: list[str], wanted: list[str], warned: list[str]) -> None:
    found, sentences = features(environment)
    assert found == wanted
    assert len(sentences) == len(warned)
    for sentence, beginning in zip(sentences, warned, strict=True):
        assert sentence.startswith(beginning)
        assert f"only {beginning.partition('=')[0]}=enabled" in sentence


@pytest.mark.parametrize(
    ("value", "mounts", "channels"),
    [
        (None, [], []),
        ("", [], []),
        ("3,4", [], [3, 4]),
        (" 4 , 3,,4", [], [4, 3]),
        ("0,00,2047", [], [0, 2047]),
        ("1048575", [], [1048575]),
        ("all", [], []),
        ("0,all", [], []),
        ("none", [], []),
        ("void", [], []),
        # Mounts come first.
        ("3", ["5", "6", "5"], [5, 6]),
        ("bad", ["5"], [5]),
        ("3", ["all"], []),
        (None, ["0"], [0]),
    ],
)
def test_imex_channels(value: str | None, mounts: list[str], channels: list[int]) -> None:
    assert imex_channels(value, mounts) == channels


def test_imex_channels_beyond_what_a_driver_has_are_refused() -> None:
    """An image must not fill the host's /dev with nodes."""
    most = ",".join(map(str, range(2048)))
    assert len(imex_channels(f"{most},0", [])) == 2048
    with pytest.raises(GpushimError, match="2049 IMEX channels"):
        imex_channels(f"{most},5000", [])


@pytest.mark.parametrize(
    "name", ["x", "-1", "1048576", "9" * 5000, "1.0", "\u0661", "0-3", "channel0"]
)
def test_what_is_no_imex_channel_is_refused(name: str) -> None:
    with pytest.raises(GpushimError, match=f"NVIDIA_IMEX_CHANNELS=.*'{name[:100]}"):
        imex_channels(f"0,{name}", [])
    with pytest.raises(GpushimError, match="A mount beneath /var/run/nvidia-container-devices/im"):
        imex_channels(None, ["0", name])


MIG = ("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES")


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("", False),
        ("all", True),
        ("0,1", True),
        ("GPU-x", True),
        (",", False),
        ("none", False),
        ("void", False),
    ],
)
def test_mig_administration(value: str, given: bool) -> None:
    for place, name in enumerate(MIG):
        found = mig_modes([f"{name}={value}"], privileged=True)
        assert found == tuple(given and other == place for other in range(2))
        if not value:
            assert mig_modes([f"{name}={value}"], privileged=False) == (False, False)
            continue
        with pytest.raises(GpushimError, match=f"{name}={value} .*CAP_SYS_ADMIN"):
            mig_modes([f"{name}={value}"], privileged=False)


def test_mig_administration_that_nobody_asks_for() -> None:
    assert mig_modes([], privileged=False) == (False, False)
    assert mig_modes([], privileged=True) == (False, False)


def test_the_last_of_two_counts() -> None:
    environment = ["X=1", "X=2", "XY=3", "X", "=X", 5, None, "x=4"]
    assert variable(environment, "X") == "2"
    assert variable(environment, "Y") is None
    assert variable(["X="], "X") == ""


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


@given(st.lists(words | st.text()), st.lists(words), st.booleans())
def test_no_value_raises_anything_but_our_error(
    names: list[str], mounts: list[str], flag: bool
) -> None:
    value = ",".join(names)
    environment = [f"{name}={value}" for name in (*MIG, "NVIDIA_GDS", "CUDA_VERSION")]
    for call in (
        lambda: driver_capabilities(value, CAPABILITIES, flag),
        lambda: imex_channels(value, mounts),
        lambda: mig_modes(environment, flag),
        lambda: features(environment),
        lambda: devices_of(environment),
    ):
        try:
            call()
        except GpushimError as error:
            assert error.sentence
            assert str(error).isprintable()
