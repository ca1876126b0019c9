"""What each way of asking becomes, which devices fit, and who is in whose way."""

from __future__ import annotations

import pytest
from gpushim.allocate.choose import Choice
from gpushim.allocate.filter import KEPT_OUT, RealUse, compares
from gpushim.allocate.grant import Unavailable
from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, SHARED, Lease
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.wish import Wish

from tests.unit.allocate.machines import GIB, Machine, machine, wish

# The design's table, row by row: what was said, how it is booked, memory, compute.
BECOMES = [
    (wish("1"), EXCLUSIVE, 0, 0),
    (wish("2"), EXCLUSIVE, 0, 0),
    (wish("1", counts="spread"), SHARED, 0, 0),
    (wish("1", model="*A100*"), EXCLUSIVE, 0, 0),
    (wish("1", memory="8g"), SHARED, 8 * GIB, 0),
    (wish("1", compute="25%"), SHARED, 0, 25),
    (wish("1", mode="shared"), SHARED, 0, 0),
    (wish("1", memory="8g", compute="25%", counts="spread"), SHARED, 8 * GIB, 25),
    (wish("1", memory="8g", mode="exclusive"), EXCLUSIVE, 8 * GIB, 0),
    (wish("1", mode="exclusive", counts="spread"), EXCLUSIVE, 0, 0),
    (wish("device=0"), OPEN, 0, 0),
    (wish("device=0", counts="spread"), OPEN, 0, 0),
    (wish("0,1"), OPEN, 0, 0),
    (wish("device=0", memory="8g"), SHARED, 8 * GIB, 0),
    (wish("device=0", mode="exclusive"), EXCLUSIVE, 0, 0),
    (wish("device=0", named_open=False), EXCLUSIVE, 0, 0),
    (wish("all"), ALL, 0, 0),
    (wish("all", named_open=False), ALL, 0, 0),
    (wish("all", mode="exclusive"), EXCLUSIVE, 0, 0),
    (wish("all", memory="8g"), SHARED, 8 * GIB, 0),
]


@pytest.mark.parametrize(("wanted", "mode", "memory", "compute"), BECOMES)
def test_what_a_way_of_asking_becomes(wanted: Wish, mode: str, memory: int, compute: int) -> None:
    found = machine("a100_pcie4").choose(wanted)
    assert isinstance(found, Choice)
    assert found.bookings
    for gpu, mig, booking in found.bookings:
        assert mig is None
        assert (booking.uuid, booking.mode) == (gpu.uuid, mode)
        assert (booking.memory, booking.compute) == (memory, compute)


@pytest.mark.parametrize(
    ("wanted", "placement"),
    [
        (wish("2"), "link"),
        (wish("1", memory="8g"), "pack"),
        (wish("1", counts="spread"), "spread"),
        (wish("1", counts="spread", memory="8g"), "pack"),
        (wish("1", counts="spread", mode="exclusive"), "link"),
        (wish("1", counts="spread", placement="pack"), "pack"),
        (wish("2", placement="spread"), "spread"),
    ],
)
def test_placement_where_none_is_said(wanted: Wish, placement: str) -> None:
    assert wanted.placement == placement


# What one container has, what another asks for, and what it gets on four GPUs.
BESIDE = [
    (EXCLUSIVE, "0", wish("1"), "1"),
    (SHARED, "0", wish("1"), "1"),
    (OPEN, "0", wish("1"), "1"),
    (ALL, "0,1,2,3", wish("1"), "0"),
    (ALL, "0,1,2,3", wish("4"), "0,1,2,3"),
    (EXCLUSIVE, "0", wish("1", memory="8g"), "1"),
    (SHARED, "1", wish("1", memory="8g"), "1"),
    (OPEN, "1", wish("1", memory="8g"), "1"),
    (EXCLUSIVE, "0", wish("device=0"), "-"),
    (EXCLUSIVE, "0", wish("1,2"), "1,2"),
    (EXCLUSIVE, "0", wish("0,1"), "-"),
    (SHARED, "0", wish("device=0"), "0"),
    (OPEN, "0", wish("device=0"), "0"),
    (OPEN, "0", wish("device=0", named_open=False), "-"),
    (SHARED, "0", wish("device=0", named_open=False), "-"),
    (ALL, "0", wish("device=0", named_open=False), "0"),
    (EXCLUSIVE, "0,2", wish("all"), "1,3"),
    (OPEN, "0,2", wish("all"), "0,1,2,3"),
    (SHARED, "0,2", wish("all"), "0,1,2,3"),
    (EXCLUSIVE, "0,1,2,3", wish("all"), "-"),
    (EXCLUSIVE, "0", wish("all", mode="exclusive"), "-"),
    (EXCLUSIVE, "0", wish("all", memory="8g"), "1,2,3"),
    (EXCLUSIVE, "0,1,2,3", wish("1", counts="spread"), "-"),
    (SHARED, "0,1", wish("1", counts="spread"), "2"),
]


@pytest.mark.parametrize(("mode", "names", "wanted", "given"), BESIDE)
def test_who_is_in_whose_way(mode: str, names: str, wanted: Wish, given: str) -> None:
    box = machine("a100_pcie4")
    assert box.names(wanted, [box.lease("other", names, mode)]) == given


def test_what_is_open_may_be_given_over_an_exclusive_lease_where_that_is_configured() -> None:
    box = machine("a100_pcie4")
    held = [box.lease("other", "0")]
    for wanted, given in ((wish("device=0"), "0"), (wish("all"), "0,1,2,3")):
        wanted.over = True
        assert box.names(wanted, held) == given
        assert box.names(wanted, held, kept_out={box.uuid("0"): "drained"}) != given


FITS = [
    (wish("1", model="*A6000"), "1"),
    (wish("1", model="tesla t4"), "2"),
    (wish("1", model="geforce rtx 3090"), "0"),
    (wish("2", model="*GeForce*"), "0,3"),
    (wish("3", model="*GeForce*"), "never"),
    (wish("1", model="A6000"), "never"),
    (wish("1", compute_capability="7.5"), "2"),
    (wish("1", compute_capability="<7.0"), "3"),
    (wish("3", compute_capability=">=7.5"), "0,1,2"),
    (wish("1", compute_capability="!=8.6"), "2"),
    (wish("1", compute_capability=">=9.0"), "never"),
    # Of those that nobody uses, the one that is just large enough.
    (wish("1", memory="1g"), "3"),
    (wish("1", memory="12g"), "2"),
    (wish("1", memory="20g"), "0"),
    (wish("1", memory="40g"), "1"),
    (wish("1", memory="60g"), "never"),
    (wish("1", memory="20g", mode="exclusive"), "0"),
    (wish("2", memory="20g", mode="exclusive"), "0,1"),
    (wish("4", memory="50%"), "0,1,2,3"),
    (wish("1", mig="1g.10gb"), "never"),
    (wish("device=2", model="*A6000*"), "never"),
    (wish("device=1", model="*A6000*"), "1"),
    (wish("all", compute_capability=">=8.0"), "0,1"),
    (wish("all", model="*H100*"), "never"),
    (wish("all", mode="exclusive", model="*GeForce*"), "0,3"),
    (wish("5"), "never"),
    (wish("device=none"), ""),
]


@pytest.mark.parametrize(("wanted", "given"), FITS)
def test_which_boards_of_a_mixed_box_fit(wanted: Wish, given: str) -> None:
    assert machine("mixed_lab").names(wanted) == given


def test_what_nvml_did_not_tell_fits_only_who_does_not_ask() -> None:
    box = machine("a100_pcie4")
    for gpu in box.gpus[:3]:
        gpu.memory = gpu.compute_capability = gpu.mig_enabled = None
    assert box.names(wish("1")) == "0"
    assert box.names(wish("1", memory="8g")) == "3"
    assert box.names(wish("1", memory="50%")) == "3"
    assert box.names(wish("1", compute_capability=">=1.0")) == "3"
    assert box.names(wish("1", mode="shared", placement="pack")) == "3"
    assert box.names(wish("4", mode="shared")) == "0,1,2,3"


@pytest.mark.parametrize(
    ("have", "operator", "wanted", "is_so"),
    [
        ("8.6", ">=", "8.0", True), ("8.0", ">=", "8.0", True), ("7.5", ">=", "8.0", False),
        ("10.0", ">", "9.0", True), ("10.0", "<", "9.0", False), ("8.0", "<=", "8.0", True),
        ("8.10", ">", "8.9", True), ("8.0", "=", "8.0", True), ("8.6", "=", "8.0", False),
        ("8.6", "!=", "8.0", True), ("8", "=", "8.0", False), ("", ">=", "1.0", False),
    ],
)  # fmt: skip
def test_compute_capabilities(have: str, operator: str, wanted: str, is_so: bool) -> None:
    assert compares(have, operator, wanted) is is_so


def test_what_is_broken_or_kept_out_is_never_chosen() -> None:
    box = machine("consumer8")
    box.gpus[0].health = "lost from the bus"
    box.gpus[1].uuid = ""
    assert box.names(wish("1")) == "2"
    assert box.names(wish("7")) == "never"
    assert box.names(wish("all")) == "2,3,4,5,6,7"
    cut = machine("mig_host")
    assert cut.names(wish("1", mig="1g.10gb"), kept_out={cut.uuid("0"): "drained"}) == "1:0"
    assert cut.names(wish("1", mig="1g.10gb"), kept_out={cut.uuid("0:2"): "drained"}) == "0:3"
    drained = {box.uuid("2"): "drained", box.uuid("3"): "quarantined"}
    assert box.names(wish("4"), kept_out=drained) == "4,5,6,7"
    assert box.names(wish("1", memory="1g"), kept_out=drained) == "4"
    assert box.names(wish("device=2"), kept_out=drained) == "-"
    assert box.names(wish("all"), kept_out=drained) == "4,5,6,7"
    # A drain ends some day; what the configuration says holds.
    assert box.names(wish("6"), kept_out=drained) == "-"
    assert box.names(wish("6"), kept_out=dict.fromkeys(drained, KEPT_OUT)) == "never"
    with pytest.raises(Unavailable, match="lost from the bus"):
        box.names(wish("device=0"))
    with pytest.raises(Unavailable, match="no GPU '9'"):
        box.names(wish("device=9"))


def test_gpus_that_strangers_use_are_nobodys() -> None:
    box = machine("a100_pcie4")
    real = {
        box.uuid("0"): RealUse(30 * GIB, 97, [(4711, "python3", 30 * GIB)]),
        box.uuid("1"): RealUse(busy=3),
    }
    assert box.names(wish("1"), real=real) == "1"
    assert box.names(wish("4"), real=real) == "-"
    assert box.names(wish("device=0"), real=real) == "0"
    assert box.names(wish("all"), real=real) == "0,1,2,3"
    # A share of what is left, on the GPU that nobody can have for itself anyway.
    assert box.names(wish("1", memory="50g"), real=real) == "0"
    assert box.names(wish("1", memory="51g"), real=real) == "1"
    # A process whose memory nobody tells is one all the same.
    assert box.names(wish("1"), real={box.uuid("0"): RealUse(0, None, [(1, "", 0)])}) == "1"


def test_shares_fill_a_gpu_up_to_what_the_driver_leaves() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease("a", "1", SHARED, 40 * GIB), box.lease("b", "1", SHARED, 20 * GIB)]
    assert box.names(wish("1", memory="20g"), leases) == "1"
    assert box.names(wish("1", memory="20g"), leases, reserve=GIB) == "0"
    assert box.names(wish("4", memory="20g"), leases, reserve=GIB) == "-"
    assert box.names(wish("1", memory="80g"), leases) == "0"
    assert box.names(wish("1", memory="80g"), leases, reserve=1) == "never"
    # Halves are of what can be booked, so that two of them share a GPU.
    half = box.choose(wish("1", memory="50%"), reserve=GIB)
    assert isinstance(half, Choice)
    assert half.bookings[0][2].memory == 79 * GIB // 2
    first = box.lease("half", "2", SHARED, 79 * GIB // 2)
    assert box.names(wish("1", memory="50%"), [first], reserve=GIB) == "2"
    assert box.names(wish("1", memory="51%"), [first], reserve=GIB) == "0"


def test_each_gpu_keeps_its_own_share() -> None:
    """In a mixed machine a small GPU does not lose what the driver keeps of the largest."""
    box = machine("a100_pcie4")
    for gpu, kept in zip(box.gpus, (2 * GIB, None, 0, GIB), strict=True):
        gpu.reserved = kept
    sizes = {"80g": "2", "79g": "2,3", "78g": "0,2,3", "77g": "0,1,2,3"}
    for memory, names in sizes.items():
        count = str(len(names.split(",")))
        assert box.names(wish(count, memory=memory), reserve=3 * GIB) == names


def test_shares_of_compute_end_at_a_hundred_percent() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease("a", "0", SHARED, compute=60), box.lease("b", "1", SHARED, compute=30)]
    assert box.names(wish("1", compute="40%"), leases) == "0"
    assert box.names(wish("1", compute="41%"), leases) == "1"
    assert box.names(wish("1", compute="71%"), leases) == "2"
    assert box.names(wish("3", compute="70%"), leases) == "1,2,3"
    assert box.names(wish("1", mode="shared", placement="pack"), leases) == "0"


def test_who_does_not_say_how_much_he_needs_is_put_where_most_is_left() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease("a", "0", SHARED, compute=60), box.lease("b", "1", SHARED, compute=30)]
    assert box.names(wish("1", mode="shared"), leases) == "2"


def test_pack_fills_spread_levels() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease("a", "1", SHARED, 10 * GIB), box.lease("b", "3", SHARED, 40 * GIB)]
    assert box.names(wish("1", memory="8g"), leases) == "3"
    assert box.names(wish("1", memory="60g"), leases) == "1"
    assert box.names(wish("2", memory="8g"), leases) == "1,3"
    assert box.names(wish("3", memory="8g"), leases) == "0,1,3"
    assert box.names(wish("1", memory="8g", placement="spread"), leases) == "0"
    assert box.names(wish("3", memory="8g", placement="spread"), leases) == "0,1,2"
    assert box.names(wish("2", memory="8g", placement="link"), leases) == "0,1"
    many = [box.lease(str(place), "0", SHARED, GIB) for place in range(3)]
    many += [box.lease(name, name, SHARED, 40 * GIB) for name in "123"]
    assert box.names(wish("1", memory="8g", placement="spread"), many) == "0"
    assert box.names(wish("1", mode="shared", placement="spread"), many) == "1"
    # With counts = "spread": who shares counts, since nobody said how much.
    some = [box.lease(str(place), name, SHARED) for place, name in enumerate("0012")]
    assert box.names(wish("1", counts="spread"), some) == "3"
    assert box.names(wish("1", counts="spread"), [*some, box.lease("x", "3", OPEN)]) == "1"
    busy = {box.uuid("1"): RealUse(busy=50), box.uuid("2"): RealUse(busy=10)}
    more = [*some, box.lease("x", "3", SHARED)]
    assert box.names(wish("1", counts="spread"), more, real=busy) == "3"
    assert (
        box.names(wish("1", counts="spread"), [*more, box.lease("y", "3", SHARED)], real=busy)
        == "2"
    )


MIG = [
    ("", "1", "1g.10gb", "0:2"),
    ("0:2", "1", "1g.10gb", "0:3"),
    # The GPU of which most is taken comes first, whatever its index.
    ("1:0", "1", "1g.10gb", "1:1"),
    ("1:0,0:0", "1", "1g.10gb", "0:2"),
    ("0:0,1:0,1:1", "1", "1g.10gb", "1:2"),
    ("", "3", "1g.10gb", "0:2,0:3,1:0"),
    ("", "9", "1g.10gb", "0:2,0:3,1:0,1:1,1:2,1:3,1:4,1:5,1:6"),
    # The next larger one where there is none of that size any more.
    ("", "10", "1g.10gb", "0:1,0:2,0:3,1:0,1:1,1:2,1:3,1:4,1:5,1:6"),
    ("", "1", "2g.20gb", "0:1"),
    ("0:1", "1", "2g.20gb", "0:0"),
    ("0:0,0:1", "1", "2g.20gb", "-"),
    ("", "1", "4g.40gb", "never"),
    ("", "1", "1g.10gb+me", "never"),
    ("", "12", "1g.10gb", "never"),
]


@pytest.mark.parametrize(("held", "count", "profile", "given"), MIG)
def test_mig_devices(held: str, count: str, profile: str, given: str) -> None:
    box = machine("mig_host")
    assert box.names(wish(count, mig=profile), [box.lease("other", held)]) == given


def test_mig_devices_and_the_gpus_that_they_are_a_part_of() -> None:
    box = machine("mig_host")
    assert box.names(wish("2")) == "never"
    assert box.names(wish("1")) == "2"
    assert box.names(wish("all")) == ",".join(
        [*(f"0:{part}" for part in range(4)), *(f"1:{part}" for part in range(7)), "2"]
    )
    whole = [box.lease("whole", "0")]
    assert box.names(wish("1", mig="1g.10gb"), whole) == "1:0"
    assert box.names(wish("0:1"), whole) == "-"
    part = [box.lease("part", "0:1")]
    assert box.names(wish("device=0", mode="exclusive"), part) == "-"
    assert box.names(wish("0:2", mode="exclusive"), part) == "0:2"
    assert box.names(wish("0:1"), part) == "-"
    # A GPU in MIG mode by name is its node alone.
    assert box.names(wish("device=0"), part) == "0"
    node = [box.lease("node", "0", OPEN)]
    assert box.names(wish("1", mig="1g.10gb"), node) == "0:2"
    assert box.names(wish("device=0", memory="1g"), []) == "never"
    assert box.names(wish("1", mig="1g.10gb", placement="spread"), part) == "1:0"
    assert box.names(wish("2", mig="1g.10gb", placement="spread")) == "0:2,1:0"
    assert box.names(wish("4", mig="1g.10gb"), [box.lease("a", "1:0,1:1")]) == "1:2,1:3,1:4,1:5"
    assert box.names(wish("2", mig="1g.10gb"), [box.lease("a", "0:0,1:6")]) == "0:2,0:3"


def test_shares_of_mig_devices() -> None:
    box = machine("mig_host")
    leases = [box.lease("a", "0:3", SHARED, 5 * GIB)]
    assert box.names(wish("1", mig="1g.10gb", memory="4g"), leases) == "0:3"
    assert box.names(wish("1", mig="1g.10gb", memory="5g"), leases) == "0:2"
    assert box.names(wish("1", mig="1g.10gb", memory="15g"), leases) == "0:1"
    assert box.names(wish("1", mig="1g.10gb", memory="50g"), leases) == "never"
    assert box.names(wish("1", mig="1g.10gb", mode="shared", placement="spread"), leases) == "0:2"
    assert box.names(wish("1", mig="1g.10gb"), leases) == "0:2"
    # What the driver keeps of a GPU is no part of what a MIG device has.
    assert box.names(wish("1", mig="1g.10gb", memory="9g"), reserve=GIB) == "0:2"


def test_mig_devices_without_nodes_are_never_chosen() -> None:
    box = machine("mig_host")
    for part in (2, 3):
        box.gpus[0].mig_devices[part].gpu_instance_minor = -1
    assert box.names(wish("1", mig="1g.10gb")) == "1:0"
    assert "no device nodes" in " ".join(choice_of(box, wish("all")).notes)


def choice_of(box: Machine, wanted: Wish, leases: list[Lease] | None = None) -> Choice:
    found = box.choose(wanted, leases or [])
    assert isinstance(found, Choice)
    return found


def test_a_restart_gets_what_it_had() -> None:
    box = machine("consumer8")
    had = [box.uuid("5"), box.uuid("2")]
    assert box.names(wish("2"), preferred=had) == "2,5"
    assert box.names(wish("1"), preferred=had) == "2"
    assert box.names(wish("2"), [box.lease("other", "5")], preferred=had) == "4,6"
    assert box.names(wish("3"), preferred=had) == "0,1,2"
    assert box.names(wish("1", memory="1g"), preferred=had) == "2"
    assert box.names(wish("2"), preferred=["GPU-gone", had[0]]) == "0,1"


def test_what_all_leaves_out_is_said() -> None:
    box = machine("a100_pcie4")
    found = box.choose(wish("all"), [box.lease("web", "1")], kept_out={box.uuid("2"): "drained"})
    assert isinstance(found, Choice)
    assert found.notes == [
        f"GPU 1 ({box.uuid('1')}) is held by web (exclusive), so 'all' leaves it out.",
        f"GPU 2 ({box.uuid('2')}) is drained, so 'all' leaves it out.",
    ]
    assert found.grant(["compute"]).uuids() == [box.uuid("0"), box.uuid("3")]
    assert found.grant(["compute"]).warnings == found.notes


def test_a_choice_is_a_grant_of_the_same_devices() -> None:
    box = machine("mig_host")
    grant = choice_of(box, wish("2, 0:1")).grant(["utility"])
    assert grant.uuids() == [box.uuid("0:1"), box.uuid("2")]
    assert [gpu.index for gpu in grant.gpus] == [2]


class Alive:
    """Tells who lives, and keeps who was asked."""

    def __init__(self, *dead: str) -> None:
        self.dead = dead
        self.asked: list[str] = []

    def __call__(self, lease: Lease) -> bool:
        assert lease.name not in self.asked, "each is asked once"
        self.asked.append(lease.name)
        return lease.name not in self.dead


def test_only_leases_in_the_way_are_asked_whether_they_live() -> None:
    box = machine("consumer8")
    leases = [box.lease(f"e{index}", str(index)) for index in range(4)]
    leases += [box.lease(f"all{index}", "0,1,2,3,4,5,6,7", ALL) for index in range(3)]
    alive = Alive("e1")
    assert box.names(wish("1"), leases, alive=alive) == "1"
    assert alive.asked == ["e0", "e1", "e2", "e3"]
    alive = Alive("e1")
    assert box.names(wish("device=5"), leases, alive=alive) == "5"
    assert alive.asked == []
    assert box.names(wish("device=1"), leases, alive=alive) == "1"
    assert alive.asked == ["e1"]
    alive = Alive()
    shares = [box.lease(f"s{index}", "3", SHARED, GIB) for index in range(20)]
    assert box.names(wish("1", memory="1g"), shares, alive=alive) == "3"
    assert alive.asked == ["s0"]
    # One that lives on a GPU is enough for who wants it alone, and what is dead before it.
    alive = Alive("s0", "s1")
    assert box.names(wish("1"), shares, alive=alive) == "0"
    assert alive.asked == ["s0", "s1", "s2"]


def test_larger_mig_devices_are_not_asked_about_while_there_are_smaller_ones() -> None:
    box = machine("mig_host")
    leases = [box.lease("large", "0:0"), box.lease("small", "0:2"), box.lease("next", "0:3")]
    alive = Alive("small")
    assert box.names(wish("1", mig="1g.10gb"), leases, alive=alive) == "0:2"
    assert alive.asked == ["small", "next"]


def test_where_shares_are_spread_all_are_asked() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease(str(place), name, SHARED) for place, name in enumerate("1122330")]
    assert box.names(wish("1", counts="spread"), leases) == "0"
    assert box.names(wish("1", counts="spread"), leases, alive=Alive("2", "3")) == "2"


def test_dead_shares_make_room() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease("a", "0", SHARED, 40 * GIB), box.lease("b", "0", SHARED, 40 * GIB)]
    leases.append(box.lease("c", "1", SHARED, 79 * GIB))
    # No other GPU is begun before all that share the full ones have been asked.
    assert box.names(wish("1", memory="8g"), leases, alive=Alive("b")) == "0"
    assert box.names(wish("1", memory="8g"), leases, alive=Alive()) == "2"
    assert box.names(wish("1", memory="8g"), leases, alive=Alive("a", "b", "c")) == "0"
    # A GPU that only the dead share is none that is in use.
    some = [box.lease("a", "0", SHARED, 4 * GIB), box.lease("b", "1", SHARED, GIB)]
    assert box.names(wish("1", memory="8g"), some, alive=Alive("a")) == "1"


def test_a_refusal_names_the_leases_that_live_in_the_way() -> None:
    box = machine("a100_pcie4")
    leases = [box.lease(name, str(place)) for place, name in enumerate("abc")]
    leases.append(box.lease("d", "3", ALL))
    found = box.choose(wish("3"), leases, alive=Alive("b"))
    assert isinstance(found, Refusal)
    assert [lease.name for lease in found.leases] == ["a", "c"]
    assert [slot.gpu.index for slot in found.free] == [1, 3]
    assert not found.never
    shares = [box.lease("a", "0", SHARED, GIB), *[box.lease(x, y) for x, y in ("b1", "c2", "d3")]]
    found = box.choose(wish("2", memory="8g"), shares)
    assert isinstance(found, Refusal)
    assert [lease.name for lease in found.leases] == ["b", "c", "d"]
    found = box.choose(wish("2", model="*H100*"), leases)
    assert isinstance(found, Refusal)
    assert found.never
    assert found.leases == []


def test_a_machine_without_gpus() -> None:
    box = Machine([], [])
    assert box.names(wish("1")) == "never"
    assert box.names(wish("1", mig="1g.10gb")) == "never"
    with pytest.raises(Unavailable):
        box.names(wish("all"))
