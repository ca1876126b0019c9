"""Which GPUs belong together: tables for known machines, and a search held to brute force."""

from __future__ import annotations

import itertools

import pytest
from gpushim.allocate.placement import linked, spaced
from gpushim.host.model import Gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.allocate.machines import machine, wish

# Machine; what others hold; how many are wanted; which are given.
LINKED = [
    # An NVSwitch fabric links all alike, so that NUMA nodes decide: pairs on four of them.
    ("dgx_a100", "", 1, "0"),
    ("dgx_a100", "0", 1, "1"),
    ("dgx_a100", "0", 2, "2,3"),
    ("dgx_a100", "0,2,4,6", 2, "1,3"),
    ("dgx_a100", "", 4, "0,1,2,3"),
    ("dgx_a100", "0,5", 4, "2,3,6,7"),
    ("dgx_a100", "0,5", 3, "1,2,3"),
    ("dgx_a100", "", 8, "0,1,2,3,4,5,6,7"),
    ("dgx_a100", "7", 8, "-"),
    ("dgx_a100", "", 9, "never"),
    # Two nodes of four.
    ("hgx_h100", "", 2, "0,1"),
    ("hgx_h100", "0,1", 4, "4,5,6,7"),
    ("hgx_h100", "0,1", 2, "2,3"),
    ("hgx_h100", "0,1", 1, "2"),
    ("hgx_h100", "4", 3, "5,6,7"),
    ("hgx_h100", "", 5, "0,1,2,3,4"),
    # Two NVLink pairs on two sockets: a pair is never broken up for one GPU if another is broken.
    ("a100_pcie4", "", 1, "0"),
    ("a100_pcie4", "0", 1, "1"),
    ("a100_pcie4", "3", 1, "2"),
    ("a100_pcie4", "0", 2, "2,3"),
    ("a100_pcie4", "", 2, "0,1"),
    ("a100_pcie4", "0,2", 2, "1,3"),
    ("a100_pcie4", "", 3, "0,1,2"),
    ("a100_pcie4", "0,1,2", 2, "-"),
    # No NVLink: host bridges on two sockets.
    ("consumer8", "0", 1, "1"),
    ("consumer8", "0", 2, "1,2"),
    ("consumer8", "0", 4, "4,5,6,7"),
    ("consumer8", "0,4,5", 2, "6,7"),
    ("consumer8", "0,1,4,5", 3, "2,3,6"),
    # Nothing tells the boards apart.
    ("mixed_lab", "", 1, "0"),
    ("mixed_lab", "0", 2, "1,2"),
    ("workstation", "", 1, "0"),
    ("workstation", "", 2, "never"),
    # Of three, two are cut up.
    ("mig_host", "", 1, "2"),
    ("mig_host", "", 2, "never"),
]


@pytest.mark.parametrize(("name", "held", "count", "given"), LINKED)
def test_link(name: str, held: str, count: int, given: str) -> None:
    box = machine(name)
    assert box.names(wish(str(count)), [box.lease("other", held)]) == given


SPACED = [
    # pack fills up the socket that is in use; spread goes where nobody is.
    ("consumer8", "", "1", "pack", "0"),
    ("consumer8", "5", "1", "pack", "4"),
    ("consumer8", "5", "2", "pack", "4,6"),
    ("consumer8", "5", "1", "spread", "0"),
    ("consumer8", "", "2", "spread", "0,4"),
    ("consumer8", "0", "2", "spread", "1,4"),
    ("a100_pcie4", "2", "1", "pack", "3"),
    ("a100_pcie4", "2", "1", "spread", "0"),
    ("a100_pcie4", "", "4", "spread", "0,1,2,3"),
    ("dgx_a100", "", "2", "pack", "0,1"),
]


@pytest.mark.parametrize(("name", "held", "count", "placement", "given"), SPACED)
def test_pack_and_spread_of_whole_gpus(
    name: str, held: str, count: str, placement: str, given: str
) -> None:
    box = machine(name)
    wanted = wish(count, placement=placement)
    assert box.names(wanted, [box.lease("other", held)]) == given


def test_without_a_matrix_numa_nodes_decide() -> None:
    box = machine("consumer8")
    box.links = []
    assert box.names(wish("2"), [box.lease("a", "0,1,2")]) == "4,5"
    assert box.names(wish("1"), [box.lease("a", "0,1,2")]) == "3"
    assert box.names(wish("2", placement="spread")) == "0,4"


def test_a_matrix_that_is_too_small_is_used_as_far_as_it_goes() -> None:
    gpus = [Gpu(index, f"GPU-{index}", index, "", "m") for index in range(4)]
    assert [gpu.index for gpu in linked(gpus, 2, [[0, 5], [5, 0]])] == [0, 2]


def test_numa_off_takes_the_first_of_a_fabric() -> None:
    box = machine("dgx_a100")
    held = [box.lease("a", "0")]
    assert box.names(wish("2"), held) == "2,3"
    assert box.names(wish("2", numa="off"), held) == "1,2"


@st.composite
def boxes(draw: st.DrawFn) -> tuple[list[Gpu], list[list[int]], int]:
    size = draw(st.integers(1, 9))
    values = draw(st.sampled_from([(10, 20), (10, 20, 50), (0, 10, 30, 50, 15004, 30012)]))
    links = [[0] * size for _ in range(size)]
    for one, other in itertools.combinations(range(size), 2):
        links[one][other] = links[other][one] = draw(st.sampled_from(values))
    gpus = [
        Gpu(index, f"GPU-{index}", index, "", "m", draw(st.integers(-1, 1)))
        for index in range(size)
    ]
    return gpus, links, draw(st.integers(1, size))


def best(gpus: list[Gpu], links: list[list[int]], count: int, numa: bool) -> list[int]:
    """By looking at all sets."""

    def weight(group: list[Gpu]) -> int:
        return sum(
            2 * links[a.index][b.index] + (a.numa_node == b.numa_node or not numa)
            for a, b in itertools.combinations(group, 2)
        )

    def order(group: list[Gpu]) -> tuple[object, ...]:
        pairs = itertools.combinations(group, 2)
        weakest = min((links[a.index][b.index] for a, b in pairs), default=0)
        nodes = len({gpu.numa_node for gpu in group}) if numa else 1
        rest = [gpu for gpu in gpus if gpu not in group]
        return -weakest, nodes, -weight(rest), -weight(group), [gpu.index for gpu in group]

    groups = (list(group) for group in itertools.combinations(gpus, count))
    return [gpu.index for gpu in min(groups, key=order)]


@settings(max_examples=150, deadline=None)
@given(boxes(), st.booleans())
def test_the_search_finds_what_looking_at_all_sets_finds(
    box: tuple[list[Gpu], list[list[int]], int], numa: bool
) -> None:
    gpus, links, count = box
    found = [gpu.index for gpu in linked(list(reversed(gpus)), count, links, numa)]
    assert found == best(gpus, links, count, numa)


@given(boxes(), st.sampled_from(["pack", "spread"]))
def test_spaced_gives_as_many_as_asked(
    box: tuple[list[Gpu], list[list[int]], int], placement: str
) -> None:
    gpus, links, count = box
    found = spaced(gpus, count, gpus[:2], links, placement)
    assert len({gpu.index for gpu in found}) == count


def sixteen(shape: tuple[int, int]) -> tuple[list[Gpu], list[list[int]]]:
    """Sixteen GPUs: sockets and switches on each, dealt round so that nothing is in order."""
    sockets, switches = shape
    places = [index * 7 % 16 for index in range(16)]

    def near(one: int, other: int) -> int:
        if one == other:
            return 0
        for parts, number in ((sockets * switches * 2, 50), (sockets * switches, 40)):
            if one * parts // 16 == other * parts // 16:
                return number
        return 20 if one * sockets // 16 == other * sockets // 16 else 10

    gpus = [
        Gpu(index, f"GPU-{index}", index, "", "m", place * sockets // 16)
        for index, place in enumerate(places)
    ]
    return gpus, [[near(one, other) for other in places] for one in places]


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (4, 2), (8, 1), (1, 8)])
@pytest.mark.parametrize("missing", [(), (3,), (0, 9), (1, 2, 3, 4)])
def test_eight_of_sixteen_are_found_by_a_bounded_search(
    shape: tuple[int, int], missing: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search ends by itself well before its bound, so that what it finds is the best.

    A thousand steps take 3 ms in CPython 3.11 on the machine where this was written.
    """
    from gpushim.allocate import placement

    gpus, links = sixteen(shape)
    gpus = [gpu for gpu in gpus if gpu.index not in missing]
    found = linked(gpus, 8, links)
    monkeypatch.setattr(placement, "_MOST_STEPS", 1000)
    assert linked(gpus, 8, links) == found
    monkeypatch.setattr(placement, "_MOST_STEPS", 1 << 60)
    assert linked(gpus, 8, links) == found


def test_a_matrix_without_any_order_is_searched_for_a_while_only() -> None:
    state = 1
    links = [[0] * 16 for _ in range(16)]
    for one, other in itertools.combinations(range(16), 2):
        state = state * 1103515245 % 2147483648 + 12345
        links[one][other] = links[other][one] = 100 + state // 65536 % 10 * 7
    gpus = [Gpu(index, f"GPU-{index}", index, "", "m") for index in range(16)]
    assert len(linked(gpus, 8, links)) == 8
    assert linked(gpus, 8, links) == linked(gpus[::-1], 8, links)
