"""Which of the GPUs that fit belong together: pure, by the matrix of links between them.

A link is a number, larger is better (host/topology.py has the scale); where the matrix says nothing
of a pair, they are taken for neighbours if they share a NUMA node.
"""

from __future__ import annotations

from gpushim.allocate.wish import PACK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.host.model import Gpu

    Matrix = Sequence[Sequence[int]]

SAME_NODE, OTHER_NODE = 20, 10

# Places that a search tries once it has found a set, before it takes the best so far. Eight of
# sixteen GPUs take less than a thousand in PCIe trees, with NVLink between some or not, and
# some three milliseconds; only links without any order take more.
_MOST_STEPS = 1500


def link(one: Gpu, other: Gpu, links: Matrix) -> int:
    """How well two different GPUs are connected."""
    if max(one.index, other.index) < len(links):
        return links[one.index][other.index]
    return SAME_NODE if one.numa_node == other.numa_node else OTHER_NODE


def linked(gpus: Sequence[Gpu], count: int, links: Matrix, numa: bool = True) -> list[Gpu]:
    """`count` of `gpus`, so that the weakest link between any two of them is as good as can be.

    Of several such sets the one on the fewest NUMA nodes (if `numa`), of these the one that leaves
    the GPUs with the best links to each other, of these the one with the best links itself, and
    then the one that comes first. For a single GPU this is the one that the others miss least.
    """
    gpus = sorted(gpus, key=lambda gpu: gpu.index)
    if count >= len(gpus):
        return gpus[:count]
    raw = [[link(one, other, links) if one is not other else 0 for other in gpus] for one in gpus]
    nodes = [gpu.numa_node if numa else 0 for gpu in gpus]
    search = _Search(raw, nodes, count)
    return [gpus[place] for place in search.best_set()]


class _Search:
    """Branch and bound over sets of places, as bit masks, with one number to be made smallest.

    That number is, by what weighs most: the NUMA nodes that a set is on; what the rest loses, which
    is all links of the set but for those within it counted twice; less the links within it.
    """

    __slots__ = (
        "adjacent",
        "best",
        "count",
        "degree",
        "factor",
        "found",
        "largest",
        "least",
        "mates",
        "node_cost",
        "raw",
        "steps",
        "weight",
    )

    def __init__(self, raw: list[list[int]], nodes: list[int], count: int) -> None:
        size = len(raw)
        every = range(size)
        self.raw = raw
        self.count = count
        self.mates = [sum(1 << j for j in every if nodes[j] == nodes[i]) for i in every]
        self.largest = max(mates.bit_count() for mates in self.mates)
        # Being on one node counts for less than any difference between links.
        self.weight = [
            [2 * raw[i][j] + (nodes[i] == nodes[j]) if i != j else 0 for j in every] for i in every
        ]
        self.degree = [sum(row) for row in self.weight]
        total = sum(self.degree)
        self.factor = total + 1
        self.node_cost = (total + 1) * (total + 2)
        self.least = self._least()
        self.adjacent = [0] * size
        self.found: list[int] = []
        self.best = -1
        self.steps = 0

    def _least(self) -> list[list[int]]:
        """By how many are still to be added, what each place costs at least, before any is chosen.

        The links between those to be added are each counted from both ends, so half of each one's
        best ones is the most that they can be.
        """
        tops = [_sums(sorted(row, reverse=True)) for row in self.weight]
        return [
            [
                degree * self.factor - (sums[max(need - 1, 0)] + 1) // 2 * (self.factor + 1)
                for degree, sums in zip(self.degree, tops, strict=True)
            ]
            for need in range(self.count + 1)
        ]

    def best_set(self) -> list[int]:
        every = (1 << len(self.raw)) - 1
        for weakest in sorted({value for row in self.raw for value in row}, reverse=True):
            self.adjacent = [
                sum(1 << j for j, value in enumerate(row) if j != i and value >= weakest)
                for i, row in enumerate(self.raw)
            ]
            if self._exists(every, self.count):
                break
        self._extend([], 0, 0, every, [0] * len(self.raw))
        return self.found

    def _exists(self, candidates: int, need: int) -> bool:
        """Whether `need` of the candidates are all adjacent to each other."""
        if need == 0:
            return True
        while candidates.bit_count() >= need:
            lowest = candidates & -candidates
            candidates ^= lowest
            if self._exists(candidates & self.adjacent[lowest.bit_length() - 1], need - 1):
                return True
        return False

    def _extend(
        self, chosen: list[int], near: int, cost: int, candidates: int, inner: list[int]
    ) -> None:
        """Looks at all sets that have `chosen` and more of the candidates, in their order.

        near: all places on the nodes of what is chosen; cost: of it; inner: for each place, its
        links to it.
        """
        need = self.count - len(chosen)
        if need == 0:
            if self.best < 0 or cost < self.best:
                self.best, self.found = cost, chosen
            return
        while candidates.bit_count() >= need:
            if self.best >= 0:
                if self.steps >= _MOST_STEPS or not self._can_win(
                    candidates, need, near, cost, inner
                ):
                    return
                self.steps += 1
            lowest = candidates & -candidates
            candidates ^= lowest
            place = lowest.bit_length() - 1
            added = (self.degree[place] - inner[place]) * self.factor - inner[place]
            if not near & lowest:
                added += self.node_cost
            row = self.weight[place]
            self._extend(
                [*chosen, place],
                near | self.mates[place],
                cost + added,
                candidates & self.adjacent[place],
                [links + more for links, more in zip(inner, row, strict=True)],
            )

    def _can_win(self, candidates: int, need: int, near: int, cost: int, inner: list[int]) -> bool:
        """Whether a set may come of this that is better than the best so far."""
        outside = need - (candidates & near).bit_count()
        if outside > 0:
            cost += -(-outside // self.largest) * self.node_cost
        least, each = self.least[need], self.factor + 1
        bounds = []
        while candidates:
            lowest = candidates & -candidates
            candidates ^= lowest
            place = lowest.bit_length() - 1
            bounds.append(least[place] - inner[place] * each)
        bounds.sort()
        return cost + sum(bounds[:need]) < self.best


def _sums(row: list[int]) -> list[int]:
    """The sums of the first none, one, two, ... of a row."""
    sums = [0]
    for value in row:
        sums.append(sums[-1] + value)
    return sums


def spaced(
    gpus: Sequence[Gpu], count: int, taken: Sequence[Gpu], links: Matrix, placement: str
) -> list[Gpu]:
    """`count` of `gpus`, one after the other: near to those taken (PACK), or far from them.

    taken: GPUs that somebody uses; each one that is chosen counts as taken for the next.
    """
    left = sorted(gpus, key=lambda gpu: gpu.index)
    near = [sum(link(gpu, other, links) for other in taken) for gpu in left]
    chosen: list[Gpu] = []
    while left and len(chosen) < count:
        place = near.index(max(near) if placement == PACK else min(near))
        gpu = left.pop(place)
        near.pop(place)
        near = [sum_ + link(other, gpu, links) for sum_, other in zip(near, left, strict=True)]
        chosen.append(gpu)
    return chosen
