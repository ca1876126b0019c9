"""NVIDIA's variables under runc: from what an image or a user sets to what a container can use.

One row for each of what the vendor's toolkit makes of them: which devices, which capabilities, MIG,
requirements, and devices beside GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakehost import preset
from tests.harness import Bundle, Runtime, workspace
from tests.harness.asking import VISIBLE, Ask
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, mount_points, outcomes, probe

pytestmark = pytest.mark.e2e

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
REQUIRE = "NVIDIA_REQUIRE_CUDA"
EVERY = list(range(8))


@pytest.fixture
def ask(
    dgx: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Ask:
    return Ask(dgx, runtime_of(dgx), make_bundle)


@pytest.fixture(scope="module")
def rich() -> Iterator[Machine]:
    """A machine with all that can be asked for beside GPUs, two of whose three are cut by MIG."""
    path = workspace.make("rich", Path("/var/tmp"))
    wanted = preset(
        "mig_host", modify_device_files=0, gds=True, imex_channels=5, nics=2, nvswitches=2
    )
    yield Machine(path, wanted)
    workspace.remove(path)


@pytest.fixture
def ask_rich(
    rich: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Ask:
    return Ask(rich, runtime_of(rich), make_bundle)


# Value -> the GPUs; "none" for the driver's files alone, None for no request.
DEVICES = [
    ("all", EVERY),
    ("0,all", EVERY),
    ("all,none", EVERY),
    ("none", "none"),
    ("0,none", "none"),
    ("none,all", "none"),
    ("void", None),
    ("all,void", None),
    ("none,void", None),
    ("", None),
    (" ", None),
    (" , ,", None),
    (" 0 , 1 ", [0, 1]),
    (",3,,1,2,", [1, 2, 3]),
    ("1,1, 1", [1]),
    ("{5}", [5]),
    ("{5:.12},0", [0, 5]),
    ("nvidia.com/gpu=1", [1]),
    ("nvidia.com/gpu=1,nvidia.com/gpu={2},0", [0, 1, 2]),
    ("nvidia.com/gpu=all", EVERY),
    ("runtime.nvidia.com/gpu=3", [3]),
    ("nvidia.com/gpu=none", "none"),
]


@pytest.mark.parametrize(("value", "expected"), DEVICES, ids=[value for value, _ in DEVICES])
def test_visible_devices(ask: Ask, value: str, expected: list[int] | str | None) -> None:
    """B33, B34: words before names, void before all, and names in any order and spelling."""
    uuids = [gpu.uuid for gpu in ask.machine.host.gpus]
    variable = f"{VISIBLE}={value.format(*uuids)}"
    if expected is None:
        assert ask.left(variable).visible == value
        return
    seen = ask.run(variable)
    chosen = expected if isinstance(expected, list) else []
    assert seen.gpus == chosen
    assert seen.visible == (ask.machine.uuids(*chosen) or "void")
    assert seen.nodes.keys() - {ask.machine.node(index) for index in chosen} == (
        set(CONTROL) if chosen else set()
    )
    assert "/usr/local/nvidia" in json.dumps(seen.spec["mounts"])
    assert seen.recorded


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("ALL", "Write all in lower case"),
        ("VOID", "Write void in lower case"),
        ("0-3", "write each index, as in 0,1,2,3"),
        ("0;1", "no GPU '0;1' here"),
        ("0 1", "no GPU '0 1' here"),
        ("0,8", "no GPU '8' here"),
        ("0:0", "There are no MIG devices here"),
        ("MIG-0", "There are no MIG devices here"),
        ("GPU-", "no GPU 'GPU-' here"),
        ("nvidia.com/gpu=9", "no GPU '9' here"),
        ("00000000:07:00.0", "no GPU '00000000:07:00.0' here"),
    ],
)
def test_names_that_are_none(ask: Ask, value: str, sentence: str) -> None:
    """B36: the variable, its value, the item and what there is."""
    text = ask.refused(f"{VISIBLE}={value}")
    assert f"environment {VISIBLE}={value}" in text
    assert sentence in text
    assert ask.machine.host.gpus[7].uuid in text


def test_explain_has_a_refusal(ask: Ask) -> None:
    text = ask.refused(f"{VISIBLE}=0,8")
    explained = ask.explain()
    assert f"Asked for: 0, 8 (from environment {VISIBLE}=0,8)" in explained
    assert f"Refused: {text.removeprefix('gpushim: ')[:60]}" in explained


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([f"{VISIBLE}=0", f"{VISIBLE}=2"], [2]),
        ([f"{VISIBLE}=0", f"{VISIBLE}=void"], None),
        ([f"{VISIBLE}=void", f"{VISIBLE}=3"], [3]),
        (["CUDA_VERSION=9.0"], EVERY),
        (["CUDA_VERSION=9.0", f"{REQUIRE}="], EVERY),
        (["CUDA_VERSION=9.0", "NVIDIA_REQUIRE_OTHER=brand=nvidia"], EVERY),
        (["CUDA_VERSION=9.0", f"{REQUIRE}=cuda>=9.0"], None),
        (["CUDA_VERSION="], None),
        (["CUDA_VERSION=9.0", f"{VISIBLE}="], None),
        (["CUDA_VERSION=9.0", f"{VISIBLE}=void"], None),
        (["CUDA_VERSION=9.0", f"{VISIBLE}=1"], [1]),
    ],
)
def test_twice_the_same_and_images_of_the_first_generation(
    ask: Ask, env: list[str], expected: list[int] | None
) -> None:
    if expected is None:
        ask.left(*env)
    else:
        assert ask.run(*env).gpus == expected


def test_twice_over_the_same_bundle(ask: Ask) -> None:
    """B05: a create that is done again finds what it wrote itself, and adds nothing to it."""
    bundle = ask.bundle(f"{VISIBLE}=1,3", "NVIDIA_DRIVER_CAPABILITIES=all")
    first = ask.started(bundle).spec
    again = ask.started(bundle)
    assert again.spec == first
    assert again.gpus == [1, 3]
    env = first["process"]["env"]
    assert len(env) == len({entry.partition("=")[0] for entry in env})


def test_what_it_is_called_inside(ask: Ask) -> None:
    """B41: the container's own variable counts in UUIDs; a foreign index is translated or said."""
    seen = ask.run(f"{VISIBLE}=1", "CUDA_VISIBLE_DEVICES=1")
    uuid = ask.machine.uuids(1)
    assert (seen.visible, seen.env["CUDA_VISIBLE_DEVICES"]) == (uuid, uuid)
    seen = ask.run(f"{VISIBLE}=1", "CUDA_VISIBLE_DEVICES=5")
    assert seen.env["CUDA_VISIBLE_DEVICES"] == "5"
    assert "CUDA_VISIBLE_DEVICES=5" in seen.warnings
    assert "CUDA_VISIBLE_DEVICES" not in ask.run(f"{VISIBLE}=1").env


SEVEN = "compat32, compute, display, graphics, ngx, utility, video"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([], "compute, utility"),
        ([f"{CAPABILITIES}="], "compute, utility"),
        ([f"{CAPABILITIES}=all"], SEVEN),
        ([f"{CAPABILITIES}=utility,all"], SEVEN),
        ([f"{CAPABILITIES}= video , compute,video"], "compute, video"),
        ([f"{CAPABILITIES}=,"], "none"),
        (["CUDA_VERSION=9.0"], SEVEN),
        (["CUDA_VERSION=9.0", f"{CAPABILITIES}="], "compute, utility"),
        (["CUDA_VERSION=9.0", f"{CAPABILITIES}=utility"], "utility"),
    ],
)
def test_capabilities(ask: Ask, env: list[str], expected: str) -> None:
    """Which there are, and whether the loader finds what belongs to two of them."""
    look = ("dlopen", "libcuda.so.1", "libnvidia-ml.so.1")
    command = probe(look, ("mounts",))  # whose status tells of each library that is not there
    seen = ask.run(f"{VISIBLE}=0", *env, image="debian", args=command, check=False)
    assert ", ".join(seen.granted["grant"]["capabilities"] or ["none"]) == expected
    assert ("libcuda.so.1 -> " in seen.text) == ("compute" in expected)
    assert ("libnvidia-ml.so.1 -> " in seen.text) == ("utility" in expected)
    assert ("/usr/bin/nvidia-smi" in mount_points(seen.text)) == ("utility" in expected)


@pytest.mark.parametrize("bad", ["foo", "ALL", "none", "void", "compute,foo"])
def test_capabilities_that_are_none(ask: Ask, bad: str) -> None:
    """An error, unless no GPU was asked for: then nobody looks at them."""
    text = ask.refused(f"{VISIBLE}=0", f"{CAPABILITIES}={bad}")
    assert f"{CAPABILITIES}={bad} names" in text
    assert f"'{bad.rpartition(',')[2]}'" in text
    assert SEVEN in text
    if bad == "foo":
        ask.left(f"{VISIBLE}=void", f"{CAPABILITIES}={bad}")


USUAL = (
    "cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=grid,driver>=470,driver<471 "
    "brand=tesla,driver>=550,driver<551 brand=nvidia,driver>=550,driver<551"
)


@pytest.mark.parametrize(
    "env",
    [
        [f"{REQUIRE}=cuda>=12.4"],
        [f"{REQUIRE}={USUAL}"],
        [f"{REQUIRE}=cuda>=9.0,driver!=550.1,arch>=8.0", "NVIDIA_REQUIRE_ARCH=arch<9"],
        [f"{REQUIRE}=CUDA>=99"],
        [f"{REQUIRE}=cuda>=99 unknown>=1 brand=nvidia"],
        ["NVIDIA_REQUIRE_JETPACK=cuda>=99"],
        [f"{REQUIRE}=cuda>=99", "NVIDIA_DISABLE_REQUIRE=true"],
        [f"{REQUIRE}=nonsense", "NVIDIA_DISABLE_REQUIRE=1"],
        ["CUDA_VERSION=12.4.1"],
        ["CUDA_VERSION=v12.4"],
        ["CUDA_VERSION=x", "NVIDIA_DISABLE_REQUIRE=T"],
        ["CUDA_VERSION=x", f"{REQUIRE}=cuda>=12.4"],
    ],
)
def test_demands_that_are_met(ask: Ask, env: list[str]) -> None:
    assert ask.run(f"{VISIBLE}=0", *env).gpus == [0]


@pytest.mark.parametrize(
    ("env", "sentences"),
    [
        (
            [f"{REQUIRE}=cuda>=12.8"],
            ["GPU 2 (NVIDIA A100-SXM4-80GB) does not meet", "needs CUDA 12.8 or later",
             "the driver 550.163.01 offers CUDA 12.4"],
        ),
        (
            [f"{REQUIRE}={USUAL.replace('550', '555')}"],
            ["meets none of the 5 alternatives", "CUDA 12.8 or later", "CUDA 12.4"],
        ),
        (
            [f"{REQUIRE}=cuda>=12.4", "NVIDIA_REQUIRE_DRIVER=driver>=560"],
            ["NVIDIA_REQUIRE_DRIVER", "560 or later", "here it is 550.163.01"],
        ),
        ([f"{REQUIRE}=arch>=9.0"], ["compute capability 9.0 or later", "this one has 8.0"]),
        ([f"{REQUIRE}=brand=Nvidia"], ["the brand Nvidia", "of the brand nvidia"]),
        ([f"{REQUIRE}=cuda>=12.8", "NVIDIA_DISABLE_REQUIRE=yes"], ["CUDA 12.8 or later"]),
        ([f"{REQUIRE}=cuda"], ["can't be read", "'cuda' has no operator"]),
        ([f"{REQUIRE}=cuda>=x"], ["can't be read", "'x' is no version"]),
        (["CUDA_VERSION=13.1"], ["CUDA 13.1 or later", "CUDA 12.4"]),
        (["CUDA_VERSION=x"], ["CUDA_VERSION=x is no version"]),
        (["CUDA_VERSION=4294967296.0"], ["CUDA_VERSION=4294967296.0 is no version"]),
    ],
)  # fmt: skip
def test_demands_that_are_not_met(ask: Ask, env: list[str], sentences: list[str]) -> None:
    """Both versions are named, what is demanded and what is there."""
    text = ask.refused(f"{VISIBLE}=2", *env)
    assert not [sentence for sentence in sentences if sentence not in text], text
    assert "NVIDIA_DISABLE_REQUIRE=1" in text


def test_nobody_looks_at_demands_where_no_gpu_is_asked_for(ask: Ask) -> None:
    ask.left(f"{VISIBLE}=void", f"{REQUIRE}=cuda", "CUDA_VERSION=x")
    ask.left(f"{VISIBLE}=", "CUDA_VERSION=x")


def test_demands_are_of_the_driver_alone_without_a_gpu(ask: Ask) -> None:
    text = ask.refused(f"{VISIBLE}=none", "CUDA_VERSION=x")
    assert "CUDA_VERSION=x is no version" in text
    text = ask.refused(f"{VISIBLE}=none", f"{REQUIRE}=cuda>=12.8")
    assert "this machine does not meet" in text
    assert ask.run(f"{VISIBLE}=none", f"{REQUIRE}=cuda>=12.4").gpus == []


MIG = [
    ("0:0", ["0:0"]),
    ("{0:0}", ["0:0"]),
    ("nvidia.com/gpu=0:1,nvidia.com/gpu={1:3}", ["0:1", "1:3"]),
    ("nvidia.com/gpu=mig0:2", ["0:2"]),
    ("MIG-{gpu}/{gi}/{ci}", ["0:1"]),
]


@pytest.mark.parametrize(("value", "names"), MIG, ids=[value for value, _ in MIG])
def test_mig_devices(ask_rich: Ask, value: str, names: list[str]) -> None:
    """B37: each form is the same device: the node of its GPU and those of its two instances."""
    host = ask_rich.machine.host
    one = host.gpus[0].mig[1]
    for gpu in host.gpus:
        for index, mig in enumerate(gpu.mig):
            value = value.replace(f"{{{gpu.index}:{index}}}", mig.uuid)
    value = value.format(gpu=host.gpus[0].uuid, gi=one.gi, ci=one.ci)
    wanted = set(CONTROL)
    uuids = []
    for name in names:
        first, _, second = name.partition(":")
        device = host.gpus[int(first)].mig[int(second)]
        uuids.append(device.uuid)
        wanted |= {ask_rich.machine.node(int(first))}
        wanted |= {f"nvidia-caps/nvidia-cap{m}" for m in (device.gi_minor, device.ci_minor)}
    seen = ask_rich.run(f"{VISIBLE}={value}")
    assert seen.spec_nodes == wanted
    assert seen.visible == ",".join(uuids)
    assert seen.gpus == sorted({int(name[0]) for name in names})


def test_mig_devices_that_are_not_there(ask_rich: Ask) -> None:
    """B37: out of range, and of a layout that is gone."""
    for value in ("0:9", "2:0", "MIG-GPU-deadbeef/1/0"):
        text = ask_rich.refused(f"{VISIBLE}={value}")
        assert f"'{value}' here" in text
        assert "0:0 3g.40gb, 0:1 2g.20gb" in text


@pytest.mark.parametrize("variable", ["NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"])
def test_the_right_to_partition(ask_rich: Ask, variable: str) -> None:
    node = {"NVIDIA_MIG_CONFIG_DEVICES": "cap1", "NVIDIA_MIG_MONITOR_DEVICES": "cap2"}[variable]
    text = ask_rich.refused(f"{VISIBLE}=2", f"{variable}=all")
    assert f"{variable}=all asks for more than a container without CAP_SYS_ADMIN may have" in text
    seen = ask_rich.run(f"{VISIBLE}=2", f"{variable}=all", administrator=True)
    assert seen.spec_nodes - set(CONTROL) == {"nvidia2", f"nvidia-caps/nvidia-{node}"}
    seen = ask_rich.run(f"{VISIBLE}=2", f"{variable}=")
    assert seen.spec_nodes - set(CONTROL) == {"nvidia2"}
    ask_rich.left(f"{VISIBLE}=void", f"{variable}=all")


FEATURES = {
    "NVIDIA_GDS": {"nvidia-fs0", "nvidia-fs1"},
    "NVIDIA_MOFED": {"infiniband/uverbs0", "infiniband/uverbs1", "infiniband/rdma_cm"},
    "NVIDIA_GDRCOPY": {"gdrdrv"},
    "NVIDIA_NVSWITCH": {"nvidia-nvswitchctl", "nvidia-nvswitch0", "nvidia-nvswitch1"},
}


@pytest.mark.parametrize("variable", FEATURES)
def test_devices_beside_gpus(ask: Ask, ask_rich: Ask, variable: str) -> None:
    """`enabled` and no other word; where the machine has none of it a warning, and no error."""
    nodes = FEATURES[variable]
    look = ("open", *(f"/dev/{node}" for node in sorted(nodes)))
    seen = ask_rich.run(f"{VISIBLE}=2", f"{variable}=enabled", more=[look])
    assert seen.spec_nodes - set(CONTROL) == {"nvidia2", *nodes}
    there = outcomes(seen.text)
    assert {there[f"/dev/{node}"] for node in nodes} <= {"ENXIO", "ENODEV", "OK"}
    seen = ask_rich.run(f"{VISIBLE}=2", f"{variable}=1", more=[look])
    assert seen.spec_nodes - set(CONTROL) == {"nvidia2"}
    assert f"{variable}=1 does nothing: only {variable}=enabled" in seen.warnings
    ask_rich.left(f"{VISIBLE}=void", f"{variable}=enabled")
    if variable in ("NVIDIA_GDS", "NVIDIA_GDRCOPY"):
        seen = ask.run(f"{VISIBLE}=2", f"{variable}=enabled")
        assert seen.gpus == [2]
        assert f"{variable} asks for" in seen.warnings and "not loaded" in seen.warnings


def test_imex_channels(ask: Ask, ask_rich: Ask) -> None:
    seen = ask_rich.run(f"{VISIBLE}=2", "NVIDIA_IMEX_CHANNELS=3, 1,3")
    channels = {f"nvidia-caps-imex-channels/channel{number}" for number in (1, 3)}
    assert seen.spec_nodes - set(CONTROL) == {"nvidia2", *channels}
    seen = ask_rich.run(f"{VISIBLE}=2", "NVIDIA_IMEX_CHANNELS=all")
    assert seen.spec_nodes - set(CONTROL) == {"nvidia2"}
    text = ask_rich.refused(f"{VISIBLE}=2", "NVIDIA_IMEX_CHANNELS=x")
    assert "NVIDIA_IMEX_CHANNELS=x names the IMEX channel 'x'" in text
    ask_rich.left(f"{VISIBLE}=void", "NVIDIA_IMEX_CHANNELS=3")
    ask.left(f"{VISIBLE}=", "NVIDIA_IMEX_CHANNELS=x")


def test_all_features_at_once(ask_rich: Ask) -> None:
    asked = [f"{variable}=enabled" for variable in FEATURES]
    seen = ask_rich.run(f"{VISIBLE}=0:0,2", *asked, "NVIDIA_IMEX_CHANNELS=0")
    assert set().union(*FEATURES.values()) < seen.spec_nodes
    assert "nvidia-caps-imex-channels/channel0" in seen.spec_nodes
    assert not seen.warnings


def test_explain_has_each_value_and_where_it_came_from(ask_rich: Ask) -> None:
    asked = [f"{VISIBLE}=0:0,2", f"{CAPABILITIES}=compute", f"{REQUIRE}=cuda>=12.0"]
    asked += ["NVIDIA_IMEX_CHANNELS=0", "NVIDIA_GDS=enabled"]
    bundle = ask_rich.created(*asked)
    lines = ask_rich.explain(bundle.id).splitlines()
    host = ask_rich.machine.host
    for line in (
        f"Asked for: 0:0, 2 (from environment {VISIBLE}=0:0,2)",
        f"  capabilities: compute (from environment {CAPABILITIES}=compute)",
        "  NVIDIA_GDS from environment NVIDIA_GDS=enabled",
        "  NVIDIA_IMEX_CHANNELS from environment NVIDIA_IMEX_CHANNELS=0",
        f"  the image demands: cuda>=12.0 ({REQUIRE})",
        "Granted: 1 GPU and 1 MIG device",
        f"  2: {host.gpus[2].uuid} (nvidia2, NVIDIA A100-SXM4-80GB)",
        f"  0:0: {host.gpus[0].mig[0].uuid} (3g.40gb of nvidia0, NVIDIA A100-SXM4-80GB)",
        "  device /dev/nvidia-fs0 (504:0, rw)",
    ):
        assert line in lines, (line, lines)
