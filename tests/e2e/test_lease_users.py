"""Root's containers and those of two other users, each with a runtime of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpushim.allocate.book import every
from gpushim.allocate.lease import EXCLUSIVE, Booking, Lease, file_name
from gpushim.records import start_time

from tests.conftest import cannot
from tests.harness.asking import ctl
from tests.harness.leased import Here
from tests.harness.rootless import Rootless
from tests.harness.seen import CONTROL, NODES, devices, probe, variables
from tests.harness.users import ALICE, BOB, as_user

pytestmark = pytest.mark.e2e

ONE, EIGHT = "GPUSHIM_GPUS=1", "GPUSHIM_GPUS=8"
SLEEP = probe(["sleep", "300"])


class Machine3:
    """A machine with eight GPUs, and three users of it."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.alice, self.bob = (Rootless(here.machine, uid) for uid in (ALICE, BOB))
        trial = Rootless(here.machine, ALICE, "runc")
        done = trial.call("run", "--bundle", (made := trial.bundle(["true"])), made.name)
        trial.close()
        if done.returncode:
            cannot(f"rootless runc starts nothing here: {done.stdout}")

    def owners(self) -> list[tuple[int, int]]:
        """(uid, index) of each GPU that a container has that lives, as root sees it."""
        index = {gpu.uuid: gpu.index for gpu in self.here.machine.host.gpus}
        return sorted(
            (lease.owner, index[booking.uuid])
            for lease in self.here.leases()
            for booking in lease.bookings
        )

    def close(self) -> None:
        for each in (self.alice, self.bob):
            each.close()


@pytest.fixture
def all_three(here: Here) -> Iterator[Machine3]:
    made = Machine3(here)
    yield made
    made.close()


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_each_has_its_own(all_three: Machine3) -> None:
    """Containers that really run, and can open what they have booked and nothing else."""
    machine = all_three.here.machine
    root = all_three.here.running(ONE)
    look = probe(["open", *NODES], ["env"])
    for user in (all_three.alice, all_three.bob):
        waits = user.created(SLEEP, ONE)
        ((_, index),) = [each for each in all_three.owners() if each[0] == user.uid]
        bundle = user.bundle(look, ONE)
        done = user.call("run", "--bundle", bundle, bundle.name)
        assert done.returncode == 0, done
        (node,) = devices(done.stdout).keys() - set(CONTROL)
        assert node not in (machine.node(index), machine.node(all_three.here.gpus_of(root)[0]))
        user.call("start", waits.name)
    assert [uid for uid, _ in all_three.owners()] == [0, ALICE, BOB]
    assert len({index for _, index in all_three.owners()}) == 3
    shown = json.loads(ctl(machine, "ps", "--json").stdout)
    assert {row["uid"] for row in shown["leases"]} == {0, ALICE, BOB}


def test_a_crowd_of_all_three(all_three: Machine3) -> None:
    """Eight of eighteen get a GPU each, whoever they are, and the others are told why not."""
    here, users = all_three.here, (all_three.alice, all_three.bob)
    mine = [here.bundle(ONE, args=SLEEP) for _ in range(6)]
    theirs = [(user, user.bundle(SLEEP, ONE)) for user in users for _ in range(6)]
    with ThreadPoolExecutor(9) as pool:
        roots = [pool.submit(here.runtime.create, bundle) for bundle in mine]
        others = [pool.submit(user.create, bundle) for user, bundle in theirs]
        results = [(each.result().status, each.result().stderr) for each in roots]
        results += [(each.result().returncode, each.result().stdout) for each in others]
    refused = [said for status, said in results if status]
    assert len(refused) == 10, results
    assert not [said for said in refused if "1 GPU was asked for by environment" not in said]
    assert sorted(index for _, index in all_three.owners()) == list(range(8))


def test_what_one_gives_back_another_gets(all_three: Machine3) -> None:
    alice, bob = all_three.alice, all_three.bob
    bundle = alice.created(SLEEP, EIGHT)
    assert bob.create(bob.bundle(SLEEP, ONE)).returncode == 1
    assert f"0 to 7 are held by {bundle.name[:12]}" in all_three.here.refused(ONE)
    # Nobody calls delete. Root can tell what has ended, whatever processes there are.
    os.kill(alice.init(bundle), signal.SIGKILL)
    until(lambda: all_three.owners() == [])
    all_three.here.delete(all_three.here.created(EIGHT))
    taken = bob.created(SLEEP, EIGHT)
    assert {uid for uid, _ in all_three.owners()} == {BOB}
    refused = alice.create(alice.bundle(SLEEP, ONE))
    assert refused.returncode == 1
    assert f"held by {taken.name[:12]} (exclusive, " in refused.stdout
    bob.delete(taken)
    all_three.here.delete(all_three.here.created(EIGHT))
    assert all_three.owners() == []


def test_a_user_looks_after_its_containers(all_three: Machine3) -> None:
    """exec adds the variables, explain tells what was decided: by records of the user's own."""
    alice, machine = all_three.alice, all_three.here.machine
    bundle = alice.created(SLEEP, ONE)
    alice.call("start", bundle.name)
    process = {**json.loads((bundle / "config.json").read_text())["process"]}
    process.update(args=probe(["env"]), env=[])
    file = alice.directory / "process.json"
    file.write_text(json.dumps(process))
    file.chmod(0o666)
    os.chown(file, ALICE, ALICE)
    alice.directory.chmod(0o777)
    seen = variables(alice.call("exec", "--process", file, bundle.name).stdout)
    ((_, index),) = all_three.owners()
    assert seen["NVIDIA_VISIBLE_DEVICES"] == machine.uuids(index)
    explained = subprocess.run(
        [machine.places.bin + "/gpushimctl", "explain", "--json", bundle.name], user=ALICE,
        env=alice.environment, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(explained.stdout)["lease"]["owner"] == ALICE, explained
    assert not os.path.exists(f"{machine.places.containers}/{bundle.name}")


def test_a_refusal_is_explained_to_the_user(all_three: Machine3) -> None:
    all_three.here.created(EIGHT)
    bob, machine = all_three.bob, all_three.here.machine
    bundle = bob.bundle(SLEEP, ONE)
    assert bob.create(bundle).returncode == 1
    explained = subprocess.run(
        [machine.places.bin + "/gpushimctl", "explain", bundle.name], user=BOB,
        env=bob.environment, capture_output=True, text=True,
    )  # fmt: skip
    assert "none is free" in explained.stdout, explained


def _error(change: Callable[[], object]) -> str:
    """What kind of error an attempt ends with."""
    try:
        change()
    except OSError as error:
        return type(error).__name__
    return ""


def test_what_a_user_makes_up_is_in_nobodys_way(all_three: Machine3) -> None:
    """A lease that names root's processes, or another user's; one that is another's file."""
    here, alice, bob = all_three.here, all_three.alice, all_three.bob
    hers = alice.created(SLEEP, ONE)
    places = here.machine.places
    state_root = f"{alice.runtime_directory}/root"
    (lease,) = every(places)

    def forge() -> list[str]:
        for uuid, (name, pid) in zip(uuids, creators.items(), strict=False):
            root = state_root if name == "hers" else "/run/runc"
            made = Lease(name, root, (pid, start_time(pid) or 1), [Booking(uuid, EXCLUSIVE)])
            made.boot, made.family, made.owner = lease.boot, "runc", 0
            Path(places.leases, file_name(name, root, 0)).write_text(json.dumps(made.to_json()))
        return [_error(change) for change in changes]

    def rename() -> None:
        os.rename(lease.path, lease.path + ".x")

    changes = (lambda: os.unlink(lease.path), rename, lambda: Path(lease.path).write_text(""))
    creators = {"init": 1, "hers": alice.init(hers), "gone": 2**22}
    uuids = [gpu.uuid for gpu in here.machine.host.gpus if gpu.uuid != lease.bookings[0].uuid]
    assert as_user(BOB, forge) == ["PermissionError"] * 3
    assert len(os.listdir(places.leases)) == 4
    here.delete(here.created("GPUSHIM_GPUS=7"))
    assert [each.id for each in here.leases()] == [hers.name]
    assert not {"init", "hers", "gone"} & {each.id for each in every(places)}
    assert bob.create(bob.bundle(SLEEP, EIGHT)).returncode == 1


def test_a_ticket_of_ones_own(all_three: Machine3) -> None:
    """Its owner's runtime redeems it, and root's, and nobody else's."""
    alice, bob, machine = all_three.alice, all_three.bob, all_three.here.machine

    def reserve(count: int) -> str:
        done = subprocess.run(
            [machine.places.bin + "/gpushimctl", "reserve", "--gpus", str(count)], user=ALICE,
            env=alice.environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done
        return f"GPUSHIM_TICKET={done.stdout.strip()}"

    first, second = reserve(3), reserve(2)
    refused = bob.create(bob.bundle(SLEEP, first))
    assert refused.returncode == 1
    assert f"belongs to the user with uid {ALICE}" in refused.stdout
    alice.created(SLEEP, first)
    assert "was redeemed already, by container" in alice.create(alice.bundle(SLEEP, first)).stdout
    all_three.here.created(second)
    assert [uid for uid, _ in all_three.owners()] == [0] * 2 + [ALICE] * 3
    assert bob.create(bob.bundle(SLEEP, "GPUSHIM_GPUS=4")).returncode == 1
    bob.created(SLEEP, "GPUSHIM_GPUS=3")
