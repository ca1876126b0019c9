"""What Docker Swarm hands out counts before what an image says (facts: A.1; cases B43 and B44)."""

from __future__ import annotations

import pytest
from gpushim.request.swarm import ignored_resources, share_of, swarm_devices
from hypothesis import given
from hypothesis import strategies as st

UUID = "GPU-7af7a99b-5a4e-4b8f-9a53-1d2b7a99f7aa"


@pytest.mark.parametrize(
    ("environment", "configured", "devices"),
    [
        # None is set.
        (["NVIDIA_VISIBLE_DEVICES=all"], ["DOCKER_RESOURCE_GPU"], "none"),
        (["DOCKER_RESOURCE_OTHER=GPU-1"], ["DOCKER_RESOURCE_GPU"], "none"),
        # Any that is named counts, whatever it holds, and as the vendor's variable does.
        (["DOCKER_RESOURCE_GPU=0,1"], ["DOCKER_RESOURCE_GPU"], ["0", "1"]),
        (["MY_GPUS=GPU-1"], ["MY_GPUS"], ["GPU-1"]),
        (["DOCKER_RESOURCE_GPU=all"], ["DOCKER_RESOURCE_GPU"], ["all"]),
        (["DOCKER_RESOURCE_GPU=none"], ["DOCKER_RESOURCE_GPU"], []),
        # Set to nothing it still wins.
        (["DOCKER_RESOURCE_GPU="], ["DOCKER_RESOURCE_GPU"], None),
        (["DOCKER_RESOURCE_GPU=void"], ["DOCKER_RESOURCE_GPU"], None),
        (["DOCKER_RESOURCE_GPU= , "], ["DOCKER_RESOURCE_GPU"], None),
        # Several are joined in the order of the setting, and each device comes once.
        (["A=1,2", "B=3"], ["B", "A"], ["3", "1", "2"]),
        (["A=1", "B="], ["A", "B"], ["1"]),
        (["A=1", "B=void"], ["A", "B"], None),
        (["A=1", "B=1,2"], ["A", "B"], ["1", "2"]),
        (["A=1", "A=2"], ["A"], ["2"]),
    ],
)
def test_configured_variables(
    environment: list[str], configured: list[str], devices: list[str] | str | None
) -> None:
    found = swarm_devices(environment, configured)
    if devices == "none":
        assert found is None
        return
    assert found is not None
    assert found[0] == devices
    assert found[1].startswith(f"environment {configured[0]}=")
    assert all(name in found[1] for name in configured)


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("GPU-7af7a99b", ["GPU-7af7a99b"]),
        (UUID, [UUID]),
        (UUID.upper(), [UUID.upper()]),
        (f"{UUID}, GPU-aa", [UUID, "GPU-aa"]),
        ("GPU-a,,GPU-b,", ["GPU-a", "GPU-b"]),
        ("MIG-7af7a99b-5a4e", ["MIG-7af7a99b-5a4e"]),
        (f"MIG-{UUID}/1/0", [f"MIG-{UUID}/1/0"]),
        (f"MIG-{UUID}", [f"MIG-{UUID}"]),
        ("GPU-1/1of4", ["GPU-1/1of4"]),
    ],
)
@pytest.mark.parametrize("name", ["GPU", "NVIDIA-GPU", "ACCELERATOR", "NVIDIA_GPU"])
def test_any_resource_that_holds_uuids_counts(name: str, value: str, devices: list[str]) -> None:
    """B43, B44: short UUIDs and hyphens in the name, too."""
    environment = ["NVIDIA_VISIBLE_DEVICES=all", f"DOCKER_RESOURCE_{name}={value}"]
    found = swarm_devices(environment, [])
    assert found == (devices, f"environment DOCKER_RESOURCE_{name}={value}")
    assert ignored_resources(environment, []) == []


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "2",
        "0,1",
        "all",
        "a",
        "GPU",
        "GPU-",
        "GPU--",
        "GPU-xyz",
        "gpu-1",
        "GPU-1;GPU-2",
        "GPU-1,2",
        "GPU-1/2",
        "GPU-1/3of2",
        "1of2",
        "MIG-GPU-1/x",
        "MIG-GPU-1/1/0/0",
        "GPU-\u0661",
        "Tesla-1",
    ],
)
def test_other_resources_do_not_count(value: str) -> None:
    for name in ("SSD", "GPU", "NVIDIA-GPU"):
        environment = [f"DOCKER_RESOURCE_{name}={value}"]
        assert swarm_devices(environment, []) is None
        warnings = ignored_resources(environment, [])
        assert len(warnings) == (0 if name == "SSD" else 1)
        for sentence in warnings:
            assert sentence.startswith(f"DOCKER_RESOURCE_{name}={value} is not counted")
            assert "it holds no UUIDs of GPUs" in sentence


@pytest.mark.parametrize(
    ("devices", "whole", "share"),
    [
        (["GPU-1"], ["GPU-1"], 0),
        (["GPU-1/1of4"], ["GPU-1"], 25),
        (["GPU-1/1of4", "GPU-1/4of4"], ["GPU-1"], 50),
        (["GPU-1/1of2", "GPU-1/2of2"], ["GPU-1"], 0),
        (["GPU-1/1of4", "GPU-2/1of3"], ["GPU-1", "GPU-2"], 33),
        (["GPU-1/1of4", "GPU-2"], ["GPU-1", "GPU-2"], 0),
        (["GPU-1/1of1"], ["GPU-1"], 0),
        (["GPU-1/50of50"], ["GPU-1"], 2),
        # These are no slots, so nothing is taken off.
        (["GPU-1/5of4"], ["GPU-1/5of4"], 0),
        (["GPU-1/0of4"], ["GPU-1/0of4"], 0),
        (["GPU-1/1of51"], ["GPU-1/1of51"], 0),
        (["GPU-1/\u0661of4"], ["GPU-1/\u0661of4"], 0),
        (["MIG-GPU-1/1/0"], ["MIG-GPU-1/1/0"], 0),
        ([], [], 0),
    ],
)
def test_slots(devices: list[str], whole: list[str], share: int) -> None:
    assert share_of(devices) == (whole, share)


def test_several_resources_by_themselves() -> None:
    environment = [
        "DOCKER_RESOURCE_B=GPU-1",
        "DOCKER_RESOURCE_SSD=a",
        "DOCKER_RESOURCE_A=GPU-2",
        "XDOCKER_RESOURCE_C=GPU-3",
    ]
    assert swarm_devices(environment, []) == (
        ["GPU-1", "GPU-2"],
        "environment DOCKER_RESOURCE_B=GPU-1 and DOCKER_RESOURCE_A=GPU-2",
    )


def test_a_resource_that_the_setting_leaves_out_is_warned_about() -> None:
    """B44: the variable that the runtime looked at was not the one that was set."""
    environment = ["DOCKER_RESOURCE_NVIDIA-GPU=GPU-aaaa", "DOCKER_RESOURCE_SSD=a"]
    assert swarm_devices(environment, ["DOCKER_RESOURCE_GPU"]) is None
    (sentence,) = ignored_resources(environment, ["DOCKER_RESOURCE_GPU"])
    assert sentence == (
        "DOCKER_RESOURCE_NVIDIA-GPU=GPU-aaaa is not counted as a request for GPUs: "
        "request.swarm-resource names only DOCKER_RESOURCE_GPU."
    )
    assert ignored_resources(environment, ["DOCKER_RESOURCE_NVIDIA-GPU"]) == []


entries = st.builds(
    "{}={}".format,
    st.sampled_from(["DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_X", "DOCKER_RESOURCE_"]),
    st.sampled_from(["GPU-1", "MIG-GPU-1/1/0", "", "2", "void"]) | st.text(),
)


@given(st.lists(entries | st.text()), st.lists(st.sampled_from(["DOCKER_RESOURCE_GPU", "X"])))
def test_no_environment_raises(environment: list[str], configured: list[str]) -> None:
    found = swarm_devices(environment, configured)
    if found is not None and found[0]:
        assert len(set(found[0])) == len(found[0])
    for sentence in ignored_resources(environment, configured):
        assert sentence.startswith("DOCKER_RESOURCE_")
