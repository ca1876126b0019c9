"""Docker Compose, version 2: what of a file reaches Docker's records, and what a service gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rigs import rig
from tests.rigs.compose import Project, Service

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rigs")]


def reserved(**device: Any) -> Service:
    """A service that reserves a device in the long form."""
    device = {"driver": "nvidia", "capabilities": ["gpu"], **device}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def replicas(count: int, service: Service) -> Service:
    """A service of which there are several containers."""
    return {**service, "deploy": {**service.get("deploy", {}), "replicas": count}}


SERVICES: dict[str, Service] = {
    "one": reserved(count=1),
    "every": reserved(count="all"),
    "unsaid": reserved(),
    "ids": reserved(device_ids=["1", "3"]),
    "uuid": {},
    "memory": reserved(count=1, options={"memory": "2tb"}),
    "misspelt": reserved(count=1, options={"memry": "2gb"}),
    "gpus-all": {"gpus": "all"},
    "gpus-two": {"gpus": [{"driver": "nvidia", "count": 2}]},
    "label": {"labels": {"gpushim.gpus": "device=2"}},
    "label-count": {"labels": ["gpushim.gpus=2"]},
    "annotation": {"annotations": {"gpushim.gpus": "1"}},
    "annotation-first": {
        "annotations": {"gpushim.gpus": "device=4"},
        "labels": {"gpushim.gpus": "device=2"},
        "environment": {"NVIDIA_VISIBLE_DEVICES": "1"},
    },
    "variable": {"environment": {"NVIDIA_VISIBLE_DEVICES": "1,3"}},
    "own-variable": {"environment": ["GPUSHIM_GPUS=2"]},
    "beside": {"network_mode": "service:label", "labels": {"gpushim.gpus": "device=5"}},
    "beside-one": {"network_mode": "service:label", **reserved(count=1)},
    "beside-none": {"network_mode": "service:label"},
    "none": {},
    "three": replicas(3, reserved(count=1)),
    "sharing": replicas(3, {"labels": {"gpushim.memory": "20g"}}),
}
ALL = list(range(8))


@pytest.fixture(scope="module", params=["trixie", "forky"])
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    machine = rig(request, request.param)
    services = {**SERVICES, "uuid": reserved(device_ids=[machine.host.gpus[6].uuid])}
    with Project(machine, services) as made:
        yield made


def asked(
    driver: str,
    count: int,
    ids: list[str] | None = None,
    options: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A device request as it stands in hostconfig.json."""
    return {
        "Driver": driver,
        "Count": count,
        "DeviceIDs": ids,
        "Capabilities": [["gpu"]],
        "Options": options,
    }


@pytest.mark.parametrize(
    ("service", "recorded", "place", "gpus"),
    [
        ("one", asked("nvidia", 1), "device request", 1),
        ("every", asked("nvidia", -1), "device request", ALL),
        ("unsaid", asked("nvidia", -1), "device request", ALL),
        ("ids", asked("nvidia", 0, ["1", "3"]), "device request", [1, 3]),
        ("uuid", None, "device request", [6]),
        ("label", {}, "label gpushim.gpus", [2]),
        ("label-count", {}, "label gpushim.gpus", 2),
        ("annotation", {}, "annotation gpushim.gpus", 1),
        ("annotation-first", {}, "annotation gpushim.gpus", [4]),
        ("variable", {}, "environment NVIDIA_VISIBLE_DEVICES", [1, 3]),
        ("own-variable", {}, "environment GPUSHIM_GPUS", 2),
        ("beside", {}, "label gpushim.gpus", [5]),
        ("beside-one", asked("nvidia", 1), "device request", 1),
    ],
)
def test_what_a_service_gets(
    project: Project,
    service: str,
    recorded: dict[str, Any] | None,
    place: str,
    gpus: int | list[int],
) -> None:
    """gpus: how many of any, or which. What Docker recorded is not looked at where it is None.

    A service that shares the network of another is asked about by its own records: the files of
    /etc that Docker mounts into it are the other's.
    """
    done = project.up(service)
    assert done.returncode == 0, done.stderr
    with project.container(service) as container:
        if recorded is not None:
            assert container.device_requests == ([recorded] if recorded else [])
        seen = container.look()
        if isinstance(gpus, int):
            assert len(seen.gpus) == gpus
            assert seen.has(*seen.gpus), seen
        else:
            assert seen.has(*gpus), seen
        explained = container.explained()
        request = explained["request"]
        assert request["sources"]["devices"].startswith(place)
        assert request["count"] == (gpus if isinstance(gpus, int) else None)
        assert [line["request"] for line in container.logged() if "request" in line] == [request]
        assert len(explained["grant"]["gpus"]) == len(seen.gpus)
    project.compose("down", "--timeout=0")


@pytest.mark.parametrize("service", ["none", "beside-none"])
def test_who_asks_for_nothing_gets_nothing(project: Project, service: str) -> None:
    """Not even what the service has whose network it shares."""
    done = project.up(service)
    assert done.returncode == 0, done.stderr
    with project.container(service) as container:
        assert container.explained() == {}
        seen = container.look()
        assert (seen.nodes, seen.allowed) == ({}, [])
        assert not any("grant" in line for line in container.logged())
    project.compose("down", "--timeout=0")


@pytest.mark.parametrize(
    ("service", "option", "words"),
    [
        ("memory", {"memory": "2tb"}, ["memory=2tb", "too small"]),
        ("misspelt", {"memry": "2gb"}, ["memry", "did you mean memory"]),
    ],
)
def test_options_of_a_reservation(
    project: Project, service: str, option: dict[str, str], words: list[str]
) -> None:
    """Compose before 2.30 or so leaves them out without a word, so nobody can know of them."""
    done = project.up(service)
    with project.container(service) as container:
        if project.version < (2, 30):
            assert container.device_requests == [asked("nvidia", 1)]
            assert done.returncode == 0, done.stderr
            return
        assert container.device_requests == [asked("nvidia", 1, options=option)]
        assert done.returncode != 0
        for word in words:
            assert word in done.stderr
            assert word in container.explained()["sentence"]


@pytest.mark.parametrize(
    ("service", "recorded", "gpus"),
    [("gpus-all", asked("", -1), 8), ("gpus-two", asked("nvidia", 2), 2)],
)
def test_the_short_form(
    project: Project, service: str, recorded: dict[str, Any], gpus: int
) -> None:
    """Compose before 2.30 ignores `gpus:` and starts the service without any."""
    done = project.up(service)
    assert done.returncode == 0, done.stderr
    with project.container(service) as container:
        if project.version < (2, 30):
            assert container.device_requests == []
            assert container.explained() == {}
            return
        assert container.device_requests == [recorded]
        seen = container.look()
        assert len(seen.gpus) == gpus
        assert seen.has(*seen.gpus), seen


@pytest.mark.parametrize("service", ["three", "sharing"])
def test_three_replicas(project: Project, service: str) -> None:
    """Each has a GPU of its own, or they share the memory of one."""
    done = project.up(service)
    assert done.returncode == 0, done.stderr
    containers = project.containers(service)
    assert len(containers) == 3
    gpus = [each.look().gpus for each in containers]
    assert [len(each) for each in gpus] == [1, 1, 1]
    assert len({index for each in gpus for index in each}) == (3 if service == "three" else 1)
    # What stands in the file is there already: nothing changes.
    assert project.up(service).returncode == 0
    assert [each.look().gpus for each in containers] == gpus
    if service == "three":
        done = project.compose("up", "--detach", f"--scale={service}=9", service)
        assert done.returncode != 0
        assert "1 GPU was asked for by device request for a count of 1, and" in done.stderr
        assert "none is free" in done.stderr
    project.compose("down", "--timeout=0")
