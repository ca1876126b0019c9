"""What holds of every choice, whatever the machine, the leases and the wish."""

from __future__ import annotations

from collections import Counter
from random import Random

from gpushim.allocate.choose import Choice, choose
from gpushim.allocate.filter import RealUse
from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, SHARED, Booking, Lease
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.wish import Wish
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.allocate.machines import GIB, Machine, machine, wish

RESERVE = GIB // 2
MACHINES = [machine(name) for name in ("consumer8", "a100_pcie4", "mixed_lab", "mig_host")]

amounts = st.one_of(
    st.builds(lambda n: {"memory": f"{n}g"}, st.integers(1, 90)),
    st.builds(lambda n: {"memory": f"{n}%"}, st.integers(1, 100)),
    st.builds(lambda n: {"compute": f"{n}%"}, st.integers(1, 100)),
    st.builds(
        lambda n, m: {"memory": f"{n}g", "compute": f"{m}%"}, st.integers(1, 40), st.integers(1, 60)
    ),
    st.just({"mode": "shared"}),
    st.just({"mode": "exclusive"}),
    st.just({}),
)
extras = st.fixed_dictionaries(
    {},
    optional={
        "placement": st.sampled_from(["link", "pack", "spread"]),
        "model": st.sampled_from(["*A100*", "*RTX*", "*H100*"]),
        "compute_capability": st.sampled_from([">=8.0", "<8.6"]),
        "mig": st.sampled_from(["1g.10gb", "2g.20gb"]),
    },
)


@st.composite
def wishes(draw: st.DrawFn, counts_only: bool = False) -> Wish:
    how = (
        ["1", "1", "2", "3", "5"] if counts_only else ["1", "2", "3", "0", "0,1", "device=2", "all"]
    )
    said = {**draw(amounts), **draw(extras)}
    counts = draw(st.sampled_from(["exclusive", "spread"]))
    return wish(draw(st.sampled_from(how)), counts, draw(st.booleans()), **said)


def booked(leases: list[Lease], uuid: str) -> list[Booking]:
    return [each for lease in leases for each in lease.bookings if each.uuid == uuid]


def holds(box: Machine, leases: list[Lease]) -> None:
    """No device is over its capacity, and none that is one container's alone has another on it."""
    for gpu in box.gpus:
        devices: list[tuple[str, int]] = [(gpu.uuid, (gpu.memory or 0) - RESERVE)]
        devices += [(mig.uuid, mig.memory or 0) for mig in gpu.mig_devices]
        on_whole = booked(leases, gpu.uuid)
        for uuid, capacity in devices:
            here = booked(leases, uuid)
            shares = [each for each in here if each.mode == SHARED]
            assert sum(each.memory for each in shares) <= capacity
            assert sum(each.compute for each in shares) <= 100
            modes = Counter(each.mode for each in here if each.mode != ALL)
            if modes[EXCLUSIVE]:
                assert modes == Counter({EXCLUSIVE: 1})
            if uuid != gpu.uuid and any(each.mode == EXCLUSIVE for each in on_whole):
                assert not modes


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(MACHINES), st.lists(wishes(), max_size=12), st.data())
def test_whoever_comes_and_goes_nothing_is_given_twice(
    box: Machine, wanted: list[Wish], data: st.DataObject
) -> None:
    """Dead leases lie about, as they do, and are dropped when the choice asks for them."""
    leases: list[Lease] = []
    dead: set[str] = set()
    for number, each in enumerate(wanted):
        found = choose(
            each, box.gpus, leases, links=box.links, reserve=RESERVE,
            alive=lambda lease: lease.id not in dead,
        )  # fmt: skip
        if isinstance(found, Choice):
            bookings = [booking for _, _, booking in found.bookings]
            assert len({booking.uuid for booking in bookings}) == len(bookings)
            if each.count is not None:
                assert len(bookings) == each.count
            leases.append(Lease(str(number), "/run/runc", (1, 1), bookings))
        else:
            assert found.sentence(10.0).endswith(".")
            assert found.hint().endswith(".")
            assert all(lease.id not in dead for lease in found.leases)
            assert found.never or found.leases
        holds(box, [lease for lease in leases if lease.id not in dead])
        ids = [lease.id for lease in leases]
        dead.update(data.draw(st.sets(st.sampled_from(ids), max_size=1) if ids else st.just(set())))


@st.composite
def states(draw: st.DrawFn) -> tuple[Machine, list[Lease], dict[str, RealUse], dict[str, str]]:
    """Any leases at all, also such as gpushim would not have made."""
    box = draw(st.sampled_from(MACHINES))
    devices = [gpu.uuid for gpu in box.gpus]
    devices += [mig.uuid for gpu in box.gpus for mig in gpu.mig_devices]
    booking = st.builds(
        Booking,
        st.sampled_from([*devices, "GPU-gone"]),
        st.sampled_from([EXCLUSIVE, SHARED, SHARED, OPEN, ALL]),
        st.integers(0, 50 * GIB),
        st.integers(0, 60),
    )
    leases = [
        Lease(str(number), "/run/runc", (1, 1), draw(st.lists(booking, max_size=3)))
        for number in range(draw(st.integers(0, 8)))
    ]
    uses = st.builds(RealUse, st.integers(0, 30 * GIB), st.one_of(st.none(), st.integers(0, 100)))
    real = draw(st.dictionaries(st.sampled_from(devices), uses, max_size=3))
    kept = draw(st.dictionaries(st.sampled_from(devices), st.just("drained"), max_size=2))
    return box, leases, real, kept


def answer(
    found: Choice | Refusal,
) -> tuple[object, ...]:
    if isinstance(found, Refusal):
        return "refused", found.never, found.sentence(9.0), found.hint()
    return ("given", *(sorted(str(booking.to_json()) for _, _, booking in found.bookings)))


@settings(max_examples=80, deadline=None)
@given(states(), wishes(), st.randoms(use_true_random=False))
def test_the_same_state_has_the_same_answer_in_whatever_order_it_is_read(
    state: tuple[Machine, list[Lease], dict[str, RealUse], dict[str, str]],
    wanted: Wish,
    random: Random,
) -> None:
    box, leases, real, kept = state
    more = {"real": real, "kept_out": kept, "links": box.links, "reserve": RESERVE}
    one = choose(wanted, box.gpus, leases, **more)  # type: ignore[arg-type]
    gpus = random.sample(box.gpus, len(box.gpus))
    other = choose(wanted, gpus, list(leases), **more)  # type: ignore[arg-type]
    assert answer(one) == answer(other)
    random.shuffle(leases)
    shuffled = choose(wanted, gpus, leases, **more)  # type: ignore[arg-type]
    if isinstance(one, Choice):
        assert answer(one) == answer(shuffled)
    else:
        assert isinstance(shuffled, Refusal)
        assert shuffled.never == one.never


@settings(max_examples=80, deadline=None)
@given(states(), wishes())
def test_exclusive_is_never_beside_anybody_but_all(
    state: tuple[Machine, list[Lease], dict[str, RealUse], dict[str, str]], wanted: Wish
) -> None:
    box, leases, real, kept = state
    found = choose(
        wanted, box.gpus, leases, real=real, kept_out=kept, links=box.links, reserve=RESERVE
    )
    if isinstance(found, Refusal):
        return
    for gpu, mig, booking in found.bookings:
        here = [each.mode for each in booked(leases, booking.uuid)]
        assert EXCLUSIVE not in here
        assert booking.uuid not in kept
        assert gpu.uuid not in kept
        if mig is not None:
            assert EXCLUSIVE not in [each.mode for each in booked(leases, gpu.uuid)]
        if booking.mode == EXCLUSIVE:
            assert set(here) <= {ALL}
            assert booking.uuid not in real or not real[booking.uuid].memory


@settings(max_examples=60, deadline=None)
@given(states(), wishes())
def test_all_blocks_nobody(
    state: tuple[Machine, list[Lease], dict[str, RealUse], dict[str, str]], wanted: Wish
) -> None:
    box, leases, real, kept = state
    more = {"real": real, "kept_out": kept, "links": box.links, "reserve": RESERVE}
    alone = choose(wanted, box.gpus, leases, **more)  # type: ignore[arg-type]
    every = [Booking(gpu.uuid, ALL) for gpu in box.gpus]
    every += [Booking(mig.uuid, ALL) for gpu in box.gpus for mig in gpu.mig_devices]
    beside = [Lease("all", "/run/runc", (1, 1), every), *leases]
    assert answer(choose(wanted, box.gpus, beside, **more)) == answer(alone)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(states(), wishes(counts_only=True), st.data())
def test_one_gpu_more_never_makes_a_wish_fail(
    state: tuple[Machine, list[Lease], dict[str, RealUse], dict[str, str]],
    wanted: Wish,
    data: st.DataObject,
) -> None:
    box, leases, real, kept = state
    more = {"real": real, "kept_out": kept, "links": box.links, "reserve": RESERVE}
    gone = data.draw(st.sampled_from(box.gpus))
    fewer = [gpu for gpu in box.gpus if gpu is not gone]
    before = choose(wanted, fewer, leases, **more)  # type: ignore[arg-type]
    after = choose(wanted, box.gpus, leases, **more)  # type: ignore[arg-type]
    if isinstance(before, Choice):
        assert isinstance(after, Choice)
    elif not before.never:
        assert isinstance(after, Choice) or not after.never


@settings(max_examples=80, deadline=None)
@given(states(), wishes(), st.sets(st.integers(0, 7)))
def test_dead_leases_make_no_difference(
    state: tuple[Machine, list[Lease], dict[str, RealUse], dict[str, str]],
    wanted: Wish,
    dead: set[int],
) -> None:
    """Neither to whether there is anything, nor to what a container gets for itself.

    Among shares a dead lease may make a GPU seem fuller than it is, but none that is in use.
    """
    box, leases, real, kept = state
    more = {"real": real, "kept_out": kept, "links": box.links, "reserve": RESERVE}
    alive = [lease for lease in leases if int(lease.id) not in dead]
    alone = choose(wanted, box.gpus, alive, **more)  # type: ignore[arg-type]
    among = choose(
        wanted,
        box.gpus,
        leases,
        alive=lambda lease: lease in alive,
        **more,  # type: ignore[arg-type]
    )
    assert isinstance(alone, Refusal) == isinstance(among, Refusal)
    if isinstance(alone, Refusal) or isinstance(among, Refusal):
        assert answer(alone) == answer(among)
        return
    if wanted.mode == EXCLUSIVE and not wanted.mig:
        assert answer(alone) == answer(among)
    if wanted.mode == SHARED and wanted.placement == "pack" and not wanted.mig:
        assert fresh(alone, alive, real) == fresh(among, alive, real)


def fresh(found: Choice, leases: list[Lease], real: dict[str, RealUse]) -> int:
    """How many of the devices nobody uses."""
    return sum(
        all(each.mode == ALL for each in booked(leases, booking.uuid))
        and not (booking.uuid in real and real[booking.uuid].memory)
        for _, _, booking in found.bookings
    )
