"""Machines as allocation sees them, made of the fake host's presets without building any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpushim.allocate.choose import Choice, choose
from gpushim.allocate.lease import EXCLUSIVE, Booking, Lease
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.wish import Wish, wish_of
from gpushim.host.model import Gpu, MigDevice
from gpushim.request import keys
from gpushim.request.request import Request

from tests.fakehost import preset
from tests.fakehost.description import Gpu as Fake
from tests.fakehost.description import resolve
from tests.fakehost.topology import HOSTBRIDGE, NODE, SINGLE, SYSTEM, common_ancestor

GIB = 1 << 30
NVLINK = 30012
_NUMBER = {SINGLE: 50, HOSTBRIDGE: 30, NODE: 20, SYSTEM: 10}


class Machine:
    """gpus and links as in an inventory."""

    def __init__(self, gpus: list[Gpu], links: list[list[int]]) -> None:
        self.gpus = gpus
        self.links = links

    def uuid(self, name: str) -> str:
        """Of "0" or "0:1"."""
        index, _, part = name.partition(":")
        gpu = self.gpus[int(index)]
        return gpu.mig_devices[int(part)].uuid if part else gpu.uuid

    def lease(
        self, id: str, names: str, mode: str = EXCLUSIVE, memory: int = 0, compute: int = 0
    ) -> Lease:
        bookings = [
            Booking(self.uuid(name), mode, memory, compute) for name in names.split(",") if name
        ]
        lease = Lease(id * 8, "/run/runc", (1, 1), bookings)
        lease.name = id
        return lease

    def choose(self, wish: Wish, leases: Sequence[Lease] = (), **more: Any) -> Choice | Refusal:
        return choose(wish, self.gpus, leases, links=self.links, **more)

    def names(self, wish: Wish, leases: Sequence[Lease] = (), **more: Any) -> str:
        """What is chosen, as "0,2"; "-" for a refusal now, "never" for one for good."""
        found = self.choose(wish, leases, **more)
        if isinstance(found, Refusal):
            return "never" if found.never else "-"
        return ",".join(f"{g.index}:{m.index}" if m else str(g.index) for g, m, _ in found.bookings)


def machine(name: str, **changes: Any) -> Machine:
    fakes = resolve(preset(name, **changes))
    return Machine([_gpu(fake) for fake in fakes], [[_link(a, b) for b in fakes] for a in fakes])


def _gpu(fake: Fake) -> Gpu:
    return Gpu(
        fake.index,
        fake.uuid,
        fake.minor,
        fake.bus,
        fake.model.name,
        fake.numa,
        memory=fake.memory,
        compute_capability=".".join(str(part) for part in fake.model.capability),
        mig_enabled=fake.mig_layout is not None,
        mig_devices=[
            MigDevice(
                index, part.uuid, part.name, part.profile.memory_mib << 20, part.gi, part.ci,
                part.gi_minor, part.ci_minor,
            )
            for index, part in enumerate(fake.mig)
        ],
    )  # fmt: skip


def _link(one: Fake, other: Fake) -> int:
    if one is other:
        return 0
    if other.bus in one.links or ("switch" in one.links and "switch" in other.links):
        return NVLINK
    return _NUMBER[common_ancestor(one, other)]


def wish(gpus: str = "1", counts: str = "exclusive", named_open: bool = True, **said: str) -> Wish:
    """As for the labels gpushim.gpus and what else is said, with _ for -."""
    value = keys.parse("gpus", gpus, "label gpushim.gpus=" + gpus)
    request = Request(
        value.get("names", []), ["compute"], {"devices": f"label gpushim.gpus={gpus}"}
    )
    request.count = value.get("count")
    request.open = request.count is None and named_open
    for name, text in said.items():
        key = name.replace("_", "-")
        request.keys[key] = keys.parse(key, text, "label")
        request.sources[key] = f"label gpushim.{key}={text}"
    return wish_of(request, counts)
