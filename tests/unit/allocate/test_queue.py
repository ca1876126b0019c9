"""Whose turn it is: what those in line keep from those behind them."""

from __future__ import annotations

from random import Random

import pytest
from gpushim.allocate.choose import Choice
from gpushim.allocate.lease import EXCLUSIVE, SHARED, Lease
from gpushim.allocate.queue import Terms, ahead, choose_in_turn, kept_for, rivals
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.ticket import Ticket
from gpushim.allocate.wish import Wish
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.allocate.machines import GIB, Machine, machine, wish
from tests.unit.allocate.test_choose_properties import MACHINES, RESERVE, holds, wishes

CONSUMER, MIXED, MIG = machine("consumer8"), machine("mixed_lab"), machine("mig_host")


def terms(box: Machine, reserve: int = 0) -> Terms:
    made = Terms(box.gpus, box.links)
    made.reserve = reserve
    return made


def ticket(number: int, wanted: Wish, priority: int = 0) -> Ticket:
    """The ticket of this arrival."""
    made = Ticket(f"{number:016x}", (1, 1), priority, wanted.request)
    made.arrival = number
    return made


def turn(
    box: Machine, wanted: Wish, tickets: list[Ticket], leases: list[Lease], reserve: int = 0
) -> Choice | Refusal:
    return choose_in_turn(wanted, tickets, leases, terms(box, reserve), lambda lease: True)


def names(box: Machine, wanted: Wish, tickets: list[Ticket], leases: list[Lease]) -> str:
    found = turn(box, wanted, tickets, leases)
    if isinstance(found, Refusal):
        return "never" if found.never else "-"
    return ",".join(f"{g.index}:{m.index}" if m else str(g.index) for g, m, _ in found.bookings)


def test_the_order_is_priority_and_then_arrival() -> None:
    late, soon, first = (ticket(3, wish()), ticket(2, wish(), 5), ticket(1, wish()))
    line = sorted([late, soon, first], key=Ticket.turn)
    assert line == [soon, first, late]
    assert ahead(line, 0, 4) == line
    assert ahead(line, 0, 2) == [soon, first]
    assert ahead(line, 5, 1) == []
    assert ahead(line, 9, 99) == []
    # Nobody is before himself.
    assert ahead(line, soon.priority, soon.arrival) == []


@pytest.mark.parametrize(
    ("box", "first", "wanted", "taken", "got"),
    [
        # Six of eight are taken, and the first in line wants four.
        (CONSUMER, wish("4"), wish("1"), "0,1,2,3,4,5", "-"),
        (CONSUMER, wish("4"), wish("8"), "0,1,2,3,4,5", "-"),
        (CONSUMER, wish("4"), wish(memory="1g"), "0,1,2,3,4,5", "-"),
        (CONSUMER, wish("4"), wish("device=7"), "0,1,2,3,4,5", "-"),
        # `all` is in nobody's way.
        (CONSUMER, wish("4"), wish("all"), "0,1,2,3,4,5", "6,7"),
        # It can have them at this moment, and what it leaves is free for the next.
        (CONSUMER, wish("2"), wish("1"), "0,1,2,3", "6"),
        (CONSUMER, wish("4"), wish("1"), "0,1,2,3", "-"),
        # It can have nothing here at all.
        (CONSUMER, wish("9"), wish("1"), "0,1,2,3,4,5,6", "7"),
        (CONSUMER, wish("device=12"), wish("1"), "0,1,2,3,4,5,6", "7"),
        # It waits for what the other can't use, and the other way round.
        (MIG, wish(mig="3g.40gb"), wish("1"), "", "2"),
        # Names are waited for, too.
        (CONSUMER, wish("device=0"), wish("1"), "0", "1"),
        (CONSUMER, wish("device=0"), wish("8"), "0", "-"),
        (CONSUMER, wish("all"), wish("1"), "0,1,2,3,4,5,6,7", "-"),
    ],
)
def test_what_is_left_by_the_first_in_line(
    box: Machine, first: Wish, wanted: Wish, taken: str, got: str
) -> None:
    leases = [box.lease("web", taken)] if taken else []
    assert names(box, wanted, [ticket(1, first)], leases) == got


def test_other_models_are_free_for_others() -> None:
    models = [gpu.model for gpu in MIXED.gpus]
    other = next(model for model in models if model != models[0])
    only = ",".join(str(at) for at, model in enumerate(models) if model == models[0])
    leases = [MIXED.lease("web", only)]
    line = [ticket(1, wish(model=models[0]))]
    assert names(MIXED, wish(model=other), line, leases) == str(models.index(other))
    assert names(MIXED, wish(model=models[0]), line, []) != "-" or len(only) == 1
    assert rivals(ticket(2, wish(model=other)), line, terms(MIXED)) == []
    assert rivals(ticket(2, wish()), line, terms(MIXED)) == line


def test_shares_that_leave_room_for_the_first_are_given() -> None:
    """Case: the first wants a large part, of which there is none, and a small one fits beside."""
    box = machine("a100_pcie4")
    size = (box.gpus[0].memory or 0) // GIB
    leases = [box.lease(name, name, SHARED, (size - 20) * GIB) for name in "0123"]
    line = [ticket(1, wish("1", memory="30g"))]
    assert names(box, wish("1", memory="5g"), line, leases) == "-"
    line = [ticket(1, wish("2", memory=f"{size - 30}g"))]
    leases = [box.lease(name, name, EXCLUSIVE) for name in "123"]
    # One is free for it, but it wants two: there is room for both on that one.
    assert names(box, wish("1", memory="20g"), line, leases) == "0"
    assert names(box, wish("1", memory="40g"), line, leases) == "-"


def test_who_waits_for_the_same_is_in_line_behind_it() -> None:
    line = [ticket(1, wish("2")), ticket(2, wish("2")), ticket(3, wish("1"))]
    leases = [CONSUMER.lease("web", "0,1,2,3,4")]
    # Two for the first; the second has one only and keeps it.
    assert names(CONSUMER, wish("1"), line[:1], leases) != "-"
    assert names(CONSUMER, wish("1"), line[:2], leases) == "-"
    kept = kept_for(line, leases, terms(CONSUMER), lambda lease: True)
    assert [len(lease.bookings) for lease in kept] == [2, 8, 8]


def test_a_refusal_names_the_ticket_that_comes_first() -> None:
    found = turn(
        CONSUMER, wish("1"), [ticket(0xABC, wish("4"))], [CONSUMER.lease("web", "0,1,2,3,4")]
    )
    assert isinstance(found, Refusal)
    said = found.sentence(0)
    assert "the ticket 0000000000000abc, which comes first" in said
    assert "web" in said


def test_a_dead_lease_is_asked_about_and_a_ticket_is_not() -> None:
    asked: list[str] = []

    def alive(lease: Lease) -> bool:
        asked.append(lease.id)
        return False

    leases = [CONSUMER.lease("a", "0,1,2,3,4,5,6,7")]
    found = choose_in_turn(wish("1"), [ticket(1, wish("7"))], leases, terms(CONSUMER), alive)
    assert isinstance(found, Choice)
    assert set(asked) == {"a" * 8}


class Simulation:
    """A machine, those in line, and what has been given."""

    def __init__(self, box: Machine) -> None:
        self.box = box
        self.line: list[Ticket] = []
        self.wishes: dict[str, Wish] = {}
        self.leases: list[Lease] = []
        self.served: list[str] = []
        self.counter = 0

    def arrive(self, wanted: Wish, priority: int) -> Ticket:
        self.counter += 1
        made = ticket(self.counter, wanted, priority)
        self.wishes[made.id] = wanted
        self.line = sorted([*self.line, made], key=Ticket.turn)
        return made

    def try_it(self, one: Ticket) -> Choice | Refusal:
        before = ahead(self.line, one.priority, one.arrival)
        found = turn(self.box, self.wishes[one.id], before, self.leases, RESERVE)
        if isinstance(found, Choice):
            bookings = [booking for _, _, booking in found.bookings]
            self.leases.append(Lease(one.id, "/run/runc", (1, 1), bookings))
            self.served.append(one.id)
        if isinstance(found, Choice) or found.never:
            self.line.remove(one)
        return found

    def could(self, one: Ticket, leases: list[Lease]) -> bool:
        return isinstance(turn(self.box, self.wishes[one.id], [], leases, RESERVE), Choice)


contended = st.one_of(
    st.sampled_from(["1", "2", "3", "4", "6", "all", "0,1", "device=2"]).map(wish),
    st.builds(lambda n, m: wish(str(n), memory=f"{m}g"), st.integers(1, 4), st.integers(1, 20)),
    st.builds(lambda n, m: wish(str(n), compute=f"{m}%"), st.integers(1, 4), st.integers(1, 99)),
    wishes(),
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(MACHINES),
    st.lists(st.tuples(contended, st.sampled_from([0, 0, 0, 5, -5])), min_size=2, max_size=6),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
def test_nobody_is_delayed_by_who_comes_after_and_nobody_starves(
    box: Machine, wanted: list[tuple[Wish, int]], taken: int, random: Random
) -> None:
    world = Simulation(box)
    world.leases = [box.lease(str(gpu.index), str(gpu.index)) for gpu in box.gpus[:taken]]
    for each, priority in wanted:
        world.arrive(each, priority)
        for one in random.sample(world.line, len(world.line)):
            before = ahead(world.line, one.priority, one.arrival)
            had = list(world.leases)
            if isinstance(world.try_it(one), Choice):
                # Whatever ends next, those ahead can have all that they could have without it.
                for left in [had, random.sample(had, len(had) // 2), []]:
                    for other in before:
                        assert not world.could(other, left) or world.could(
                            other, [*left, world.leases[-1]]
                        )
            holds(box, world.leases)
        if world.leases and random.random() < 0.5:
            world.leases.remove(random.choice(world.leases))
    while world.line:
        # Everybody ends at some time; then the first in line at least gets something.
        world.leases.clear()
        first = world.line[0]
        for one in random.sample(world.line, len(world.line)):
            world.try_it(one)
        assert first not in world.line
        holds(box, world.leases)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(MACHINES),
    contended,
    st.lists(st.sampled_from([0, 0, 3]), min_size=2, max_size=6),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
def test_the_order_is_kept_among_those_who_want_the_same(
    box: Machine, wanted: Wish, priorities: list[int], taken: int, random: Random
) -> None:
    world = Simulation(box)
    world.leases = [box.lease(str(gpu.index), str(gpu.index)) for gpu in box.gpus[:taken]]
    for priority in priorities:
        world.arrive(wanted, priority)
    while world.line:
        one = random.choice(world.line)
        before = ahead(world.line, one.priority, one.arrival)
        found = world.try_it(one)
        if isinstance(found, Choice):
            # It did not have to wait for those ahead only since there is enough for all of them.
            for other in before:
                assert isinstance(world.try_it(other), Choice)
        elif found.never:
            return
        elif world.leases:
            world.leases.pop(0)


LIFE = 3  # the longest that a container lives, in steps of the simulation


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(MACHINES),
    contended,
    st.lists(contended, max_size=3),
    st.lists(st.tuples(contended, st.sampled_from([0, 0, -5]), st.booleans()), min_size=1),
    st.randoms(use_true_random=False),
)
def test_whoever_goes_on_coming_does_not_keep_one_from_its_turn(
    box: Machine,
    wanted: Wish,
    before: list[Wish],
    others: list[tuple[Wish, int, bool]],
    random: Random,
) -> None:
    """New ones come at each step, in line or as a create that is tried once: it has a bound."""
    world = Simulation(box)
    world.leases = [box.lease(str(gpu.index), str(gpu.index)) for gpu in box.gpus]
    ends: dict[str, int] = {}
    for each in before:
        world.arrive(each, 0)
    mine = world.arrive(wanted, 0)
    if not world.could(mine, []):
        return
    for step in range((len(before) + 1) * (LIFE + 1)):
        world.leases = [lease for lease in world.leases if ends.get(lease.id, LIFE) > step]
        for each, priority, waits in random.choices(others, k=2):
            made = world.arrive(each, priority)
            if not waits:
                world.try_it(made)
                world.line = [one for one in world.line if one is not made]
        for one in random.sample(world.line, len(world.line)):
            world.try_it(one)
        for lease in world.leases:
            ends.setdefault(lease.id, step + random.randint(1, LIFE))
    assert mine.id in world.served


def test_a_lower_priority_has_its_turn_when_no_higher_one_comes() -> None:
    """And not before: that is what priorities are."""
    world = Simulation(CONSUMER)
    low = world.arrive(wish("8"), 0)
    for _ in range(5):
        high = world.arrive(wish("1"), 5)
        world.leases.clear()
        for one in (low, high):
            world.try_it(one)
        assert low in world.line and high not in world.line
        assert isinstance(world.try_it(low), Refusal)
    world.leases.clear()
    assert isinstance(world.try_it(low), Choice)
