"""docker run on newer Dockers: --gpus in its forms, annotations, labels, and what is recorded."""

from __future__ import annotations

import json

import pytest

from tests.rigs import Rig, rig
from tests.rigs.ran import run, started

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rigs")]

ALL = list(range(8))


@pytest.fixture(params=["trixie", "forky"])
def machine(request: pytest.FixtureRequest) -> Rig:
    return rig(request, request.param)


@pytest.mark.parametrize(
    ("options", "count", "ids", "gpus"),
    [
        (["--gpus", "2"], 2, None, 2),
        (["--gpus", "all"], -1, None, ALL),
        (["--gpus", "device=3"], 0, ["3"], [3]),
        (["--gpus", '"device=0,1"'], 0, ["0", "1"], [0, 1]),
        (["--gpus", '"device=5,3","capabilities=utility,compute"'], 0, ["5", "3"], [3, 5]),
        (["--gpus", "driver=nvidia,count=3"], 3, None, 3),
    ],
)
def test_the_gpus_option(
    machine: Rig, options: list[str], count: int, ids: list[str] | None, gpus: int | list[int]
) -> None:
    """A count is any that many, and ids are these, although the variables are the same."""
    with started(machine, *options) as container:
        (recorded,) = container.device_requests
        assert (recorded["Count"], recorded["DeviceIDs"]) == (count, ids)
        seen = container.look()
        wanted = seen.gpus if isinstance(gpus, int) else gpus
        assert len(seen.gpus) == (gpus if isinstance(gpus, int) else len(gpus))
        assert seen.has(*wanted), seen
        request = container.explained()["request"]
        assert request["sources"]["devices"].startswith("device request")
        assert request["count"] == (gpus if isinstance(gpus, int) else None)


@pytest.mark.parametrize(
    ("option", "recorded", "words"),
    [
        ('count=2,"options=memory=2tb"', {"memory": "2tb"}, ["memory=2tb", "too small"]),
        ('"device=0,1","options=memry=2gb"', {"memry": "2gb"}, ["memry", "did you mean memory"]),
    ],
)
def test_options_of_the_gpus_option(
    machine: Rig, option: str, recorded: dict[str, str], words: list[str]
) -> None:
    done = run(machine, "--name=refused", "--gpus", option)
    try:
        assert done.returncode == 125
        for word in words:
            assert word in done.stderr
        inspected = json.loads(machine.docker("inspect", "refused", check=True).stdout)
        assert inspected[0]["HostConfig"]["DeviceRequests"][0]["Options"] == recorded
        told = machine.ctl("explain", "refused").stdout
        for word in words:
            assert word in told
    finally:
        machine.docker("rm", "--force", "refused")


def test_a_form_that_the_client_refuses(machine: Rig) -> None:
    """It stands in articles; the runtime never hears of it."""
    done = run(machine, "--gpus", '"device=0,1","memory=2gb"')
    assert done.returncode == 125
    assert "unexpected key 'memory'" in done.stderr


@pytest.mark.parametrize(
    ("options", "place", "gpus"),
    [
        (["--annotation=gpushim.gpus=1"], "annotation", 1),
        (["--annotation=gpushim.gpus=device=3", "--gpus=2"], "annotation", [3]),
        (["--label=gpushim.gpus=device=2"], "label", [2]),
        (["--label=gpushim.gpus=1", "-e", "NVIDIA_VISIBLE_DEVICES=all"], "label", 1),
        (["-e", "GPUSHIM_GPUS=device=6"], "environment GPUSHIM_GPUS", [6]),
    ],
)
def test_gpushims_own_words(
    machine: Rig, options: list[str], place: str, gpus: int | list[int]
) -> None:
    with started(machine, *options) as container:
        if place == "annotation":
            assert "gpushim.gpus" in container.annotations
        seen = container.look()
        if isinstance(gpus, int):
            assert len(seen.gpus) == gpus
        assert seen.has(*(seen.gpus if isinstance(gpus, int) else gpus)), seen
        source = container.explained()["request"]["sources"]["devices"]
        assert source.startswith(place)


@pytest.mark.parametrize(
    "mounted",
    [[], ["hostname"], ["hostname", "hosts"], ["hostname", "hosts", "resolv.conf"]],
)
def test_what_else_lies_in_etc(machine: Rig, mounted: list[str]) -> None:
    """Docker's own record is found whatever of these files is the user's, and it is the right one.

    A container on another's network has that one's files mounted. Where all are the user's, the
    record is found by where the root file system lies.
    """
    machine.write("/root/file", "127.0.0.1 localhost\n")
    volumes = [f"--volume=/root/file:/etc/{name}" for name in mounted]
    with started(machine, "--label=gpushim.gpus=device=7", *volumes) as first:
        assert first.look().has(7)
        options = [f"--network=container:{first.id}", "--gpus=2"]
        with started(machine, *options) as second:
            seen = second.look()
            assert len(seen.gpus) == 2
            source = second.explained()["request"]["sources"]["devices"]
            assert source.startswith("device request")
