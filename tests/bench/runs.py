"""One run of the bench: all series in turn, so that what disturbs one disturbs all."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import counts, statistics
from .counts import Count
from .measure import reap_all
from .report import Results, Timed
from .rig import Rig
from .rows import ALL, GPUS, Series, Side
from .statistics import Sample

_COUNTS: dict[str, Callable[[Rig], Count]] = {
    f"processes of a create, {GPUS} GPUs": counts.processes,
    f"peak memory of a create, {GPUS} GPUs": counts.memory,
}


# Seconds between samples. Whoever moves a process between cgroups takes a lock of the kernel's
# (cgroup_threadgroup_rwsem) that costs an RCU grace period unless another did so a moment ago.
# Samples directly behind one another would find it cheap or dear by what ran before them; an
# engine's calls come alone.
_APART = 0.05


class Run:
    """What is to be measured, prepared once; `measure` may be called again.

    only: a part of the titles of the rows that are wanted; the row that tells a quiet run from a
    noisy one is always among them.
    """

    def __init__(self, rig: Rig, only: str, say: Callable[[str], None]) -> None:
        self._rig = rig
        self._say = say
        self._only = only.lower()
        self._series: list[tuple[Series, tuple[Side, Side]]] = []
        for series in ALL:
            if any(row.decides or self._wanted(row.title) for row in series.rows):
                say(f"Preparing {series.rows[-1].title} ...")
                self._series.append((series, series.prepare(rig)))
        self._counts = [count for title, count in _COUNTS.items() if self._wanted(title)]

    def _wanted(self, title: str) -> bool:
        return self._only in title.lower()

    def measure(self, pairs: int) -> Results:
        """Take so many pairs of each series, and count what is to be counted."""
        taken: list[tuple[list[dict[str, Sample]], list[dict[str, Sample]]]]
        taken = [([], []) for _ in self._series]
        self._pair(0)  # The first finds cold caches; nobody's figures are to hold that.
        for number in range(pairs):
            if number % 10 == 0:
                self._say(f"{number} of {pairs} pairs ...")
            for (base, other), found in zip(taken, self._pair(number), strict=True):
                base.append(found[0])
                other.append(found[1])
        timed = []
        for (series, _), (base, other) in zip(self._series, taken, strict=True):
            for row in series.rows:
                if row.decides or self._wanted(row.title):
                    summary = statistics.summarise(
                        [samples[row.key] for samples in base],
                        [samples[row.key] for samples in other],
                    )
                    timed.append(Timed(row, series.base, summary))
        return Results(timed, [count(self._rig) for count in self._counts])

    def _pair(self, number: int) -> list[tuple[dict[str, Sample], dict[str, Sample]]]:
        """One pair of each series."""
        found = []
        first = statistics.first_of_pair(number)
        for _, sides in self._series:
            samples: list[dict[str, Sample]] = [{}, {}]
            for which in (first, 1 - first):
                time.sleep(_APART)
                samples[which] = sides[which]()
            reap_all()
            found.append((samples[0], samples[1]))
        return found
