"""dockerd is killed and started again: who lives keeps its GPUs, and what has ended has none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import cannot
from tests.harness import EngineUnavailable, PrivateDockerd, processes
from tests.harness.dockered import Detached
from tests.harness.leased import Here
from tests.harness.seen import CONTROL, NODES, devices, probe

pytestmark = pytest.mark.docker

LOOK = probe(["open", *NODES])


class Crashing:
    """An engine of the test's own on a machine of its own, whose leases are looked at."""

    def __init__(self, here: Here, engine: PrivateDockerd) -> None:
        self.here, self.engine = here, engine

    def start(self, count: int, *options: str) -> Detached:
        return Detached(self.engine, "-e", f"GPUSHIM_GPUS={count}", *options, image="busybox")

    def init(self, container: Detached) -> int:
        done = self.engine.docker("inspect", "--format={{.State.Pid}}", container.id, check=True)
        return int(done.stdout)

    def held(self) -> dict[str, list[str]]:
        """Container -> the GPUs of its lease, of those that live."""
        return {
            lease.id: [booking.uuid for booking in lease.bookings] for lease in self.here.leases()
        }

    def nodes(self, container: Detached) -> set[str]:
        """The GPUs that a container can use."""
        return devices(container.exec(*LOOK)).keys() - set(CONTROL)


@pytest.fixture(params=[False, True], ids=["plain", "live-restore"])
def crashing(here: Here, request: pytest.FixtureRequest) -> Iterator[Crashing]:
    engine = PrivateDockerd(
        config={"default-runtime": "gpushim", "live-restore": request.param},
        runtimes={"gpushim": {"path": str(here.machine.launcher)}},
    )
    try:
        engine.start()
    except EngineUnavailable as reason:
        engine.stop()
        cannot(str(reason))
    yield Crashing(here, engine)
    engine.stop()


def until(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_dockerd_is_killed_and_started_again(crashing: Crashing) -> None:
    here, engine = crashing.here, crashing.engine
    stays, goes, ends = crashing.start(2, "--restart=always"), crashing.start(2), crashing.start(1)
    before, nodes = crashing.held(), crashing.nodes(stays)
    pids = {each.id: crashing.init(each) for each in (stays, goes, ends)}
    engine.kill()
    # Nobody is there to tell of an end.
    os.kill(pids[ends.id], signal.SIGKILL)
    until(lambda: ends.id not in crashing.held())
    assert crashing.held() == {each.id: before[each.id] for each in (stays, goes)}
    here.refused("GPUSHIM_GPUS=5")
    other = here.created("GPUSHIM_GPUS=4")
    assert len({uuid for uuids in crashing.held().values() for uuid in uuids}) == 8
    engine.start()
    lives_on = "true" in engine.docker("info", "--format={{.LiveRestoreEnabled}}").stdout
    # Without live-restore dockerd ends what still runs, and starts anew what has the policy.
    until(lambda: (goes.id in crashing.held()) is lives_on)
    until(lambda: stays.id in crashing.held() and crashing.init(stays))
    assert (crashing.init(stays) == pids[stays.id]) is lives_on
    assert crashing.held()[stays.id] == before[stays.id]
    until(lambda: crashing.nodes(stays) == nodes)
    assert ends.id not in crashing.held()
    here.delete(other)
    left = 4 if lives_on else 6
    assert len(crashing.nodes(crashing.start(left))) == left
    assert "none is free" in engine.docker("start", ends.id).stderr


def test_every_process_of_the_engine_is_killed(crashing: Crashing) -> None:
    """The containers go on without dockerd, containerd and shims, and so do their leases."""
    here, engine = crashing.here, crashing.engine
    containers = [crashing.start(4) for _ in range(2)]
    before = crashing.held()
    inits = [crashing.init(each) for each in containers]
    engine.kill()
    for pid in engine.processes() - processes.family(inits[0]) - processes.family(inits[1]):
        os.kill(pid, signal.SIGKILL)
    assert crashing.held() == before
    here.refused("GPUSHIM_GPUS=1")
    os.kill(inits[0], signal.SIGKILL)
    until(lambda: list(crashing.held()) == [containers[1].id])
    here.delete(here.created("GPUSHIM_GPUS=4"))
    os.kill(inits[1], signal.SIGKILL)
    until(lambda: not crashing.held())
    engine.start()
    assert len(crashing.nodes(crashing.start(8))) == 8
