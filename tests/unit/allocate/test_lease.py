"""Leases as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from gpushim.allocate.lease import (
    ALL,
    EXCLUSIVE,
    MODES,
    OPEN,
    SHARED,
    Booking,
    Lease,
    NewerFormat,
    file_name,
)
from hypothesis import given
from hypothesis import strategies as st

REFUSED = (ValueError, KeyError, TypeError)


def example() -> Lease:
    lease = Lease(
        "c0ffee",
        "/run/docker/runtime-runc/moby",
        (4711, 123456),
        [
            Booking("GPU-1", EXCLUSIVE),
            Booking("GPU-2", SHARED, 20 << 30, 25),
            Booking("MIG-3", OPEN),
            Booking("GPU-4", ALL),
        ],
    )
    lease.name, lease.engine = "web", "docker"
    lease.runtime, lease.family = "/usr/bin/runc", "runc"
    lease.cgroup, lease.boot = "/docker/c0ffee", "a-boot"
    lease.since, lease.owner, lease.ticket = 1_700_000_000, 1000, "t1"
    lease.labels = {"team": "vision"}
    return lease


def members(lease: Lease) -> dict[str, Any]:
    found = {name: getattr(lease, name) for name in Lease.__slots__}
    found["bookings"] = [
        {name: getattr(booking, name) for name in Booking.__slots__} for booking in lease.bookings
    ]
    return found


def test_what_is_written_is_read() -> None:
    lease = example()
    lease.path = "/x.json"
    data = json.loads(json.dumps(lease.to_json()))
    assert data["format"] == 1
    assert members(Lease.from_json(data, "/x.json")) == members(lease)


def test_the_owner_of_the_file_outweighs_what_it_says() -> None:
    assert Lease.from_json(example().to_json(), owner=7).owner == 7
    assert Lease.from_json(example().to_json(), owner=0).owner == 0
    assert Lease.from_json(example().to_json()).owner == 1000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.update(format=0),
        lambda data: data.update(format="1"),
        lambda data: data.update(format=True),
        lambda data: data.pop("format"),
        lambda data: data.pop("id"),
        lambda data: data.update(id=5),
        lambda data: data.update(state_root=None),
        lambda data: data.update(cgroup=["/"]),
        lambda data: data.update(boot=1),
        lambda data: data.update(creator=[1]),
        lambda data: data.update(creator=[1, 2, 3]),
        lambda data: data.update(creator="12"),
        lambda data: data.update(creator=[-1, 2]),
        lambda data: data.update(creator=[1.5, 2]),
        lambda data: data.update(creator=[True, 2]),
        lambda data: data.update(creator=[1, 1 << 63]),
        lambda data: data.update(since="now"),
        lambda data: data.update(owner=-1),
        lambda data: data.update(labels=[]),
        lambda data: data.update(labels={"a": 1}),
        lambda data: data.update(bookings=None),
        lambda data: data.update(bookings={"a": 1}),
        lambda data: data["bookings"][0].update(uuid=1),
        lambda data: data["bookings"][0].update(mode="mine"),
        lambda data: data["bookings"][0].update(mode=[]),
        lambda data: data["bookings"][0].update(memory=-1),
        lambda data: data["bookings"][0].update(memory=True),
        lambda data: data["bookings"][0].update(compute=101),
        lambda data: data["bookings"][0].pop("compute"),
    ],
)
def test_what_is_no_lease(spoil: Callable[[dict[str, Any]], object]) -> None:
    data = example().to_json()
    spoil(data)
    with pytest.raises(REFUSED) as caught:
        Lease.from_json(data)
    assert not isinstance(caught.value, NewerFormat)


def test_a_newer_format_is_told_from_garbage() -> None:
    with pytest.raises(NewerFormat) as caught:
        Lease.from_json({"format": 2, "whatever": "else"})
    assert caught.value.number == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(json_values)
def test_any_json_is_a_lease_or_refused(value: Any) -> None:
    try:
        Lease.from_json(value)
    except REFUSED:
        pass


@given(st.sampled_from(sorted(example().to_json())), json_values)
def test_any_member_is_right_or_refused(member: str, value: Any) -> None:
    data = {**example().to_json(), member: value}
    try:
        lease = Lease.from_json(data)
    except REFUSED:
        return
    assert all(booking.mode in MODES for booking in lease.bookings)
    assert json.loads(json.dumps(lease.to_json()))[member] == data[member]


def test_file_names() -> None:
    """One for each container of each user, whatever its id is."""
    name = file_name("c1", "/run/runc", 0)
    assert name == file_name("c1", "/run/runc", 0)
    assert name.endswith("-0-c1.json")
    others = [
        file_name("c2", "/run/runc", 0),
        file_name("c1", "/run/crun", 0),
        file_name("c1", "/run/runc", 1000),
        file_name("é" * 150, "/run/runc", 0),
        file_name("é" * 149 + "e", "/run/runc", 0),
        file_name("\udcff", "/run/\udcff", 0),
    ]
    assert len({name, *others}) == 7
    assert all(len(other.encode("utf-8", "surrogateescape")) < 240 for other in others)
