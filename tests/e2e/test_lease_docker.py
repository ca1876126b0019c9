"""GPUs that are really one's own, on a real dockerd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpushim.allocate.book import every
from gpushim.allocate.lease import Lease
from gpushim.allocate.liveness import Roots, lives

from tests.harness import PrivateDockerd
from tests.harness.asking import ctl
from tests.harness.dockered import Detached
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, probe, variables

pytestmark = pytest.mark.docker

LOOK = probe(["open", *NODES], ["env"])
ONE = "--gpus=1"


class Crowd:
    """Containers in the background, and what they have."""

    def __init__(self, machine: Machine, engine: PrivateDockerd) -> None:
        self.machine, self.engine = machine, engine
        self.made: list[Detached] = []

    def start(self, *options: str) -> Detached:
        self.made.append(Detached(self.engine, *options, image="busybox"))
        return self.made[-1]

    def gpus(self, container: Detached) -> list[int]:
        """The GPUs that a container can use, of which its lease has each."""
        seen = container.exec(*LOOK)
        nodes = devices(seen).keys() - set(CONTROL)
        found = [gpu.index for gpu in self.machine.host.gpus if f"nvidia{gpu.minor}" in nodes]
        (lease,) = self.leases(container)
        assert {booking.uuid for booking in lease.bookings} == {
            self.machine.host.gpus[index].uuid for index in found
        }
        assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == self.machine.uuids(*found)
        return found

    def leases(self, container: Detached | None = None) -> list[Lease]:
        """Those that live, of one container or of all."""
        roots = Roots()
        found = [lease for lease in every(self.machine.places) if lives(lease, roots)]
        return [lease for lease in found if container is None or lease.id == container.id]

    def refused(self, *options: str) -> str:
        tag = self.engine.import_image("busybox")
        done = self.engine.docker("run", "--rm", "--network=none", *options, tag, "true")
        assert done.returncode != 0
        return done.stderr

    def close(self) -> None:
        if self.made:
            self.engine.docker("rm", "--force", *(container.id for container in self.made))


@pytest.fixture
def crowd(dgx: Machine, engine: PrivateDockerd) -> Iterator[Crowd]:
    made = Crowd(dgx, engine)
    yield made
    made.close()


def until(what: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_one_each(crowd: Crowd) -> None:
    """`docker run -d --gpus 1` twice gives two GPUs."""
    first, second = crowd.start(ONE), crowd.start(ONE)
    one, two = crowd.gpus(first), crowd.gpus(second)
    assert len(one) == len(two) == 1
    assert one != two


def test_all_twice(crowd: Crowd) -> None:
    """Two services with --gpus all both run, and neither is in the way of one that wants one."""
    for _ in range(2):
        assert crowd.gpus(crowd.start("--gpus=all")) == list(range(8))
    assert len(crowd.gpus(crowd.start(ONE))) == 1


def test_the_same_name_twice(crowd: Crowd) -> None:
    for _ in range(2):
        assert crowd.gpus(crowd.start("--gpus=device=0")) == [0]
    assert crowd.gpus(crowd.start(ONE)) != [0]


def test_eight_and_a_ninth(crowd: Crowd, engine: PrivateDockerd) -> None:
    """The ninth is refused; started by `gpushimctl run`, it starts when one of the eight ends."""
    eight = [crowd.start(ONE, f"--name=holder{number}") for number in range(8)]
    assert sorted(index for each in eight for index in crowd.gpus(each)) == list(range(8))
    said = crowd.refused(ONE)
    assert "1 GPU was asked for by device request for a count of 1, and of the 8 GPUs" in said
    assert "none is free: " in said
    for number, container in enumerate(eight):
        assert f"{crowd.gpus(container)[0]} is held by holder{number} (exclusive, " in said
    tag = engine.import_image("busybox")
    words = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", crowd.machine.places.root]
    words += ["run", "--gpus", "1", "--", "docker", "run", "--rm", "--network=none", tag, *LOOK]
    ninth = subprocess.Popen(
        words, env=engine.client_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        until(lambda: json.loads(ctl(crowd.machine, "queue", "--json").stdout)["waiting"])
        assert ninth.poll() is None
        (freed,) = crowd.gpus(eight[3])
        engine.docker("kill", eight[3].id, check=True)
        said = ninth.communicate(timeout=60)[0].decode()
    finally:
        if ninth.poll() is None:
            ninth.kill()
            ninth.wait()
    assert ninth.returncode == 0, said
    assert devices(said).keys() - set(CONTROL) == {crowd.machine.node(freed)}


def test_a_restart_keeps_the_gpu(crowd: Crowd) -> None:
    crowd.start(ONE)
    container = crowd.start(ONE)
    was = crowd.gpus(container)
    for _ in range(3):
        container.docker("restart", "-t0")
        assert crowd.gpus(container) == was
    # Stopped it holds nothing; started again it has its GPU if nobody else took it.
    container.docker("stop", "-t0")
    assert crowd.leases(container) == []
    container.docker("start")
    assert crowd.gpus(container) == was


def test_what_a_stopped_container_had_is_free(crowd: Crowd) -> None:
    container = crowd.start("--gpus=8")
    container.docker("stop", "-t0")
    other = crowd.start(ONE)
    assert len(crowd.gpus(other)) == 1
    done = crowd.engine.docker("start", container.id)
    assert done.returncode != 0
    assert "8 GPUs were asked for by device request for a count of 8" in done.stderr
    assert "only 7 are free" in done.stderr


def test_one_that_crashes_all_the_time_keeps_one_lease(crowd: Crowd) -> None:
    tag = crowd.engine.import_image("busybox")
    options = ["run", "-d", "--network=none", "--restart=always", ONE, tag]
    made = crowd.engine.docker(*options, *probe(["exit", "3"]), check=True).stdout.strip()

    def restarts() -> int:
        shown = crowd.engine.docker("inspect", "--format={{.RestartCount}}", made, check=True)
        return int(shown.stdout)

    try:
        until(lambda: restarts() >= 4)
        granted = [
            line["grant"]["gpus"][0]["uuid"]
            for line in crowd.machine.log_lines()
            if line.get("id") == made and "grant" in line
        ]
        assert len(granted) >= 4
        assert len(set(granted)) == 1
        assert len([lease for lease in every(crowd.machine.places) if lease.id == made]) <= 1
        assert len([crowd.gpus(crowd.start(ONE)) for _ in range(7)]) == 7
    finally:
        crowd.engine.docker("rm", "--force", made, check=True)


def test_memory_as_a_label(crowd: Crowd) -> None:
    """Shared by memory: two on one card, and the variable tells that nobody enforces it."""
    first, second = (crowd.start("--label=gpushim.memory=20g") for _ in range(2))
    assert crowd.gpus(first) == crowd.gpus(second)
    assert variables(first.exec(*LOOK))["GPUSHIM_MEMORY_ENFORCEMENT"] == "none"
    large = crowd.start(ONE, "--label=gpushim.memory=60g")
    assert crowd.gpus(large) != crowd.gpus(first)
    shown = ctl(crowd.machine, "ps").stdout
    assert shown.count("20 GiB (not enforced)") == 2
    assert "60 GiB (not enforced)" in shown


def test_the_engines_shim_is_killed(crowd: Crowd) -> None:
    """What its container had goes with it, and what the others have stays theirs."""
    containers = [crowd.start("--gpus=4") for _ in range(2)]
    was = crowd.gpus(containers[1])
    pid = json.loads(crowd.engine.docker("inspect", containers[0].id).stdout)[0]["State"]["Pid"]
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert "containerd-shim" in Path(f"/proc/{parent}/cmdline").read_text()
    os.kill(parent, signal.SIGKILL)
    until(lambda: not crowd.leases(containers[0]))
    assert crowd.gpus(containers[1]) == was
    assert sorted([*was, *crowd.gpus(crowd.start("--gpus=4"))]) == list(range(8))


def test_as_many_as_those_of_a_label_may_have(
    dgx: Machine, engine: PrivateDockerd, crowd: Crowd
) -> None:
    """Also with a ticket, which stays good for whoever may redeem it."""
    dgx.configure("[allocate.max-per-label]\nteam = 3\n")
    try:
        crowd.start("--gpus=2", "--label=team=red")
        said = crowd.refused("--gpus=2", "--label=team=red")
        assert "containers with the label team=red may have 3 together and have 2" in said
        assert len(crowd.gpus(crowd.start("--gpus=2", "--label=team=blue"))) == 2
        assert len(crowd.gpus(crowd.start("--gpus=2", "--label=other=red"))) == 2
        ticket = ctl(dgx, "reserve", "--gpus", "2").stdout.strip()
        said = crowd.refused(f"--label=gpushim.ticket={ticket}", "--label=team=red")
        assert f"2 GPUs were asked for by ticket {ticket}, but containers with the label" in said
        assert len(crowd.gpus(crowd.start(f"--label=gpushim.ticket={ticket}"))) == 2
    finally:
        dgx.configure()
