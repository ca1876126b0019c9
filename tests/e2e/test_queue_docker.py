"""Waiting for GPUs with a real dockerd: before a container is created, and while it is."""

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

from tests.harness import PrivateDockerd
from tests.harness.asking import ctl
from tests.harness.dockered import Detached
from tests.harness.machine import Machine
from tests.harness.seen import NODES, devices, probe

pytestmark = pytest.mark.docker

LOOK = probe(["open", *NODES])


def until(what: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def line(machine: Machine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ctl(machine, "queue", "--json").stdout)["waiting"]
    return found


class Waiting:
    """A command in the background: docker run, or gpushimctl run around it."""

    def __init__(self, engine: PrivateDockerd, words: list[str]) -> None:
        self.process = subprocess.Popen(
            words, env=engine.client_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def ended(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


Start = Callable[..., Waiting]


@pytest.fixture
def start(engine: PrivateDockerd, dgx: Machine) -> Iterator[Start]:
    """Start `docker run` with options, behind `gpushimctl run` with others where these are given.

    The container prints which nodes it can open, or does what ``command`` says.
    """
    made: list[Waiting] = []

    def begin(*options: str, ahead: list[str] | None = None, command: list[str] = LOOK) -> Waiting:
        tag = engine.import_image("debian")
        words = ["docker", "run", "--rm", "--network=none", *options, tag, *command]
        if ahead is not None:
            admin = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", dgx.places.root]
            words = [*admin, "run", *ahead, "--", *words]
        made.append(Waiting(engine, words))
        return made[-1]

    yield begin
    for each in made:
        each.close()


@pytest.fixture
def full(engine: PrivateDockerd) -> Iterator[list[Detached]]:
    """Eight containers with a GPU each."""
    made = [Detached(engine, "--gpus", "1", "--name", f"holder{number}") for number in range(8)]
    yield made
    for each in made:
        engine.docker("rm", "--force", "--volumes", each.id)


def end(container: Detached) -> None:
    container.docker("rm", "--force")


def running(engine: PrivateDockerd) -> list[str]:
    """The names of the containers that run."""
    return engine.docker("ps", "--format", "{{.Names}}", check=True).stdout.split()


def gpus(machine: Machine, said: str) -> list[int]:
    found = devices(said)
    return [index for index in range(8) if machine.node(index) in found]


def test_the_ninth_starts_when_one_ends(
    dgx: Machine, engine: PrivateDockerd, full: list[Detached], start: Start
) -> None:
    """By priority, and each in its turn; the container's own status and output come through."""
    low = start(ahead=["--gpus", "1"], command=[*LOOK[:1], "sleep", "300"])
    until(lambda: len(line(dgx)) == 1)
    high = start(ahead=["--gpus", "1", "--priority", "7"])
    until(lambda: [row["priority"] for row in line(dgx)] == [7, 0])
    assert "holder0" in line(dgx)[1]["held_by"]
    late = start("--gpus", "1")
    status, said = late.ended()
    assert status == 125
    assert "none is free" in said
    end(full[3])
    status, said = high.ended()
    assert status == 0, said
    assert gpus(dgx, said) == [3]
    # With its end the other's turn has come.
    until(lambda: line(dgx) == [] and len(running(engine)) == 8)
    name = next(name for name in running(engine) if not name.startswith("holder"))
    engine.docker("rm", "--force", name)
    assert low.ended()[0] == 137


def test_a_ticket_in_a_label(dgx: Machine, engine: PrivateDockerd, full: list[Detached]) -> None:
    for each in full[:3]:
        end(each)
    ticket = ctl(dgx, "reserve", "--gpus", "2").stdout.strip()
    label = f"gpushim.ticket={ticket}"
    common = ("--network=none", engine.import_image("debian"), *LOOK)
    assert "only 1 is free" in engine.docker("run", "--gpus", "2", *common).stderr
    with Detached(engine, "--label", label, "--restart=always", "--name", "keeps") as container:
        assert len(gpus(dgx, container.exec(*LOOK))) == 2
        again = engine.docker("run", "--label", label, *common)
        assert again.returncode == 125
        assert f"Ticket {ticket} was redeemed already, by container keeps." in again.stderr
        before = gpus(dgx, container.exec(*LOOK))
        container.docker("restart", "-t", "0")
        assert gpus(dgx, container.exec(*LOOK)) == before


def test_a_create_waits_where_it_was_told_to(
    dgx: Machine, full: list[Detached], start: Start
) -> None:
    client = start("--gpus", "2", "--label", "gpushim.wait=1m", "--name", "patient")
    until(lambda: len(line(dgx)) == 1)
    row = line(dgx)[0]
    assert (row["name"], row["waits_for"]) == ("patient", "2 GPUs")
    end(full[1])
    end(full[6])
    status, said = client.ended()
    assert status == 0, said
    assert gpus(dgx, said) == [1, 6]
    assert not [name for name in os.listdir(dgx.places.queue) if name.endswith(".waiting")]


def test_a_create_that_waits_is_cancelled_and_never_starts(
    dgx: Machine, engine: PrivateDockerd, full: list[Detached], start: Start
) -> None:
    client = start("--gpus", "1", "--label", "gpushim.wait=1m", "--name", "patient")
    until(lambda: len(line(dgx)) == 1)
    assert ctl(dgx, "queue", "cancel", "patient").returncode == 0
    status, said = client.ended()
    assert status == 125
    assert "was cancelled by root with 'gpushimctl queue cancel'" in said
    end(full[0])
    time.sleep(1)
    assert sorted(running(engine)) == [f"holder{number}" for number in range(1, 8)]


def test_a_create_waits_no_longer_than_it_may(
    dgx: Machine, full: list[Detached], start: Start
) -> None:
    for label, cap in (("1s", ""), ("1h", '[allocate]\nwait-cap = "1s"\n')):
        dgx.configure(cap)
        try:
            status, said = start("--gpus", "1", "--label", f"gpushim.wait={label}").ended()
        finally:
            dgx.configure()
        assert status == 125
        assert "After 1 s of waiting: 1 GPU was asked for by" in said
    assert line(dgx) == []


def test_a_create_waits_no_longer_than_its_parent_lives(
    dgx: Machine, full: list[Detached], start: Start
) -> None:
    client = start("--gpus", "1", "--label", "gpushim.wait=1m")
    until(lambda: len(line(dgx)) == 1)
    pid = line(dgx)[0]["pid"]
    stat = Path(f"/proc/{pid}/stat").read_text()
    parent = int(stat.rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert line(dgx) == []
    client.close()
