"""One request out of all places: which place wins for each key, and what each form becomes."""

from __future__ import annotations

from typing import Any

import pytest
from gpushim.cdi.names import from_annotations
from gpushim.config import Config
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from gpushim.request.dockerrecord import DeviceRequest, DockerRecord
from gpushim.request.gather import Asked, asks_for_sure, may_ask
from gpushim.request.read import read_request
from gpushim.request.request import Request
from hypothesis import given
from hypothesis import strategies as st

ALL_FROM_ENVIRONMENT = "request.all-from-environment"
ACCEPT = "request.accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNTS = "request.accept-nvidia-visible-devices-as-volume-mounts"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
LISTS = "/var/run/nvidia-container-devices"


def record(
    *requests: dict[str, Any], labels: dict[str, str] | None = None, name: str = "box"
) -> DockerRecord:
    made = [
        DeviceRequest(
            one.get("driver", ""),
            one.get("count", 0),
            one.get("ids", []),
            one.get("capabilities", [["gpu"]]),
            one.get("options", {}),
        )
        for one in requests
    ]
    return DockerRecord("/d", name, labels or {}, made)


def ask(
    environment: list[str] | None = None,
    annotations: dict[str, str] | None = None,
    docker: DockerRecord | None = None,
    mounts: list[tuple[str, str]] | None = None,
    administrator: bool = False,
    **settings: Any,
) -> tuple[Request | None, list[str]]:
    """What becomes of all that is said; settings: of [request], with underscores."""
    asked = Asked(environment or [])
    asked.annotations = dict(annotations or {})
    asked.cdi = from_annotations(asked.annotations, ("cdi.k8s.io/",))
    asked.record = docker
    asked.mounts = mounts or []
    asked.administrator = administrator
    return read_request(asked, config(**settings))


def config(**settings: Any) -> Config:
    values = {f"request.{name.replace('_', '-')}": value for name, value in settings.items()}
    return configured(values, "test")


def outcome(request: Request | None) -> Any:
    """A request in short: None, a count, or names, with CDI names of other kinds behind them."""
    if request is None:
        return None
    gpus: Any = request.count if request.count is not None else ",".join(request.devices)
    gpus = gpus if request.driver else "-"
    return (gpus, *request.cdi) if request.cdi else gpus


NIC = "vendor.com/nic=0"


@pytest.mark.parametrize(
    ("said", "expected", "source"),
    [
        # One place.
        ({}, None, ""),
        ({"environment": [f"{VISIBLE}=0,1"]}, "0,1", f"environment {VISIBLE}=0,1"),
        ({"environment": [f"{VISIBLE}=void"]}, None, ""),
        ({"environment": [f"{VISIBLE}=none"]}, "", f"environment {VISIBLE}=none"),
        ({"environment": ["GPUSHIM_GPUS=2"]}, 2, "environment GPUSHIM_GPUS=2"),
        ({"environment": ["GPUSHIM_GPUS=0"]}, None, ""),
        ({"environment": ["GPUSHIM_GPUS=void"]}, None, ""),
        ({"environment": ["GPUSHIM_GPUS=none"]}, "", "environment GPUSHIM_GPUS=none"),
        ({"environment": ["GPUSHIM_GPUS=device=0"]}, "0", "environment GPUSHIM_GPUS=device=0"),
        ({"environment": ["CUDA_VERSION=9.0"]}, "all", "environment CUDA_VERSION=9.0"),
        ({"annotations": {"gpushim.gpus": "2"}}, 2, "annotation gpushim.gpus=2"),
        ({"annotations": {"gpushim.gpus": "all"}}, "all", "annotation gpushim.gpus=all"),
        ({"annotations": {"cdi.k8s.io/a": "nvidia.com/gpu=1"}}, "1", "annotation cdi.k8s.io/a"),
        ({"annotations": {"cdi.k8s.io/a": NIC}}, ("-", NIC), "annotation cdi.k8s.io/a"),
        ({"docker": record({"count": 2})}, 2, "device request"),
        ({"docker": record({"count": -1})}, "all", "device request"),
        ({"docker": record({"count": 0})}, None, ""),
        ({"docker": record({"ids": ["0", "1"]})}, "0,1", "device request"),
        ({"docker": record({"count": 1}, {"count": 2})}, 3, "device request"),
        ({"docker": record({"driver": "cdi", "ids": ["nvidia.com/gpu=0"]})}, "0", "device request"),
        ({"docker": record({"driver": "cdi", "ids": [NIC]})}, None, ""),
        ({"docker": record({"driver": "amd", "ids": ["0"]})}, None, ""),
        ({"docker": record(labels={"gpushim.gpus": "1"})}, 1, "label gpushim.gpus=1"),
        ({"mounts": [("/dev/null", f"{LISTS}/0")]}, None, ""),
        # For each key the first place that says something.
        (
            {"annotations": {"gpushim.gpus": "3"}, "docker": record({"count": 2})},
            *(3, "annotation gpushim.gpus=3"),
        ),
        (
            {"docker": record({"count": 2}), "environment": [f"{VISIBLE}=0"]},
            *(2, "device request"),
        ),
        (
            {"docker": record({"count": 2}, labels={"gpushim.gpus": "1"})},
            *(2, "device request"),
        ),
        (
            {"docker": record({"count": 2}), "environment": [f"{VISIBLE}=void"]},
            *(2, "device request"),
        ),
        (
            {"docker": record(labels={"gpushim.gpus": "1"}), "environment": [f"{VISIBLE}=all"]},
            *(1, "label gpushim.gpus=1"),
        ),
        (
            {"environment": ["GPUSHIM_GPUS=1", f"{VISIBLE}=all"]},
            *(1, "environment GPUSHIM_GPUS=1"),
        ),
        (
            {"environment": ["DOCKER_RESOURCE_GPU=GPU-aa", f"{VISIBLE}=all"]},
            *("GPU-aa", "environment DOCKER_RESOURCE_GPU=GPU-aa"),
        ),
        (
            {"annotations": {"cdi.k8s.io/a": "nvidia.com/gpu=1"}, "docker": record({"count": 2})},
            *("1", "annotation cdi.k8s.io/a"),
        ),
        (
            {
                "annotations": {"gpushim.gpus": "2", "cdi.k8s.io/a": f"nvidia.com/gpu=1,{NIC}"},
            },
            *((2, NIC), "annotation gpushim.gpus=2"),
        ),
        # CDI names wherever names are.
        ({"environment": [f"{VISIBLE}=nvidia.com/gpu=0"]}, "0", f"environment {VISIBLE}"),
        ({"environment": [f"{VISIBLE}=runtime.nvidia.com/gpu=all"]}, "all", "environment"),
        ({"environment": [f"{VISIBLE}=nvidia.com/gpu=gpu0"]}, "0", "environment"),
        ({"environment": [f"{VISIBLE}=nvidia.com/gpu=mig1:0"]}, "1:0", "environment"),
        ({"environment": [f"{VISIBLE}=nvidia.com/gpu=GPU-aa"]}, "GPU-aa", "environment"),
        ({"environment": [f"{VISIBLE}=nvidia.com/gpu=none"]}, "", "environment"),
        ({"environment": [f"{VISIBLE}=0,{NIC}"]}, ("0", NIC), "environment"),
        ({"environment": [f"{VISIBLE}={NIC}"]}, ("-", NIC), "environment"),
        (
            {"environment": [f"{VISIBLE}=nvidia.com/gpu=special"]},
            *(("-", "nvidia.com/gpu=special"), "environment"),
        ),
        # A key that says what a GPU must be asks for one; one that only says how does not.
        ({"environment": ["GPUSHIM_MEMORY=8g"]}, 1, "environment GPUSHIM_MEMORY=8g"),
        ({"docker": record(labels={"gpushim.model": "*A100*"})}, 1, "label gpushim.model=*A100*"),
        ({"environment": ["GPUSHIM_PRIORITY=3"]}, None, ""),
    ],
)
def test_who_says_which_devices(said: dict[str, Any], expected: Any, source: str) -> None:
    request, _ = ask(**said)
    assert outcome(request) == expected
    if request is not None:
        assert request.sources["devices"].startswith(source)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"environment": [f"{VISIBLE}=0"]}, True),
        ({"environment": [f"{VISIBLE}=0"], "visible_devices": "allocate"}, False),
        ({"docker": record({"ids": ["0"]})}, True),
        ({"docker": record({"count": 1})}, False),
        ({"docker": record({"count": -1})}, True),
        ({"environment": ["DOCKER_RESOURCE_GPU=GPU-aa"]}, False),
        ({"annotations": {"gpushim.gpus": "1"}}, False),
        ({"annotations": {"gpushim.gpus": "all"}}, True),
    ],
)
def test_whether_others_may_have_the_same(said: dict[str, Any], expected: bool) -> None:
    request, _ = ask(**said)
    assert request is not None
    assert request.open is expected


@pytest.mark.parametrize(
    ("environment", "memory", "source"),
    [
        (["DOCKER_RESOURCE_X=GPU-aa/1of4"], "25%", "environment DOCKER_RESOURCE_X=GPU-aa/1of4"),
        (["DOCKER_RESOURCE_X=GPU-aa/1of2,GPU-aa/2of2"], None, ""),
        # What is said of memory itself counts more.
        (["DOCKER_RESOURCE_X=GPU-aa/1of4", "GPUSHIM_MEMORY=1g"], 1 << 30, "GPUSHIM_MEMORY"),
        (["DOCKER_RESOURCE_X=GPU-aa/1of4", "GPUSHIM_MODE=exclusive"], None, ""),
    ],
)
def test_a_slot_of_swarm_is_a_part_of_a_gpu(
    environment: list[str], memory: Any, source: str
) -> None:
    request, _ = ask(environment=environment)
    assert request is not None
    assert request.devices == ["GPU-aa"]
    assert not request.open
    assert request.keys.get("memory") == memory
    assert source in request.sources.get("memory", "")


def test_what_gpushim_tells_a_container_is_no_request_of_the_next() -> None:
    assert ask(["GPUSHIM_MEMORY_ENFORCEMENT=none"])[0] is None
    request, _ = ask(["GPUSHIM_MEMORY_ENFORCEMENT=none", "GPUSHIM_GPUS=1"])
    assert request is not None and request.keys == {}


def test_each_key_by_itself() -> None:
    request, warnings = ask(
        environment=["GPUSHIM_MEMORY=1g", "GPUSHIM_MODE=shared", "GPUSHIM_PRIORITY=5"],
        annotations={"gpushim.memory": "4g"},
        docker=record(
            {"count": 1, "options": {"memory": "2g", "mode": "exclusive"}},
            labels={"gpushim.mode": "shared", "gpushim.model": "*H100*"},
        ),
    )
    assert request is not None and not warnings
    assert request.keys == {
        "memory": 4 << 30,
        "mode": "exclusive",
        "model": "*H100*",
        "priority": 5,
    }
    assert request.sources["memory"] == "annotation gpushim.memory=4g"
    assert request.sources["mode"] == "option of the device request mode=exclusive"
    assert request.sources["model"] == "label gpushim.model=*H100*"
    assert request.sources["priority"] == "environment GPUSHIM_PRIORITY=5"


def test_capabilities_are_looked_at_only_with_a_request() -> None:
    bad = "NVIDIA_DRIVER_CAPABILITIES=foo"
    for devices in ([], [f"{VISIBLE}=void"], [f"{VISIBLE}="]):
        assert ask([*devices, bad])[0] is None
    with pytest.raises(GpushimError, match="foo"):
        ask([f"{VISIBLE}=0", bad])
    request, _ = ask([f"{VISIBLE}=1,0", "NVIDIA_DRIVER_CAPABILITIES=all"])
    assert request is not None
    assert len(request.capabilities) == 7
    assert request.sources["capabilities"] == "environment NVIDIA_DRIVER_CAPABILITIES=all"
    request, _ = ask([f"{VISIBLE}=none"])
    assert request is not None
    assert request.sources["capabilities"] == "default"


def test_extras_are_read_only_with_a_request() -> None:
    extras = ["NVIDIA_GDS=enabled", "NVIDIA_IMEX_CHANNELS=3,4", "NVIDIA_MIG_CONFIG_DEVICES=all"]
    assert ask(extras)[0] is None
    request, _ = ask([f"{VISIBLE}=0", *extras], administrator=True)
    assert request is not None
    assert (request.features, request.imex_channels) == (["gds"], [3, 4])
    assert (request.mig_config, request.mig_monitor) == (True, False)
    assert request.sources["NVIDIA_GDS"] == "environment NVIDIA_GDS=enabled"
    with pytest.raises(GpushimError, match="NVIDIA_MIG_CONFIG_DEVICES"):
        ask([f"{VISIBLE}=0", *extras])


def test_what_the_image_demands() -> None:
    demand = "NVIDIA_REQUIRE_CUDA=cuda>=12.4"
    request, _ = ask([f"{VISIBLE}=0", demand])
    assert request is not None
    assert request.requirements == [("NVIDIA_REQUIRE_CUDA", "cuda>=12.4")]
    request, _ = ask([f"{VISIBLE}=0", demand], disable_require=True)
    assert request is not None and request.requirements == []


def test_a_pods_sandbox_never_asks() -> None:
    asked = Asked([f"{VISIBLE}=all"])
    asked.annotations = {"gpushim.gpus": "1"}
    asked.sandbox = True
    assert read_request(asked, config()) == (None, [])


def test_keys_for_one_container_of_a_pod() -> None:
    asked = Asked([])
    asked.annotations = {
        "gpushim.gpus": "4",
        "container.train.gpushim.gpus": "2",
        "container.log.gpushim.gpus": "void",
    }
    for name, expected in {"train": 2, "log": None, "other": 4, "": 4}.items():
        asked.name = name
        assert outcome(read_request(asked, config())[0]) == expected


@pytest.mark.parametrize(
    ("settings", "environment", "expected", "words"),
    [
        ({}, [f"{VISIBLE}=all"], "all", ()),
        ({"all_from_environment": "all"}, [f"{VISIBLE}=all"], "all", ()),
        # B39: with it an image's baked `all` is no request, and the log says how to ask.
        (
            {"all_from_environment": "none"},
            [f"{VISIBLE}=all"],
            *(None, ("NVIDIA_VISIBLE_DEVICES=all", "all-from-environment", "GPUSHIM_GPUS")),
        ),
        ({"all_from_environment": "none"}, [f"{VISIBLE}=0"], "0", ()),
        ({"all_from_environment": "none"}, ["GPUSHIM_GPUS=all"], "all", ()),
        ({"all_from_environment": "none"}, ["CUDA_VERSION=9.0"], None, ("CUDA_VERSION=9.0",)),
        ({"all_from_environment": "none"}, [f"{VISIBLE}=all", "GPUSHIM_MEMORY=1g"], 1, ()),
        ({"visible_devices": "ignore"}, [f"{VISIBLE}=0"], None, ()),
        ({"visible_devices": "ignore"}, [f"{VISIBLE}=0", "GPUSHIM_GPUS=1"], 1, ()),
        # B40: who may not ask by the environment starts without, and the log says so.
        (
            {"accept_nvidia_visible_devices_envvar_when_unprivileged": False},
            [f"{VISIBLE}=0"],
            *(None, (f"{VISIBLE}=0", "CAP_SYS_ADMIN", "starts without")),
        ),
        (
            {"accept_nvidia_visible_devices_envvar_when_unprivileged": False},
            ["GPUSHIM_GPUS=1"],
            *(None, ("GPUSHIM_GPUS=1", "CAP_SYS_ADMIN")),
        ),
        (
            {"accept_nvidia_visible_devices_envvar_when_unprivileged": False},
            [f"{VISIBLE}=void"],
            *(None, ()),
        ),
        ({}, ["GPUSHIM_WAIT=10m"], None, ("No GPU was asked for", "GPUSHIM_WAIT=10m")),
    ],
)
def test_policies(
    settings: dict[str, Any], environment: list[str], expected: Any, words: tuple[str, ...]
) -> None:
    request, warnings = ask(environment=environment, **settings)
    assert outcome(request) == expected
    for word in words:
        assert word in " ".join(warnings)
    if not words:
        assert not [said for said in warnings if "given" in said or "CAP_SYS_ADMIN" in said]


def test_privileged_is_cap_sys_admin() -> None:
    """B40: privilege lets the environment ask; annotations and Docker's record need none."""
    never: dict[str, Any] = {"accept_nvidia_visible_devices_envvar_when_unprivileged": False}
    assert outcome(ask([f"{VISIBLE}=0"], administrator=True, **never)[0]) == "0"
    assert outcome(ask(docker=record({"count": 1}), **never)[0]) == 1
    assert outcome(ask(annotations={"gpushim.gpus": "1"}, **never)[0]) == 1


def test_an_environment_that_may_not_ask_can_be_refused() -> None:
    """B40."""
    with pytest.raises(GpushimError, match="CAP_SYS_ADMIN"):
        ask(
            [f"{VISIBLE}=0"],
            accept_nvidia_visible_devices_envvar_when_unprivileged=False,
            refuse_unaccepted_environment=True,
        )


def test_mounts_that_name_devices() -> None:
    allowed: dict[str, Any] = {"accept_nvidia_visible_devices_as_volume_mounts": True}
    mounts = [("/dev/null", f"{LISTS}/1"), ("/dev/null", f"{LISTS}/0")]
    request, _ = ask([f"{VISIBLE}=3"], mounts=mounts, **allowed)
    assert outcome(request) == "1,0"
    request, _ = ask([f"{VISIBLE}=3"], mounts=[("/dev/null", f"{LISTS}/void")], **allowed)
    assert request is None


def test_a_device_request_that_says_it_twice_is_refused() -> None:
    with pytest.raises(GpushimError, match="has the option gpus, too"):
        ask(docker=record({"count": 1, "options": {"gpus": "device=3"}}))


def test_ids_and_a_count_at_once_are_refused() -> None:
    with pytest.raises(GpushimError, match="ask for a number of them"):
        ask(docker=record({"ids": ["0"]}, {"count": 1}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"annotations": {"gpushim.memroy": "1g"}}, ("gpushim.memroy", "memory")),
        ({"docker": record(labels={"gpushim.gpu": "1"})}, ("label", "gpushim.gpu", "gpus")),
        ({"docker": record({"count": 1, "options": {"mem": "1g"}})}, ("option", "mem")),
        ({"environment": ["GPUSHIM_COMPUT=50%"]}, ("GPUSHIM_COMPUT", "GPUSHIM_COMPUTE")),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(
    said: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(GpushimError) as caught:
        ask(**said)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("said", "sure", "may"),
    [
        ({}, False, False),
        ({"environment": [f"{VISIBLE}=void"]}, False, False),
        ({"environment": [f"{VISIBLE}=0"]}, True, True),
        ({"environment": ["CUDA_VERSION=9.0"]}, True, True),
        ({"environment": ["CUDA_VERSION=9.0", "NVIDIA_REQUIRE_CUDA=cuda>=9"]}, False, False),
        ({"environment": ["DOCKER_RESOURCE_SSD=a"]}, False, True),
        ({"annotations": {"gpushim.gpus": "1"}}, True, True),
        # Those for another container, for the pod's sandbox, or of another name ask for nothing.
        ({"annotations": {"container.b.gpushim.gpus": "1"}, "name": "a"}, False, False),
        ({"annotations": {"container.a.gpushim.gpus": "1"}, "name": "a"}, True, True),
        ({"annotations": {"gpushim.gpus": "1"}, "sandbox": True}, False, False),
        ({"annotations": {"my.gpushim.gpus": "1"}}, False, False),
        ({"annotations": {"own.example/devices": NIC}}, False, True),
        ({"annotations": {"a": "b"}}, False, False),
        ({"record": record({"count": 1})}, True, True),
        ({"record": record()}, False, False),
        ({"mounts": [("/dev/null", f"{LISTS}/0")]}, False, True),
        ({"nodes": [{"path": "/dev/nvidia0"}]}, False, True),
        ({"nodes": [{"path": "/dev/dri/card0"}]}, False, False),
    ],
)
def test_what_may_be_a_request(said: dict[str, Any], sure: bool, may: bool) -> None:
    asked = Asked(said.pop("environment", []))
    for name, value in said.items():
        setattr(asked, name, value)
    assert (asks_for_sure(asked), may_ask(asked)) == (sure, may)


TEXTS = st.text(alphabet="0123all,nonevoid:GPU-MIG=/.% \x00é", max_size=20)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [VISIBLE, "GPUSHIM_GPUS", "GPUSHIM_MEMORY", "DOCKER_RESOURCE_GPU", "CUDA_VERSION"]
            ),
            TEXTS,
        )
    ),
    st.dictionaries(st.sampled_from(["gpushim.gpus", "gpushim.mig", "cdi.k8s.io/a"]), TEXTS),
    st.dictionaries(st.sampled_from(["gpushim.gpus", "gpushim.wait"]), TEXTS),
    st.booleans(),
)
def test_nothing_that_is_said_makes_it_fail_otherwise(
    variables: list[tuple[str, str]],
    annotations: dict[str, str],
    labels: dict[str, str],
    administrator: bool,
) -> None:
    environment = [f"{name}={value}" for name, value in variables]
    try:
        ask(environment, annotations, record(labels=labels), administrator=administrator)
    except GpushimError as error:
        assert error.sentence
