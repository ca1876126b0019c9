"""What counts as a request is the configuration's to say; gpushim's own keys; starting without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Bundle, Runtime, workspace
from tests.harness.asking import VISIBLE, Ask
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, probe

pytestmark = pytest.mark.e2e

EVERY = list(range(8))
ACCEPT = "accept-nvidia-visible-devices-envvar-when-unprivileged"
LISTS = "/var/run/nvidia-container-devices"
VENDOR_HOOK = "nvidia-container-runtime-hook"

Configure = Callable[..., Ask]


@pytest.fixture(scope="module")
def shared() -> Iterator[Machine]:
    """A DGX A100 whose configuration each test sets anew, and nothing else of it."""
    path = workspace.make("policies", Path("/var/tmp"))
    yield Machine(path)
    workspace.remove(path)


@pytest.fixture
def policy(
    shared: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Configure:
    """Sets keys of [request], by default none, and asks there."""

    def set_and_ask(*lines: str) -> Ask:
        shared.configure("\n".join(["[request]", *lines, ""]) if lines else "")
        return Ask(shared, runtime_of(shared), make_bundle)

    return set_and_ask


@pytest.fixture
def bare(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Configure:
    """The same on a machine without a driver that could be loaded; what needs it waits for it."""
    machine = make_machine()
    machine.host.unload_driver(refuse=True)

    def set_and_ask(*lines: str) -> Ask:
        machine.configure("\n".join(["[request]", *lines, ""]) if lines else "")
        config = Path(machine.places.config)
        config.write_text(config.read_text().replace('"10s"', '"200ms"'))
        return Ask(machine, runtime_of(machine), make_bundle)

    return set_and_ask


def lists(*names: str, root: str = LISTS, source: str = "/dev/null") -> list[dict[str, Any]]:
    """Mounts that name devices, as NVIDIA's plugin for Kubernetes makes them."""
    return [
        {"destination": f"{root}/{name}", "type": "bind", "source": source, "options": ["bind"]}
        for name in names
    ]


def hook(name: str = VENDOR_HOOK) -> dict[str, Any]:
    """The hook of the vendor's that Docker adds for --gpus; here it fails if it is run."""
    return {"prestart": [{"path": f"/bin/{name}", "args": [name, "prestart"]}]}


# Lists of devices that mounts make.


def test_mounts_name_nothing_by_default(policy: Configure) -> None:
    ask = policy()
    ask.left(mounts=lists("0"))
    assert ask.run(f"{VISIBLE}=2", mounts=lists("0")).gpus == [2]


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (lists("3", "1", "3"), [1, 3]),
        (lists("all"), EVERY),
        (lists("{5}"), [5]),
        (lists("cdi/nvidia.com/gpu/2", "cdi/nvidia.com/gpu=4"), [2, 4]),
        (lists("cdi/nonsense", "1"), [1]),
        (lists("void"), None),
        # Where they name nothing, the environment counts.
        (lists("0", root="/run/nvidia-container-devices"), [7]),
        (lists("0", source="/dev/zero"), [7]),
        (lists("x/../../../run/nvidia-container-devices/../0"), [7]),
        (lists("cdi/nonsense"), [7]),
    ],
)
def test_mounts_that_name_devices(
    policy: Configure, mounts: list[dict[str, Any]], expected: list[int] | None
) -> None:
    """They outrank the environment, whether or not that may ask."""
    ask = policy("accept-nvidia-visible-devices-as-volume-mounts = true", f"{ACCEPT} = true")
    uuids = [gpu.uuid for gpu in ask.machine.host.gpus]
    mounts = [{**one, "destination": one["destination"].format(*uuids)} for one in mounts]
    if expected is None:
        ask.left(f"{VISIBLE}=7", mounts=mounts)
        return
    assert ask.run(f"{VISIBLE}=7", mounts=mounts).gpus == expected


def test_mounts_ask_where_the_environment_may_not(policy: Configure) -> None:
    ask = policy("accept-nvidia-visible-devices-as-volume-mounts = true", f"{ACCEPT} = false")
    bundle = ask.created(f"{VISIBLE}=all", mounts=lists("2"))
    assert f"Asked for: 2 (from mounts beneath {LISTS}: 2)" in ask.explain(bundle.id)
    ask.delete(bundle)
    text = ask.refused(mounts=lists("9"))
    assert f"mounts beneath {LISTS}: 9" in text and "no GPU '9' here" in text


def test_channels_that_mounts_name(policy: Configure) -> None:
    """They outrank the variable, and are no GPUs; the driver makes a node for each on demand."""
    ask = policy("accept-nvidia-visible-devices-as-volume-mounts = true")
    seen = ask.run(f"{VISIBLE}=2", "NVIDIA_IMEX_CHANNELS=5", mounts=lists("imex/3", "imex/3"))
    node = "nvidia-caps-imex-channels/channel3"
    assert seen.spec_nodes - set(CONTROL) == {ask.machine.node(2), node}
    ask.left("NVIDIA_IMEX_CHANNELS=5", mounts=lists("imex/3"))
    text = ask.refused(f"{VISIBLE}=2", mounts=lists("imex/x"))
    assert f"beneath {LISTS}/imex names the IMEX channel 'x'" in text
    ask = policy()
    seen = ask.run(f"{VISIBLE}=2", mounts=lists("imex/3"))
    assert node not in seen.spec_nodes


# Docker Swarm.


def test_swarm_by_short_uuids(policy: Configure) -> None:
    """B43: the resource outranks the image's `all`; of a UUID a beginning that is unique does."""
    ask = policy()
    uuids = [gpu.uuid for gpu in ask.machine.host.gpus]
    image = f"{VISIBLE}=all"
    assert ask.run(f"DOCKER_RESOURCE_GPU={uuids[4][:12]}", image).gpus == [4]
    assert ask.run(f"DOCKER_RESOURCE_GPU={uuids[4]},{uuids[2][:12]}", image).gpus == [2, 4]
    begins = [uuid[:5] for uuid in uuids]
    twice = next(begin for begin in begins if begins.count(begin) > 1)
    text = ask.refused(f"DOCKER_RESOURCE_GPU={twice}", image)
    assert f"environment DOCKER_RESOURCE_GPU={twice}" in text
    assert "begins more than one UUID" in text
    text = ask.refused("DOCKER_RESOURCE_GPU=GPU-00000000", image)
    assert "no GPU 'GPU-00000000' here" in text


def test_two_replicas_never_overlap(policy: Configure) -> None:
    """B44: the variable's own name does not matter, a hyphen in it neither."""
    ask = policy()
    image = f"{VISIBLE}=all"
    found = []
    for index in (6, 1):
        uuid = ask.machine.uuids(index)
        found.append(ask.run(f"DOCKER_RESOURCE_NVIDIA-GPU={uuid}", image).gpus)
    assert found == [[6], [1]]
    # What is no UUID is counted by nobody, and that is said, since all replicas get all GPUs.
    seen = ask.run("DOCKER_RESOURCE_NVIDIA-GPU=2", image)
    assert seen.gpus == EVERY
    assert "DOCKER_RESOURCE_NVIDIA-GPU=2 is not counted as a request for GPUs" in seen.warnings


def test_the_variables_that_are_configured(policy: Configure) -> None:
    """Those that are set are joined in the order of the setting; set to nothing means no GPU."""
    ask = policy('swarm-resource = ["DOCKER_RESOURCE_B", "DOCKER_RESOURCE_A"]')
    uuids = [gpu.uuid for gpu in ask.machine.host.gpus]
    image = f"{VISIBLE}=all"
    bundle = ask.created(f"DOCKER_RESOURCE_A={uuids[1]}", f"DOCKER_RESOURCE_B={uuids[0]}", image)
    source = f"DOCKER_RESOURCE_B={uuids[0]} and DOCKER_RESOURCE_A={uuids[1]}"
    assert f"{uuids[0]}, {uuids[1]} (from environment {source})" in ask.explain(bundle.id)
    ask.delete(bundle)
    ask.left("DOCKER_RESOURCE_B=", image)
    seen = ask.run(f"DOCKER_RESOURCE_GPU={uuids[0]}", f"{VISIBLE}=3")
    assert seen.gpus == [3]
    assert "request.swarm-resource names only DOCKER_RESOURCE_B, DOCKER_RESOURCE_A" in (
        seen.warnings
    )
    assert ask.run(image).gpus == EVERY


# Who may ask by the environment.

ASKING = [
    [f"{VISIBLE}=all"],
    [f"{VISIBLE}=0", "GPUSHIM_GPUS=1"],
    ["GPUSHIM_GPUS=1"],
    ["CUDA_VERSION=9.0"],
    ["DOCKER_RESOURCE_GPU=GPU-1234"],
]


@pytest.mark.parametrize("env", ASKING)
def test_an_environment_that_may_not_ask(policy: Configure, env: list[str]) -> None:
    """B40: such a container starts without a GPU, which the log has with its id."""
    ask = policy(f"{ACCEPT} = false")
    seen = ask.left(*env)
    assert f"request.{ACCEPT} is false" in seen.warnings
    assert "it starts without" in seen.warnings
    assert env[-1] in seen.warnings
    assert [line["id"] for line in seen.log] == [seen.bundle.id]


def test_who_may_ask_by_it(policy: Configure) -> None:
    """B40: CAP_SYS_ADMIN in the bounding set; null capabilities are none."""
    ask = policy(f"{ACCEPT} = false")
    seen = ask.run(f"{VISIBLE}=2", administrator=True)
    assert seen.gpus == [2]
    for capabilities in (None, {"bounding": None}, {"effective": ["CAP_SYS_ADMIN"]}):
        bundle = ask.bundle(f"{VISIBLE}=2", args=probe(["open", "/dev/nvidiactl"]))
        bundle.config["process"]["capabilities"] = capabilities
        bundle.write()
        assert ask.started(bundle, check=False).untouched
    assert ask.run(f"{VISIBLE}=2", annotations={"gpushim.gpus": "0,3"}).gpus == [0, 3]
    seen = ask.left(f"{VISIBLE}=void")
    assert seen.log == []


def test_refusing_instead(policy: Configure) -> None:
    ask = policy(f"{ACCEPT} = false", "refuse-unaccepted-environment = true")
    text = ask.refused(f"{VISIBLE}=all")
    assert f"environment {VISIBLE}=all" in text and f"request.{ACCEPT} is false" in text
    assert "Ask by --gpus" in text
    assert f"Refused: GPUs were asked for by environment {VISIBLE}=all" in ask.explain()
    ask.left(f"{VISIBLE}=void")
    assert ask.run(f"{VISIBLE}=all", annotations={"gpushim.gpus": "0,3"}).gpus == [0, 3]


# What NVIDIA_VISIBLE_DEVICES counts for.


def test_visible_devices_are_ignored(policy: Configure) -> None:
    ask = policy('visible-devices = "ignore"')
    for env in ([f"{VISIBLE}=0"], [f"{VISIBLE}=all"], ["CUDA_VERSION=9.0"]):
        ask.left(*env)
    seen = ask.run(f"{VISIBLE}=0", "GPUSHIM_GPUS=1,2")
    assert seen.gpus == [1, 2]
    assert seen.visible == ask.machine.uuids(1, 2)


def test_visible_devices_are_allocated(policy: Configure) -> None:
    """What the variable names is one container's own then, as in any other request."""
    ask = policy('visible-devices = "allocate"')
    bundle = ask.created(f"{VISIBLE}=0")
    text = ask.refused(f"{VISIBLE}=0,1")
    assert f"environment {VISIBLE}=0,1" in text
    assert f"0 is held by {bundle.id[:12]} (exclusive" in text
    assert f"Asked for: 0, 1 (from environment {VISIBLE}=0,1)" in ask.explain()
    assert ask.run("GPUSHIM_GPUS=1,2", f"{VISIBLE}=0").gpus == [1, 2]
    ask.delete(bundle)


@pytest.mark.parametrize("env", [[f"{VISIBLE}=all"], [f"{VISIBLE}=2,all"], ["CUDA_VERSION=9.0"]])
def test_all_in_the_environment_is_no_request(policy: Configure, env: list[str]) -> None:
    """B39: an image's own `all` on a machine whose default runtime is gpushim."""
    ask = policy('all-from-environment = "none"')
    seen = ask.left(*env)
    (line,) = seen.log
    assert (line["level"], line["id"]) == ("warning", seen.bundle.id)
    assert f"No GPU was given for environment {env[0]}" in seen.warnings
    assert "--gpus" in seen.warnings and "GPUSHIM_GPUS" in seen.warnings


def test_who_asks_for_all_in_other_words_gets_them(policy: Configure) -> None:
    """B39."""
    ask = policy('all-from-environment = "none"')
    assert ask.run(f"{VISIBLE}=all", "GPUSHIM_GPUS=all").gpus == EVERY
    assert ask.run(f"{VISIBLE}=all", annotations={"gpushim.gpus": "all"}).gpus == EVERY
    assert ask.run(f"{VISIBLE}=5").gpus == [5]
    ask = policy('all-from-environment = "all"')
    assert ask.run(f"{VISIBLE}=all").gpus == EVERY


def test_an_image_with_all_starts_where_there_is_no_driver(bare: Configure) -> None:
    """B39: what is no request needs none, and nobody waits for one; what is one does."""
    ask = bare('all-from-environment = "none"')
    assert "No GPU was given" in ask.left(f"{VISIBLE}=all").warnings
    # The first had to find out the configuration; from then on nobody looks for a driver.
    # A node of another GPU to draw with makes no difference.
    before = len(ask.machine.log_lines())
    screen = {"path": "/dev/dri/card0", "type": "c", "major": 226, "minor": 0}
    assert "No GPU was given" in ask.left(f"{VISIBLE}=all", nodes=[screen]).warnings
    assert len(ask.machine.log_lines()) == before + 1
    ask = bare(f"{ACCEPT} = false")
    assert "it starts without" in ask.left(f"{VISIBLE}=all").warnings
    ask = bare('visible-devices = "ignore"')
    ask.left(f"{VISIBLE}=all")


# What images demand, and what they may have.


def test_demands_are_not_looked_at(policy: Configure) -> None:
    ask = policy("disable-require = true")
    assert ask.run(f"{VISIBLE}=0", "NVIDIA_REQUIRE_CUDA=cuda>=99").gpus == [0]
    assert ask.run("CUDA_VERSION=x").gpus == EVERY


def test_capabilities_that_are_supported(policy: Configure) -> None:
    ask = policy('supported-driver-capabilities = ["utility", "video"]')
    name = "NVIDIA_DRIVER_CAPABILITIES"
    for env, expected in (
        ([], ["utility"]),
        ([f"{name}=all"], ["utility", "video"]),
        (["CUDA_VERSION=9.0"], ["utility", "video"]),
        ([f"{name}=video"], ["video"]),
    ):
        seen = ask.run(f"{VISIBLE}=0", *env)
        assert seen.granted["grant"]["capabilities"] == expected
    text = ask.refused(f"{VISIBLE}=0", f"{name}=compute")
    assert "'compute', but here there are only utility, video" in text
    assert "request.supported-driver-capabilities" in text
    ask = policy("supported-driver-capabilities = []")
    assert ask.run(f"{VISIBLE}=0").granted["grant"]["capabilities"] == []


def test_cuda_visible_devices_is_strict(policy: Configure) -> None:
    """B41."""
    ask = policy('cuda-visible-devices = "strict"')
    text = ask.refused(f"{VISIBLE}=1", "CUDA_VISIBLE_DEVICES=5")
    assert "CUDA_VISIBLE_DEVICES=5" in text
    seen = ask.run(f"{VISIBLE}=1", "CUDA_VISIBLE_DEVICES=1")
    assert seen.env["CUDA_VISIBLE_DEVICES"] == ask.machine.uuids(1)


# gpushim's own keys.

GPUS = [
    ("2", [0, 1]),
    ("1", [0]),
    ("all", EVERY),
    ("none", []),
    ("device=3", [3]),
    ("1,4", [1, 4]),
    ("{5},{2:.12}", [2, 5]),
    ("nvidia.com/gpu=6", [6]),
    ("0", None),
    ("void", None),
]


@pytest.mark.parametrize(("value", "expected"), GPUS, ids=[value for value, _ in GPUS])
def test_gpus(policy: Configure, value: str, expected: list[int] | None) -> None:
    """The same by annotation and by variable, and ahead of the vendor's."""
    ask = policy()
    value = value.format(*(gpu.uuid for gpu in ask.machine.host.gpus))
    for env, said in (
        ([f"GPUSHIM_GPUS={value}"], {}),
        ([], {"gpushim.gpus": value}),
    ):
        if expected is None:
            ask.left(*env, f"{VISIBLE}=7", annotations=said)
        else:
            seen = ask.run(*env, f"{VISIBLE}=7", annotations=said)
            assert seen.gpus == expected
            assert seen.visible == (ask.machine.uuids(*expected) or "void")


def test_annotations_go_first(policy: Configure) -> None:
    ask = policy()
    seen = ask.run("GPUSHIM_GPUS=0", f"{VISIBLE}=1", annotations={"gpushim.gpus": "device=2"})
    assert seen.gpus == [2]
    pod = {"io.kubernetes.container.name": "second", "gpushim.gpus": "device=2"}
    mine = {**pod, "container.second.gpushim.gpus": "device=3"}
    assert ask.run(annotations=mine).gpus == [3]
    other = {**pod, "container.first.gpushim.gpus": "device=3"}
    assert ask.run(annotations=other).gpus == [2]
    sandbox = {**mine, "io.kubernetes.cri.container-type": "sandbox"}
    ask.left(f"{VISIBLE}=all", annotations=sandbox)


def test_a_count_takes_any(policy: Configure) -> None:
    ask = policy()
    bundle = ask.created(annotations={"gpushim.gpus": "3"})
    explained = ask.explain(bundle.id)
    assert "Asked for: 3 GPUs, whichever (from annotation gpushim.gpus=3)" in explained
    assert "Granted: 3 GPUs" in explained
    ask.delete(bundle)
    text = ask.refused("GPUSHIM_GPUS=9")
    assert "9 GPUs were asked for by environment GPUSHIM_GPUS=9, and there are only 8 GPUs" in text
    for value, sentence in (
        ("-1", "'-1' is no choice of GPUs (environment GPUSHIM_GPUS=-1)"),
        ("ALL", "Write all in lower case"),
        ("0-3", "Ranges are not known"),
        ("count=2", "Write the number alone"),
        ("two", "'two' is no choice of GPUs (environment GPUSHIM_GPUS=two)"),
    ):
        assert sentence in ask.refused(f"GPUSHIM_GPUS={value}", f"{VISIBLE}=0")


KEYS = [
    ("memory", "2gb", "2048 MiB of each GPU"),
    ("compute", "50%", "50% of each GPU's multiprocessors"),
    ("mode", "Exclusive", "exclusive"),
    ("model", "*A100*", "*A100*"),
    ("compute-capability", ">=8", ">=8.0"),
    ("priority", "7", "7"),
    ("placement", "link", "link"),
    ("numa", "prefer", "prefer"),
]


@pytest.mark.parametrize(("key", "value", "shown"), KEYS, ids=[row[0] for row in KEYS])
def test_each_key(policy: Configure, key: str, value: str, shown: str) -> None:
    """It is acted on, and told with where it was said."""
    ask = policy()
    bundle = ask.created("GPUSHIM_GPUS=1", annotations={f"gpushim.{key}": value})
    said = f"  {key}: {shown} (from annotation gpushim.{key}={value})"
    assert said in ask.explain(bundle.id).splitlines()
    ask.delete(bundle)


def test_all_keys_at_once(policy: Configure) -> None:
    """By variables, of which the annotation outranks one; explain has each value and its source."""
    ask = policy()
    names = {key: "GPUSHIM_" + key.upper().replace("-", "_") for key, _, _ in KEYS}
    env = [f"{names[key]}={value}" for key, value, _ in KEYS]
    bundle = ask.created(
        "GPUSHIM_GPUS=2", *env, "GPUSHIM_WAIT=10m", annotations={"gpushim.wait": "5s"}
    )
    explained = ask.explain(bundle.id).splitlines()
    assert "Asked for: 2 GPUs, whichever (from environment GPUSHIM_GPUS=2)" in explained
    assert "Granted: 2 GPUs" in explained
    expected = {key: (shown, f"environment {names[key]}={value}") for key, value, shown in KEYS}
    expected["wait"] = ("5 seconds", "annotation gpushim.wait=5s")
    for key, (shown, source) in expected.items():
        assert f"  {key}: {shown} (from {source})" in explained
    ask.delete(bundle)
    text = ask.refused(f"{VISIBLE}=0", "GPUSHIM_MEMORY=much")
    assert "'much' is no amount of GPU memory (environment GPUSHIM_MEMORY=much)" in text
    text = ask.refused("GPUSHIM_MIG=1g.10gb")
    assert "1 MIG device of profile 1g.10gb was asked for by environment GPUSHIM_MIG" in text


def test_keys_without_a_request_for_gpus(policy: Configure) -> None:
    """What a GPU must be asks for one; how it is dealt with means nothing without one."""
    ask = policy()
    assert len(ask.run("GPUSHIM_MEMORY=8g").gpus) == 1
    ask.refused("GPUSHIM_MEMORY=800g")
    assert "Asked for: 1 GPU, whichever (from environment GPUSHIM_MEMORY=800g" in ask.explain()
    seen = ask.left("GPUSHIM_PRIORITY=3", "GPUSHIM_OPTIONAL=true")
    assert "No GPU was asked for, so this means nothing" in seen.warnings


@pytest.mark.parametrize(
    ("env", "annotations", "sentences"),
    [
        (["GPUSHIM_MEMROY=2g"], {}, ["variable GPUSHIM_MEMROY is", "did you mean GPUSHIM_MEMORY?"]),
        ([], {"gpushim.gpu": "2"}, ["annotation gpushim.gpu is", "did you mean gpushim.gpus?"]),
        ([], {"gpushim.zzz": "2"}, ["annotation gpushim.zzz is not known", "There are gpushim."]),
        (["GPUSHIM_gpus=2"], {}, ["variable GPUSHIM_gpus is", "did you mean GPUSHIM_GPUS?"]),
    ],
)
def test_keys_that_are_not_known(
    policy: Configure, env: list[str], annotations: dict[str, str], sentences: list[str]
) -> None:
    text = policy().refused(f"{VISIBLE}=0", *env, annotations=annotations)
    assert not [sentence for sentence in sentences if sentence not in text], text


# Starting without a GPU.


@pytest.mark.parametrize("how", ["annotation", "variable"])
def test_optional_without_a_driver(bare: Configure, how: str) -> None:
    """B45: the documented way to fall back; nobody else looks for a GPU, nor a later process."""
    ask = bare()
    annotations = {"gpushim.optional": "true"} if how == "annotation" else {}
    env = [f"{VISIBLE}=all"] + (["GPUSHIM_OPTIONAL=yes"] if how == "variable" else [])
    seen = ask.run(*env, hooks=hook(), annotations=annotations)
    assert seen.nodes == {}
    assert seen.visible == "void"
    assert not seen.spec["hooks"].get("prestart")
    assert "The container starts without a GPU, which is optional for it" in seen.warnings
    assert "driver" in seen.warnings
    running = ask.running(*env, hooks=hook(), annotations=annotations)
    assert ask.exec(running, f"{VISIBLE}=all", "A=b")[VISIBLE] == "void"
    explained = ask.explain(running.id)
    assert f"Asked for: all (from environment {VISIBLE}=all)" in explained
    assert "optional: yes (from " in explained
    assert "Granted: 0 GPUs" in explained
    assert "Warning: The container starts without a GPU" in explained
    if how == "annotation":
        ask.delete(running)
        text = ask.refused(*env, annotations={"gpushim.optional": "no"})
        assert "The NVIDIA driver is not loaded" in text


def test_optional_where_a_gpu_is_missing(policy: Configure) -> None:
    """B45: of what was asked for all or nothing; a request that makes no sense stays an error."""
    ask = policy()
    seen = ask.run(f"{VISIBLE}=0,9", "GPUSHIM_OPTIONAL=true", hooks=hook())
    assert seen.gpus == []
    assert seen.nodes == {}
    assert seen.visible == "void"
    assert "no GPU '9' here" in seen.warnings
    assert seen.recorded
    seen = ask.run(f"{VISIBLE}=1", "GPUSHIM_OPTIONAL=true")
    assert seen.gpus == [1]
    assert set(CONTROL) < seen.nodes.keys()
    assert seen.warnings == ""
    seen = ask.run(f"{VISIBLE}=0", "NVIDIA_REQUIRE_CUDA=cuda>=99", "GPUSHIM_OPTIONAL=true")
    assert (seen.gpus, seen.visible) == ([], "void")
    assert "CUDA 99 or later" in seen.warnings
    text = ask.refused(f"{VISIBLE}=0", "NVIDIA_DRIVER_CAPABILITIES=x", "GPUSHIM_OPTIONAL=true")
    assert "'x'" in text
