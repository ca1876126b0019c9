"""A create that redeems a ticket is killed at each of its steps: the ticket is good, or spent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpushim.allocate import turn
from gpushim.allocate.book import every, open_book
from gpushim.allocate.choose import Choice
from gpushim.allocate.queue import terms_of
from gpushim.allocate.ticket import Ticket
from gpushim.records import start_time
from gpushim.request.request import Request
from gpushim.snapshot import load

from tests.conftest import cannot
from tests.e2e.test_killed import Killing
from tests.harness import Bundle
from tests.harness.leased import Here
from tests.harness.seen import probe
from tests.harness.users import ALICE, Processes, as_user

pytestmark = pytest.mark.e2e

SLEEP = probe(["sleep", "300"])
REST, EVERY = "GPUSHIM_GPUS=2", "GPUSHIM_GPUS=4"


class Redeeming(Killing):
    """A container whose ticket, for two GPUs of four, is another one at each attempt."""

    def __init__(self, here: Here, client: int) -> None:
        bundle = here.bundle("GPUSHIM_TICKET=" + "0" * 16, REST, image="debian", args=SLEEP)
        super().__init__(here.machine, here.runtime, bundle)
        self.here = here
        self._client = (client, start_time(client))
        self._first = self.original

    def reset(self) -> None:
        super().reset()
        self.original = self._first.replace(b"0" * 16, self.reserve().encode())
        self.bundle.config_path.write_bytes(self.original)

    def reserve(self) -> str:
        """A ticket of Alice's whose GPUs are booked already."""
        places = self.machine.places
        snapshot = load(places)
        assert snapshot is not None
        terms = terms_of(snapshot)

        def reserve() -> str:
            request = Request([], [], {"devices": "option --gpus=2"})
            request.count = 2
            made = turn.take(places, request, 0, self._client)
            book_it = turn.booking(places, made, lambda leases: terms, 600)
            with open_book(places) as book:
                assert isinstance(book_it(book, []), Choice)
            Path(places.queue, f"{made.id}.waiting").unlink()
            return made.id

        self.ticket = str(as_user(ALICE, reserve))
        assert len(self.ticket) == 16, self.ticket
        return self.ticket

    def give_back(self) -> None:
        """What the client does in the end, whatever became of its ticket."""
        made = Ticket(self.ticket, self._client, 0, Request([], [], {}))
        made.owner = ALICE
        turn.give_back(self.machine.places, made)

    def is_kept(self) -> bool:
        return f"ticket-{self.ticket}" in [lease.id for lease in every(self.machine.places)]

    def file_states(self) -> set[str]:
        """Without what was half written, which goes when the next ticket is taken."""
        paths = Path(self.machine.places.queue).glob(f"{self.ticket}.*")
        return {path.suffix for path in paths if ".tmp" not in path.name}


@pytest.fixture
def killing(make_here: Callable[..., Here]) -> Iterator[Redeeming]:
    """Alice has the ticket, and root's runtime redeems it."""
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    here = make_here(name="a100_pcie4")
    here.delete(here.created(EVERY))
    processes = Processes()
    yield Redeeming(here, processes.of(ALICE))
    processes.close()


def test_another_container_comes_with_the_ticket(killing: Redeeming) -> None:
    """It gets what the ticket was taken for, or everything is free: nothing is given twice."""
    here = killing.here
    seen = set()
    steps = killing.steps()
    assert len(steps) > 20
    for step in steps:
        killing.reset()
        killing.kill_at(*step)
        good = killing.is_kept()
        seen.add(good)
        env = f"GPUSHIM_TICKET={killing.ticket}"
        other = here.bundle(env, args=SLEEP)
        result = here.runtime.create(other)
        assert (result.status == 0) is good, (step, result)
        if good:
            rest = here.created(REST)
            assert sorted(here.gpus_of(other) + here.gpus_of(rest)) == [0, 1, 2, 3], step
            assert "was redeemed already, by container" in _refused(here, env), step
            assert killing.file_states() == {".redeemed"}, step
            for each in (rest, other):
                here.delete(each)
        else:
            assert "redeemed already" in result.stderr or "is over" in result.stderr, step
        # Its client lives, and keeps nothing from anybody.
        here.delete(here.created(EVERY))
        killing.give_back()
    assert seen == {True, False}


def test_the_same_container_comes_again(killing: Redeeming) -> None:
    """`docker start`, say: it has two GPUs, be it by its ticket or by its count."""
    here = killing.here
    for step in killing.steps():
        killing.reset()
        killing.kill_at(*step)
        here.runtime.create(killing.bundle).check()
        assert len(here.gpus_of(killing.bundle)) == 2, step
        rest = here.created(REST)
        assert sum((len(lease.bookings) for lease in here.leases()), 0) == 4, step
        assert not killing.is_kept(), step
        for each in (rest, killing.bundle):
            here.delete(each)
        killing.give_back()


def _refused(here: Here, *env: str) -> str:
    bundle: Bundle = here.bundle(*env, args=SLEEP)
    done = here.runtime.create(bundle)
    assert done.status == 1, done
    return done.stderr
