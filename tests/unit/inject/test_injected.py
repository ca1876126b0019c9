"""What an engine put into a spec: recognised, taken over, and taken out where it is not granted."""

from __future__ import annotations

import pytest
from gpushim.host.model import Gpu
from gpushim.inject.container import Container
from gpushim.inject.injected import adopted, minor_of, take_out
from gpushim.oci.edits import DeviceNode, Edits

GPUS = [
    Gpu(0, "GPU-aa", 1, "0000:07:00.0", "NVIDIA A100"),
    Gpu(1, "GPU-bb", 0, "0000:0b:00.0", "NVIDIA A100"),
    Gpu(2, "", 2, "0000:0c:00.0", "NVIDIA A100", health="broken"),
]
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.1"
MOUNTS = [
    (LIBRARY, LIBRARY),
    ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
    ("/lib/firmware/nvidia/550.1/gsp_ga10x.bin", "/lib/firmware/nvidia/550.1/gsp_ga10x.bin"),
    ("/data/libcuda.so.1", "/usr/lib/libcuda.so.550.1"),
    ("/data", "/data"),
]


def container(environment: list[str], hooks: list[str]) -> Container:
    return Container("/r", False, environment, {}, False, False, hooks)


def nodes(*names: str) -> list[dict[str, object]]:
    return [{"path": f"/dev/{name}", "type": "c"} for name in names]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/nvidia0", 0),
        ("/dev/nvidia12", 12),
        ("/dev/nvidiactl", None),
        ("/dev/nvidia", None),
        ("/dev/nvidia-uvm", None),
        ("/dev/nvidia٣", None),
        ("/dev/nvidia" + "9" * 5000, None),
        ("/other/nvidia0", None),
    ],
)
def test_which_nodes_are_gpus(path: str, expected: int | None) -> None:
    assert minor_of(path) == expected


def test_what_an_engine_injected_and_nobody_granted_is_taken_out() -> None:
    """B45: with Docker 29.2, --gpus 1 has GPU 0 in the spec, whichever was granted."""
    edits = Edits()
    edits.device_nodes = [DeviceNode("/dev/nvidia0", "/dev/nvidia0", 195, 0)]
    injected = nodes("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap3")
    box = container(["NVIDIA_VISIBLE_DEVICES=void"], ["nvidia-cdi-hook", "other"])
    said = take_out(edits, box, injected, MOUNTS, "550.1", "/trees")
    assert edits.remove_devices == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"]
    assert edits.remove_hooks == ["nvidia-cdi-hook"]
    assert edits.remove_mounts == [destination for _, destination in MOUNTS[:3]]
    assert "/dev/nvidia1" in said[0] and "3 mounts" in said[1] and "nvidia-cdi-hook" in said[1]


def test_the_variable_alone_is_no_proof() -> None:
    """An image may have it, and then what is there is the user's."""
    edits = Edits()
    mounts = [("/opt/mine/nvidia-smi", "/usr/bin/nvidia-smi")]
    said = take_out(
        edits,
        container(["NVIDIA_VISIBLE_DEVICES=void"], []),
        nodes("nvidia0"),
        mounts,
        "550.1",
        "/trees",
    )
    assert not (edits.remove_devices or edits.remove_mounts)
    assert "named as a device" in said[0]
    take_out(
        edits,
        container(["NVIDIA_VISIBLE_DEVICES=void"], []),
        nodes("nvidia0"),
        [*mounts, (f"/run/nvidia/driver{LIBRARY}", LIBRARY)],
        "550.1",
        "/trees",
    )
    assert edits.remove_devices == ["/dev/nvidia0"]
    assert edits.remove_mounts == [LIBRARY]


def test_nodes_to_draw_with_are_taken_out_if_they_are_a_gpus() -> None:
    edits = Edits()
    edits.device_nodes = [DeviceNode("/dev/dri/card2", "/dev/dri/card2", 226, 2)]
    there = nodes("dri/card0", "dri/card1", "dri/renderD128", "dri/card2")
    box = container([], ["nvidia-cdi-hook"])
    take_out(edits, box, there, [], "550.1", "/trees", ["card1", "card2", "renderD128"])
    # card0 is of another vendor's card.
    assert edits.remove_devices == ["/dev/dri/card1", "/dev/dri/renderD128"]


def test_a_spec_of_our_own_making_is_known_by_its_mounts() -> None:
    edits = Edits()
    mounts = [("/trees/550.1/compute-aa", "/usr/local/nvidia"), ("/trees2/x", "/x")]
    take_out(edits, container([], []), nodes("nvidia1"), mounts, "550.1", "/trees")
    assert edits.remove_devices == ["/dev/nvidia1"]
    assert edits.remove_mounts == ["/usr/local/nvidia"]


def test_a_node_that_the_user_named_stays() -> None:
    edits = Edits()
    box = container(["NVIDIA_VISIBLE_DEVICES=0"], [])
    said = take_out(edits, box, nodes("nvidia1", "nvidiactl"), MOUNTS, "550.1", "/trees")
    assert not (edits.remove_devices or edits.remove_hooks or edits.remove_mounts)
    assert len(said) == 1 and "/dev/nvidia1" in said[0] and "not granted" in said[0]


def test_nothing_is_said_where_all_is_granted() -> None:
    edits = Edits()
    edits.device_nodes = [DeviceNode("/dev/nvidia0", "/dev/nvidia0", 195, 0)]
    assert (
        take_out(edits, container(["NVIDIA_VISIBLE_DEVICES=void"], []), [], [], "550.1", "/trees")
        == []
    )


def numbered(name: str, minor: int, major: int = 195) -> dict[str, object]:
    return {"path": f"/dev/{name}", "type": "c", "major": major, "minor": minor}


def test_devices_of_the_engine_count_as_granted_by_name() -> None:
    there = [numbered(f"nvidia{minor}", minor) for minor in (0, 7, 2)]
    found = adopted([*there, numbered("nvidiactl", 255)], GPUS, 195)
    assert found is not None
    request, grant = found
    assert grant.gpus == [GPUS[1]]
    assert request.devices == ["GPU-bb"]
    assert "/dev/nvidia0" in request.sources["devices"]
    assert adopted([numbered("nvidiactl", 255), numbered("nvidia7", 7)], GPUS, 195) is None


def test_the_numbers_of_a_node_say_which_gpu_it_is() -> None:
    """A user may call a node what he likes, and the record must not name another's GPU."""
    found = adopted([numbered("nvidia0", 1)], GPUS, 195)
    assert found is not None and found[1].gpus == [GPUS[0]]
    assert adopted([numbered("nvidia0", 0, major=1)], GPUS, 195) is None
    assert adopted(nodes("nvidia0"), GPUS, 195) is None
