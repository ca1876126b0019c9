"""`limits.unified` on both versions of cgroups."""

from __future__ import annotations

from typing import Any

import pytest
from gpushim.limits.present import Present

from tests.unit.limits.deciding import Host, decided

G = 1 << 30


@pytest.mark.parametrize(
    ("file", "value", "classic"),
    [
        ("memory.high", "100g", {"memory": {"reservation": 100 * G}}),
        ("memory.high", "max", {"memory": {"reservation": -1}}),
        ("memory.low", "1073741824", {"memory": {"reservation": G}}),
        ("memory.max", "8G", {"memory": {"limit": 8 * G}}),
        ("cpu.weight", "100", {"cpu": {"shares": 2597}}),
        ("cpu.weight", "1", {"cpu": {"shares": 2}}),
        ("cpu.weight", "10000", {"cpu": {"shares": 262144}}),
        ("cpu.max", "150000 100000", {"cpu": {"quota": 150000, "period": 100000}}),
        ("cpu.max", "max", {"cpu": {"quota": -1, "period": 100000}}),
        ("pids.max", "100", {"pids": {"limit": 100}}),
        ("pids.max", "max", {"pids": {"limit": -1}}),
        ("io.weight", "100", {"blockIO": {"weight": 19}}),
        ("io.weight", "default 10000", {"blockIO": {"weight": 1000}}),
        ("io.weight", "1", {"blockIO": {"weight": 10}}),
        ("io.bfq.weight", "5", {"blockIO": {"weight": 10}}),
        ("io.bfq.weight", "default 500", {"blockIO": {"weight": 500}}),
    ],
)
def test_a_file_and_what_comes_nearest_before(
    file: str, value: str, classic: dict[str, Any]
) -> None:
    values = {"limits.unified": {file: value}}
    new, old = (decided({}, values, host=Host(version)) for version in (2, 1))
    plain = {"100g": str(100 * G), "8G": str(8 * G)}.get(value, value)
    assert new.edits.resources == {"unified": {file: plain}}
    assert old.edits.resources == classic
    assert new.warnings == old.warnings == []


def shares_to_weight(shares: int) -> int:
    """As runc and crun turn classic values into version 2's (crun(1), "cgroup v2")."""
    return 1 + (shares - 2) * 9999 // 262142


@pytest.mark.parametrize("weight", [1, 2, 39, 100, 5000, 9999, 10000])
def test_a_weight_comes_back_as_it_was(weight: int) -> None:
    found = decided({}, {"limits.unified": {"cpu.weight": str(weight)}}, host=Host(1))
    assert abs(shares_to_weight(found.edits.resources["cpu"]["shares"]) - weight) <= 1


@pytest.mark.parametrize(
    ("file", "value", "why"),
    [
        ("memory.oom.group", "1", "which has nothing of the kind"),
        ("io.max", "8:0 rbps=1", "which has nothing of the kind"),
        ("cpu.weight", "0", "and '0' cannot be said in it"),
        ("cpu.weight", "idle", "and 'idle' cannot be said in it"),
        ("memory.high", "90%", "and '90%' cannot be said in it"),
    ],
)
def test_what_cannot_be_said_before_is_named(file: str, value: str, why: str) -> None:
    found = decided({}, {"limits.unified": {file: value}}, host=Host(1))
    assert found.edits.resources == {}
    assert found.warnings == [
        f"limits.unified {file} is not applied: this host has cgroup version 1, {why}."
    ]


@pytest.mark.parametrize(
    ("file", "value", "plain"),
    [
        ("memory.high", "max", "max"),
        ("memory.min", "4k", "4096"),
        ("memory.swap.max", "1GiB", str(G)),
        ("memory.swap.high", " 0 ", "0"),
        ("memory.oom.group", "1", "1"),
        ("hugetlb.2MB.max", "4m", "4m"),
    ],
)
def test_memory_is_a_number_for_the_runtime(file: str, value: str, plain: str) -> None:
    """The kernel reads 128m, but runc reads such files itself where systemd has to set them."""
    found = decided({}, {"limits.unified": {file: value}}, host=Host(2, ["memory", "hugetlb"]))
    assert found.edits.resources == {"unified": {file: plain}}


@pytest.mark.parametrize(
    ("file", "cgroup", "is_lost"),
    [
        ("memory.oom.group", "system.slice:docker:a", True),
        ("memory.zswap.writeback", ":libpod:a", True),
        ("memory.oom.group", "/docker/a", False),
        ("memory.oom.group", "", False),
        ("memory.high", "system.slice:docker:a", False),
    ],
)
def test_what_systemd_writes_again(file: str, cgroup: str, is_lost: bool) -> None:
    present = Present({})
    present.cgroup = cgroup
    found = decided({}, {"limits.unified": {file: "0"}}, present=present)
    assert found.edits.resources == {"unified": {file: "0"}}
    assert [file in text and "daemon-reload" in text for text in found.warnings] == [True] * is_lost


def test_no_number_of_bytes() -> None:
    found = decided({}, {"limits.unified": {"memory.high": "90%"}}, host=Host(2))
    assert found.edits.resources == {}
    assert found.warnings == [
        "limits.unified memory.high is not applied: '90%' is not a size such as 512k, 10m or 8GiB, "
        "nor 'max'."
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_missing_controller_is_named(version: int) -> None:
    values = {"limits.unified": {"io.weight": "100"}}
    found = decided({}, values, host=Host(version, ["memory"]))
    assert found.edits.resources == {}
    assert found.warnings == [
        "limits.unified io.weight is not applied: the cgroup controller 'io' is not available to "
        f"containers on this host (cgroup version {version})."
    ]


def test_a_file_that_the_kernel_lacks_is_named() -> None:
    """With it in the spec, runc would refuse to create the container."""
    values = {"limits.unified": {"io.weight": "100"}}
    found = decided({}, values, host=Host(without=["io.weight"]))
    assert found.edits.resources == {}
    assert found.warnings == [
        "limits.unified io.weight is not applied: this kernel's groups have no such file."
    ]
    old = decided({}, values, host=Host(1, without=["blkio.weight", "blkio.bfq.weight"]))
    assert old.edits.resources == {}
    assert "has no weights of block devices" in old.warnings[0]
    assert decided({}, values, host=Host(1, without=["blkio.weight"])).warnings == []


@pytest.mark.parametrize(
    ("resources", "file"),
    [
        ({"unified": {"memory.high": "1g"}}, "memory.high"),
        ({"cpu": {"shares": 512}}, "cpu.weight"),
        ({"blockIO": {"weight": 500}}, "io.weight"),
        ({"memory": {"limit": G}}, "memory.max"),
        ({"memory": {"swap": -1}}, "memory.swap.max"),
        ({"cpu": {"quota": 1000}}, "cpu.max"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_users_own_stays(resources: dict[str, Any], file: str, version: int) -> None:
    """B80: never both a classic and a unified value for one knob."""
    found = decided(resources, {"limits.unified": {file: "100"}}, host=Host(version))
    assert found.edits.resources == {}
    assert found.notes == [f"limits.unified {file} is not applied: the container has its own."]
    assert found.warnings == []


def test_the_users_reservation_stays_where_it_is_the_same() -> None:
    resources = {"memory": {"reservation": G}}
    values = {"limits.unified": {"memory.high": "2g"}}
    plain = {"memory.high": str(2 * G)}
    assert decided(resources, values).edits.resources == {"unified": plain}
    old = decided(resources, values, host=Host(1))
    assert old.edits.resources == {}
    assert old.notes == [
        "limits.unified memory.high is not applied: the container has its own memory reservation, "
        "which is what comes nearest on cgroup version 1."
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_it_outranks_what_is_set_for_each_gpu(version: int) -> None:
    values = {"limits.unified": {"memory.max": "8g"}, "limits.memory-per-gpu": "64g"}
    found = decided({}, values, host=Host(version))
    classic = {"memory": {"limit": 8 * G}}
    unified = {"unified": {"memory.max": str(8 * G)}}
    assert found.edits.resources == (classic if version == 1 else unified)
    assert found.notes == [
        "limits.memory-per-gpu is not applied: limits.unified decides memory.max."
    ]


def test_two_files_for_one_limit_before() -> None:
    values = {"limits.unified": {"memory.high": "2g", "memory.low": "1g"}}
    found = decided({}, values, host=Host(1))
    assert found.edits.resources == {"memory": {"reservation": 2 * G}}
    assert "memory.low is not applied" in found.warnings[0]


@pytest.mark.parametrize(
    ("resources", "values", "swap"),
    [
        ({"memory": {"limit": 4 * G}}, {}, 5 * G),
        ({}, {"limits.memory-per-gpu": "2g"}, 3 * G),
        ({}, {}, None),
        ({"memory": {"limit": -1}}, {}, None),
    ],
)
def test_swap_is_counted_with_memory_before(
    resources: dict[str, Any], values: dict[str, Any], swap: int | None
) -> None:
    """B80: OCI's swap, and version 1's, is the sum."""
    wanted = {**values, "limits.unified": {"memory.swap.max": "1g"}}
    found = decided(resources, wanted, host=Host(1))
    assert found.edits.resources.get("memory", {}).get("swap") == swap
    assert len(found.warnings) == (swap is None)
    new = decided(resources, wanted)
    assert new.edits.resources["unified"] == {"memory.swap.max": str(G)}
    assert "swap" not in new.edits.resources.get("memory", {})


def test_swap_without_end_without_sense_and_uncounted() -> None:
    resources = {"memory": {"limit": G}}

    def swap(value: str, host: Host) -> tuple[Any, list[str]]:
        found = decided(resources, {"limits.unified": {"memory.swap.max": value}}, host=host)
        return found.edits.resources.get("memory"), found.warnings

    assert swap("max", Host(1)) == ({"swap": -1}, [])
    assert swap("0", Host(1)) == ({"swap": G}, [])
    nothing, warnings = swap("much", Host(1))
    assert nothing is None and "'much' cannot be said in it" in warnings[0]
    nothing, warnings = swap("1g", Host(1, without=["memory.memsw.limit_in_bytes"]))
    assert nothing is None and "swapaccount=1" in warnings[0]


def test_it_fits_the_users_own_and_the_groups_above_before() -> None:
    values = {"limits.unified": {"memory.max": "8g", "cpu.max": "800000"}}
    found = decided({"memory": {"swap": 2 * G}}, values, host=Host(1, allowed=2))
    assert found.edits.resources["memory"] == {"limit": 2 * G}
    assert found.edits.resources["cpu"] == {"quota": 200_000, "period": 100_000}
