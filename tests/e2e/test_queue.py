"""Waiting for GPUs before there is a container: run, reserve and queue, and tickets in a create."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate.turn import take
from gpushim.records import start_time
from gpushim.request.request import Request

from tests.fakehost import preset
from tests.harness import Bundle, Runtime
from tests.harness.asking import Ask, ctl
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e

ALICE = 61001
# What stands for docker: it says what it was given, and lives until it is told to end.
ENGINE = """\
#!/bin/sh
printf '%s\\n' "$$" "$@" >"$0.$$"
trap 'exit 7' TERM
[ -e "$0.quick" ] && exit 7
while :; do sleep 0.05; done
"""


class Client:
    """A process that waits for GPUs, or runs its command."""

    def __init__(self, machine: Machine, words: tuple[str, ...], **how: Any) -> None:
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root"]
        self._errors = Path(machine.places.root, f"client.{time.monotonic_ns()}")
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, machine.places.root, *words], stderr=errors, stdout=errors, **how
            )

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def ended(self) -> int:
        return self.process.wait(30)

    def until_it_waits(self) -> None:
        until(lambda: "in line" in self.said or self.process.poll() is not None)
        assert "in line" in self.said and self.process.poll() is None, self.said


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class World:
    """A machine of four GPUs whose queue is looked at."""

    def __init__(self, machine: Machine, runtime: Runtime, make_bundle: Any) -> None:
        self.machine = machine
        self.ask = Ask(machine, runtime, make_bundle)
        self.engine = Path(machine.places.root, "docker")
        self.engine.write_text(ENGINE)
        self.engine.chmod(0o755)
        self._clients: list[Client] = []

    def client(self, *words: str, **how: Any) -> Client:
        self._clients.append(Client(self.machine, words, **how))
        return self._clients[-1]

    def run(self, *options: str) -> Client:
        return self.client("run", *options, "--", str(self.engine), "run", "IMAGE")

    def given(self, client: Client) -> list[str]:
        """The words that the command of a client was started with, its pid first."""
        path = Path(f"{self.engine}.{client.process.pid}")
        until(lambda: path.exists() and path.read_text().endswith("IMAGE\n"))
        return path.read_text().splitlines()

    def has_started(self, client: Client) -> bool:
        return Path(f"{self.engine}.{client.process.pid}").exists()

    def queue(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.machine.installed.ctl("queue", "--json"))
        return data

    def line(self) -> list[int]:
        """The pids of those in line."""
        return [row["pid"] for row in self.queue()["waiting"]]

    def files(self) -> list[str]:
        return sorted(name.split(".")[1] for name in os.listdir(self.machine.places.queue))

    def leases(self) -> list[str]:
        return sorted(os.listdir(self.machine.places.leases))

    def refused(self, *env: str) -> str:
        """What a container with these variables is refused with; others may be there."""
        done = self.ask.runtime.create(self.ask.bundle(*env))
        assert done.status == 1, done
        return done.stderr

    def reserve(self, *options: str) -> str:
        return self.machine.installed.ctl("reserve", *options).strip()

    def close(self) -> None:
        for client in self._clients:
            if client.process.poll() is None:
                client.process.kill()
                client.process.wait()


@pytest.fixture
def world(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Iterator[World]:
    machine = make_machine(preset("a100_pcie4", modify_device_files=0))
    made = World(machine, runtime_of(machine), make_bundle)
    yield made
    made.close()


def ticket_in(words: list[str]) -> str:
    return next(word for word in words if word.startswith("GPUSHIM_TICKET=")).partition("=")[2]


def test_it_starts_when_a_container_ends_and_is_the_command_then(world: World) -> None:
    holder = world.ask.running("GPUSHIM_GPUS=3")
    client = world.run("--gpus", "2", "--memory", "50%", "--mode", "exclusive")
    client.until_it_waits()
    assert "is the first in line. 2 GPUs with 50% of the memory each to itself" in client.said
    assert holder.id[:12] in client.said
    assert not world.has_started(client)
    world.ask.delete(holder)
    words = world.given(client)
    ticket = ticket_in(words)
    assert words == [
        *(str(client.process.pid), "run", "-e", f"GPUSHIM_TICKET={ticket}"),
        *("-e", "GPUSHIM_GPUS=2", "-e", "GPUSHIM_MEMORY=50%", "-e", "GPUSHIM_MODE=exclusive"),
        "IMAGE",
    ]
    assert [row["ticket"] for row in world.queue()["reserved"]] == [ticket]
    # The command's end is the end of its booking, and its status is the client's.
    said = world.refused("GPUSHIM_GPUS=3")
    assert "only 2 are free" in said
    assert f"held by ticket {ticket} (exclusive, " in said
    client.process.terminate()
    assert client.ended() == 7
    assert world.ask.run("GPUSHIM_GPUS=4").gpus == [0, 1, 2, 3]


def test_what_is_free_is_had_at_once(world: World) -> None:
    Path(f"{world.engine}.quick").touch()
    client = world.run("--gpus", "device=1,2")
    assert client.ended() == 7
    assert client.said.startswith("gpushimctl: GPUs 1 and 2 (NVIDIA A100")
    assert world.line() == []


def test_the_ticket_is_redeemed_by_one_container(world: World) -> None:
    other = world.ask.running("GPUSHIM_GPUS=device=0", "GPUSHIM_MODE=exclusive")
    client = world.run("--gpus", "2")
    words = world.given(client)
    env = [word for word in words if word.startswith("GPUSHIM_")]
    kept = {gpu for row in world.queue()["reserved"] for gpu in row["gpus"]}
    # Images of CUDA have this in them by themselves.
    mine = world.ask.running(*env, "NVIDIA_VISIBLE_DEVICES=all")
    assert variables_of(mine)["NVIDIA_VISIBLE_DEVICES"].split(",") == sorted(
        kept, key=[gpu.uuid for gpu in world.machine.host.gpus].index
    )
    assert world.queue()["reserved"] == []
    assert world.files() == ["redeemed"]
    said = world.refused(*env)
    assert f"was redeemed already, by container {mine.id}" in said
    assert "gpushimctl run" in said
    client.process.terminate()
    assert client.ended() == 7
    # It has them though the client has ended, and gets as many when it is started again.
    assert "only 1 is free" in world.refused("GPUSHIM_GPUS=2")
    world.ask.delete(mine)
    world.ask.runtime.create(mine).check()
    assert "only 1 is free" in world.refused("GPUSHIM_GPUS=2")
    world.ask.delete(mine)
    world.ask.delete(other)


def variables_of(bundle: Bundle) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in bundle.read()["process"]["env"])


def test_the_container_may_not_ask_for_something_else(world: World) -> None:
    ticket = world.reserve("--gpus", "2")
    said = world.refused(f"GPUSHIM_TICKET={ticket}", "GPUSHIM_GPUS=3")
    assert f"Ticket {ticket} is for something else (option --gpus=2 of gpushimctl reserve)" in said
    assert "GPUSHIM_GPUS=3" in said
    assert "something else" in world.refused(f"GPUSHIM_TICKET={ticket}", "GPUSHIM_MEMORY=1g")
    # It holds what it held.
    assert len(world.ask.run(f"GPUSHIM_TICKET={ticket}", "GPUSHIM_GPUS=2").gpus) == 2
    assert "redeemed already" in world.refused(f"GPUSHIM_TICKET={ticket}")


def test_a_reservation_holds_for_its_time(world: World) -> None:
    long = world.reserve("--gpus", "3")
    short = world.reserve("--gpus", "1", "--for", "3s")
    said = world.refused("GPUSHIM_GPUS=1")
    assert f"held by ticket {long}" in said
    assert f"ticket {short}" in said
    assert world.machine.installed.ctl("queue").splitlines()[0] == "Nobody waits for GPUs."
    kept = world.machine.installed.ctl("queue")
    assert f"Ticket {short} of root keeps 1 GPU for " in kept
    assert f"Ticket {long} of root keeps 3 GPUs for " in kept
    time.sleep(3)
    assert "The time of ticket" in world.refused(f"GPUSHIM_TICKET={short}")
    assert len(world.ask.run("GPUSHIM_GPUS=1").gpus) == 1
    assert len(world.ask.run(f"GPUSHIM_TICKET={long}").gpus) == 3


def test_an_old_ticket_counts_for_nothing_where_the_container_says_what_it_needs(
    world: World,
) -> None:
    """It is started again after a boot, say."""
    old = "GPUSHIM_TICKET=0123456789abcdef"
    assert "is not known here" in world.refused(old)
    seen = world.ask.run(old, "GPUSHIM_GPUS=1")
    assert len(seen.gpus) == 1
    assert "is treated as one without a ticket" in seen.warnings
    assert "is no ticket" in world.refused("GPUSHIM_TICKET=mine", "GPUSHIM_GPUS=1")


def test_priority_comes_before_arrival(world: World) -> None:
    holder = world.ask.running("GPUSHIM_GPUS=4")
    clients = []
    for priority in ("0", "0", "10"):
        clients.append(world.run("--gpus", "4", "--priority", priority))
        clients[-1].until_it_waits()
    first, second, urgent = clients
    assert world.line() == [each.process.pid for each in (urgent, first, second)]
    rows = world.queue()["waiting"]
    assert [row["behind"] for row in rows] == [
        [],
        [rows[0]["ticket"]],
        [rows[0]["ticket"], rows[1]["ticket"]],
    ]
    assert rows[0]["held_by"] == [holder.id[:12]]
    assert rows[0]["waits_for"] == "4 GPUs"
    until(lambda: "is number 3 in line, behind" in second.said)
    shown = world.machine.installed.ctl("queue")
    assert rows[0]["ticket"] in shown
    # Who comes later without a ticket is behind them all, and what is in nobody's way is not.
    assert "the ticket" in world.refused("GPUSHIM_GPUS=1")
    world.ask.delete(holder)
    for each, others in ((urgent, [first, second]), (first, [second]), (second, [])):
        world.given(each)
        assert not any(map(world.has_started, others))
        each.process.terminate()
        each.ended()


def test_a_later_request_leaves_to_the_first_what_it_waits_for(world: World) -> None:
    holder = world.ask.running("GPUSHIM_GPUS=2")
    client = world.run("--gpus", "3")
    client.until_it_waits()
    said = world.refused("GPUSHIM_GPUS=1")
    assert "which comes first" in said
    assert world.ask.run("NVIDIA_VISIBLE_DEVICES=all").gpus
    # It was stopped, and holds nobody up meanwhile.
    os.kill(client.process.pid, signal.SIGSTOP)
    assert len(world.ask.run("GPUSHIM_GPUS=1").gpus) == 1
    os.kill(client.process.pid, signal.SIGCONT)
    assert "which comes first" in world.refused("GPUSHIM_GPUS=1")
    world.ask.delete(holder)
    assert len(ticket_in(world.given(client))) == 16


def test_a_container_that_is_started_again_need_not_stand_in_line(world: World) -> None:
    """What it had is its own until somebody else has it; for anything more it waits."""
    holder = world.ask.running("GPUSHIM_GPUS=3")
    before = holder.read()["process"]["env"]
    # Somebody who is in line and does not look just now.
    client = subprocess.Popen(["sleep", "100"])
    try:
        asked = Request([], [], {"devices": "a test"})
        asked.count = 4
        take(world.machine.places, asked, 0, (client.pid, start_time(client.pid)))
        world.ask.delete(holder)
        world.ask.runtime.create(holder).check()
        assert holder.read()["process"]["env"] == before
        assert "which comes first" in world.refused("GPUSHIM_GPUS=1")
        world.ask.delete(holder)
        holder.config["process"]["env"] = ["GPUSHIM_GPUS=4"]
        holder.write()
        done = world.ask.runtime.create(holder)
        assert done.status == 1
        assert "which comes first" in done.stderr
    finally:
        client.kill()
        client.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_is_cancelled_by_a_signal(world: World, number: int) -> None:
    holder = world.ask.running("GPUSHIM_GPUS=4")
    client = world.run()
    client.until_it_waits()
    client.process.send_signal(number)
    assert client.ended() == -number
    assert world.line() == []
    if number != signal.SIGKILL:
        assert world.files() == []
        assert client.said.endswith("gpushimctl: The ticket was given back.\n")
    world.ask.delete(holder)
    assert len(world.ask.run("GPUSHIM_GPUS=4").gpus) == 4
    assert not world.has_started(client)
    # Whoever takes a ticket next sweeps up.
    world.reserve("--for", "1s")
    assert world.files() == ["ready"]


def test_it_is_cancelled_by_name(world: World) -> None:
    holder = world.ask.running("GPUSHIM_GPUS=4")
    client = world.run()
    client.until_it_waits()
    ticket = world.queue()["waiting"][0]["ticket"]
    assert ctl(world.machine, "queue", "cancel", "ffff").returncode == 1
    assert ticket in world.machine.installed.ctl("queue", "cancel", ticket[:6])
    assert client.ended() == 1
    assert f"Ticket {ticket} was cancelled by root with 'gpushimctl queue cancel'" in client.said
    world.ask.delete(holder)
    ticket = world.reserve("--gpus", "4")
    world.machine.installed.ctl("queue", "cancel", ticket)
    assert f"Ticket {ticket} was cancelled." in world.refused(f"GPUSHIM_TICKET={ticket}")
    assert len(world.ask.run("GPUSHIM_GPUS=4").gpus) == 4


def test_the_time_to_wait_can_be_over(world: World) -> None:
    world.ask.running("GPUSHIM_GPUS=4")
    client = world.run("--wait", "500ms")
    assert client.ended() == 75
    assert "After 0 s of waiting: 1 GPU was asked for by gpushimctl run" in client.said
    assert world.files() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpus", "5"], "there are only 4 GPUs here"),
        (["--model", "*H100*"], "of model *H100*"),
        (["--memory", "200g"], "The largest has"),
        (["--gpus", "device=9"], "there is no GPU '9' here"),
        (["--gpus", "0"], "so there is nothing to wait for"),
        (["--gpus", "vendor.com/class=x"], "CDI devices can't be waited for"),
        (["--memory", "lots"], "'lots' is no amount of GPU memory (option --memory=lots"),
        (["--wait", "soon"], "'soon' is no time to wait"),
    ],
)
def test_what_can_never_be_fails_at_once(world: World, options: list[str], said: str) -> None:
    world.ask.running("GPUSHIM_GPUS=4")
    client = world.run(*options)
    assert client.ended() == 1
    assert said in client.said
    assert world.files() == []


def test_commands_that_can_not_be_handed_a_ticket(world: World) -> None:
    for words in (["docker", "compose", "up"], ["make"], ["docker", "ps"]):
        done = ctl(world.machine, "run", "--", *words)
        assert done.returncode == 1
        assert "'gpushimctl reserve' waits in the same way" in done.stderr
    assert "no command to run" in ctl(world.machine, "run", "--gpus", "1").stderr
    away = str(world.engine.parent / "away" / "docker")
    done = ctl(world.machine, "run", "--", away, "run", "IMAGE")
    assert (done.returncode, done.stderr) == (
        127,
        f"gpushimctl: There is no program {away} here.\n",
    )
    assert world.files() == []


def test_a_container_that_is_created_only_has_some_time_to_start(world: World) -> None:
    Path(f"{world.engine}.quick").touch()
    client = world.client("run", "--gpus", "4", "--", str(world.engine), "create", "IMAGE")
    env = [word for word in world.given(client) if word.startswith("GPUSHIM_")]
    assert client.ended() == 7
    assert "for 10 minutes, until the container is started" in client.said
    assert "ticket" in world.refused("GPUSHIM_GPUS=1")
    assert len(world.ask.run(*env).gpus) == 4


def test_waiting_in_a_create_is_for_docker(world: World) -> None:
    world.ask.running("GPUSHIM_GPUS=4")
    said = world.refused("GPUSHIM_GPUS=1", "GPUSHIM_WAIT=1m")
    assert "which is possible under Docker only" in said
    assert "gpushimctl run --wait" in said


def test_another_user_waits_and_roots_docker_redeems(world: World) -> None:
    holder = world.ask.running("GPUSHIM_GPUS=4")
    client = world.run("--gpus", "2")
    client.until_it_waits()
    root = world.queue()["waiting"][0]["ticket"]
    alice = world.client(
        "reserve", "--gpus", "2", "--priority", "5", user=ALICE, group=ALICE, extra_groups=[]
    )
    alice.until_it_waits()
    rows = world.queue()["waiting"]
    assert [row["uid"] for row in rows] == [ALICE, 0]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", world.machine.places.root,
         "queue", "cancel", root], user=ALICE, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Its owner or root can cancel it." in done.stderr
    world.ask.delete(holder)
    assert alice.ended() == 0
    ticket = alice.said.splitlines()[-1]
    assert ticket == rows[0]["ticket"]
    world.given(client)
    seen = world.ask.run(f"GPUSHIM_TICKET={ticket}")
    assert len(seen.gpus) == 2
    assert len(seen.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
