"""gpushimctl run and reserve: which commands are handed a ticket, and what options ask for."""

from __future__ import annotations

import argparse

import pytest
from gpushim.admin import reserve, run_verb, ticket_options
from gpushim.admin.run_verb import place_of_options
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "command",
    [
        "docker run | IMAGE",
        "docker create | --name x IMAGE",
        "docker container run | -it IMAGE",
        "podman create | IMAGE",
        "podman container create | IMAGE",
        "/usr/bin/docker run | IMAGE",
        "sudo docker run | IMAGE",
        "sudo -n -E docker run | IMAGE",
        "docker --context far run | IMAGE",
        "docker -H unix:///run/docker.sock --debug -l info container run | IMAGE",
        "docker --host=unix:///run/docker.sock run | IMAGE",
        "podman --root /r --runroot=/x --log-level debug --remote run | IMAGE",
        # A name of a command further on is a word like any other.
        "docker run | run create",
        "docker run |",
    ],
)
def test_where_variables_go(command: str) -> None:
    before, _, after = command.partition("|")
    words = [*before.split(), *after.split()]
    assert place_of_options(words) == len(before.split())


@pytest.mark.parametrize(
    "command",
    [
        "docker", "docker compose run x", "docker compose up", "docker ps", "docker start x",
        "docker container", "docker container ls", "docker --context", "docker --context run x",
        "sudo", "sudo -u me docker run x", "sudo make", "make", "nerdctl run x", "run x",
        "kubectl run x", "podman play kube x", "podman pod create", "docker-compose run x", "",
    ],
)  # fmt: skip
def test_commands_that_take_no_variable(command: str) -> None:
    with pytest.raises(GpushimError) as refused:
        place_of_options(command.split())
    assert ("reserve" in refused.value.hint) == bool(command)


words = st.lists(st.sampled_from(["docker", "podman", "sudo", "run", "create", "-e", "-H", "x"]))


@given(words)
def test_the_word_before_is_always_run_or_create(command: list[str]) -> None:
    try:
        place = place_of_options(command)
    except GpushimError:
        return
    assert command[place - 1] in ("run", "create")
    assert {"docker", "podman"} & set(command[: place - 1])


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run_verb.add(parser)
    return parser.parse_args(words)


def asked(*words: str) -> ticket_options.Asked:
    return ticket_options.asked_by(options(*words), "run", configured())


def test_what_options_ask_for() -> None:
    found = asked(
        "--gpus", "2", "--memory=20g", "--compute-capability", ">=8.0", "--priority", "-3"
    )
    request = found.request
    assert (request.count, request.devices, request.open) == (2, [], False)
    assert request.keys == {"memory": 20 << 30, "compute-capability": [">=", "8.0"]}
    assert request.sources["memory"] == "option --memory=20g of gpushimctl run"
    assert found.texts == {"gpus": "2", "memory": "20g", "compute-capability": ">=8.0"}
    assert (found.priority, found.seconds) == (-3, None)


def test_one_gpu_where_no_number_is_given() -> None:
    found = asked("--mig", "1g.10gb", "--wait", "2h")
    assert (found.request.count, found.seconds) == (1, 7200.0)
    source = "option --mig=1g.10gb of gpushimctl run, which asks for one GPU"
    assert found.request.sources["devices"] == source
    assert found.texts == {"gpus": "1", "mig": "1g.10gb"}
    assert asked().request.sources["devices"] == "gpushimctl run, which asks for one GPU"


def test_names() -> None:
    found = asked("--gpus", "device=0,1")
    assert (found.request.count, found.request.devices, found.request.open) == (
        None,
        ["0", "1"],
        True,
    )
    assert asked("--gpus", "all").request.devices == ["all"]
    assert asked("--gpus", "nvidia.com/gpu=3").request.devices == ["3"]


@pytest.mark.parametrize("text", ["0", "none", "void"])
def test_nothing_is_not_waited_for(text: str) -> None:
    with pytest.raises(GpushimError, match="there is nothing to wait for"):
        asked("--gpus", text)


def test_more_than_a_container_may_have() -> None:
    config = configured({"allocate.max-gpus": "2", "allocate.default-priority": "7"})
    assert ticket_options.asked_by(options("--gpus", "2"), "run", config).priority == 7
    with pytest.raises(GpushimError, match=r"may have 2 here \(allocate.max-gpus\)"):
        ticket_options.asked_by(options("--gpus", "3"), "run", config)


def test_the_command_is_all_behind_the_dashes() -> None:
    found = options("--gpus", "1", "--", "docker", "run", "--gpus", "2", "-e", "A=B", "--", "x")
    assert found.gpus == "1"
    command = ["docker", "run", "--gpus", "2", "-e", "A=B", "--", "x"]
    assert found.command in (command, ["--", *command])


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("1s", 1), ("24h", 86400)])
def test_times_to_keep(text: str, seconds: float) -> None:
    assert reserve.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["0s", "25h", "500ms", "soon", "", "10"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(GpushimError, match=r"is no time to keep GPUs for \(option --for\)"):
        reserve.seconds_of(text)
