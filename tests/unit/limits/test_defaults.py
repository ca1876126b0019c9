"""What a container gets for each GPU, where its user set nothing."""

from __future__ import annotations

from typing import Any

import pytest
from gpushim.limits.present import Present
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.limits.deciding import ALL, GIB, GPUS, Host, decided
from tests.unit.limits.test_present import DOCKER

VALUES = {
    "limits.cpus-per-gpu": "8",
    "limits.memory-per-gpu": "64g",
    "limits.pids-per-gpu": "1000",
}
FULL = {
    "cpu": {"quota": 800_000, "period": 100_000},
    "memory": {"limit": 64 * GIB},
    "pids": {"limit": 1000},
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("resources", [{}, DOCKER, {"pids": {"limit": -1}}])
def test_one_gpu(resources: dict[str, Any], version: int) -> None:
    found = decided(resources, VALUES, host=Host(version))
    assert found.edits.resources == FULL
    assert found.warnings == found.notes == []


@pytest.mark.parametrize(
    ("shares", "cpus", "memory", "pids"),
    [
        ([1.0, 1.0], 16, 128, 2000),
        ([0.25], 2, 16, 250),
        ([0.25, 1.0], 10, 80, 1250),
        ([0.125] * 4, 4, 32, 500),
    ],
)
def test_in_proportion(shares: list[float], cpus: int, memory: int, pids: int) -> None:
    found = decided({}, VALUES, shares=[(GPUS[n], share) for n, share in enumerate(shares)])
    assert found.edits.resources == {
        "cpu": {"quota": cpus * 100_000, "period": 100_000},
        "memory": {"limit": memory * GIB},
        "pids": {"limit": pids},
    }


def test_a_tiny_share_still_starts() -> None:
    small = {
        "limits.cpus-per-gpu": "0.5",
        "limits.memory-per-gpu": "1g",
        "limits.pids-per-gpu": "100",
    }
    assert decided({}, small, shares=[(GPUS[0], 0.01)]).edits.resources == {
        "cpu": {"quota": 1000, "period": 100_000},
        "memory": {"limit": 64 << 20},
        "pids": {"limit": 32},
    }


def test_without_a_gpu_nothing() -> None:
    assert decided({}, VALUES, shares=[]).edits.to_json() == decided({}, {}).edits.to_json()


@pytest.mark.parametrize(
    ("resources", "kept"),
    [
        ({"memory": {"limit": 1 << 30}}, "memory"),
        ({"memory": {"limit": -1}}, "memory"),
        ({"unified": {"memory.max": "max"}}, "memory"),
        ({"cpu": {"quota": 50_000, "period": 100_000}}, "cpu"),
        ({"cpu": {"quota": -1}}, "cpu"),
        ({"unified": {"cpu.max": "max 100000"}}, "cpu"),
        ({"pids": {"limit": 7}}, "pids"),
        ({"unified": {"pids.max": "7"}}, "pids"),
    ],
)
def test_the_users_own_stays(resources: dict[str, Any], kept: str) -> None:
    """B80: never both a classic and a unified value for one knob."""
    found = decided(resources, VALUES)
    assert found.edits.resources == {name: FULL[name] for name in FULL if name != kept}
    assert found.warnings == found.notes == []


def test_shares_and_processors_are_other_knobs_than_a_quota() -> None:
    resources = {"cpu": {"shares": 512, "cpus": "0-3"}}
    assert decided(resources, VALUES).edits.resources["cpu"] == FULL["cpu"]


def test_the_users_period_counts() -> None:
    found = decided({"cpu": {"period": 50_000}}, VALUES)
    assert found.edits.resources["cpu"] == {"quota": 400_000, "period": 50_000}


@pytest.mark.parametrize(
    ("swap", "limit"), [(-1, 64), (0, 64), (128 * GIB, 64), (64 * GIB, 64), (2 * GIB, 2)]
)
def test_memory_and_swap_together(swap: int, limit: int) -> None:
    """B80: swap is the sum, -1 stays, and memory alone is never more than the sum."""
    found = decided({"memory": {"swap": swap}}, VALUES)
    assert found.edits.resources["memory"] == {"limit": limit * GIB}
    assert len(found.notes) == (limit != 64)


def test_no_limit_that_a_container_would_stand_still_at() -> None:
    found = decided({"memory": {"disableOOMKiller": True}}, VALUES)
    assert "memory" not in found.edits.resources
    assert found.warnings == [
        "limits.memory-per-gpu is not applied: the container has no OOM killer, so at a limit it "
        "would stand still for good."
    ]


@pytest.mark.parametrize("missing", ["cpu", "memory", "pids"])
def test_a_missing_controller_is_named(missing: str) -> None:
    host = Host(1, [name for name in ALL if name != missing])
    found = decided({}, VALUES, host=host)
    assert found.edits.resources == {name: FULL[name] for name in FULL if name != missing}
    key = {"cpu": "cpus", "memory": "memory", "pids": "pids"}[missing]
    assert found.warnings == [
        f"limits.{key}-per-gpu is not applied: the cgroup controller '{missing}' is not available "
        "to containers on this host (cgroup version 1)."
    ]


def test_no_more_processors_than_the_group_above_has() -> None:
    found = decided({}, VALUES, host=Host(1, allowed=1.5))
    assert found.edits.resources["cpu"] == {"quota": 150_000, "period": 100_000}
    assert found.warnings == [
        "The container gets 1.5 processors and not 8: the cgroup that it goes into has no more."
    ]
    assert decided({}, VALUES, host=Host(1, allowed=9)).warnings == []


def shm(kind: str = "tmpfs", *options: str) -> Present:
    found = Present({})
    found.shm = {"destination": "/dev/shm", "type": kind, "options": list(options)}
    return found


@pytest.mark.parametrize(
    ("options", "share", "size"),
    [
        (["mode=1777", "size=67108864"], 1.0, 8 << 30),
        (["size=65536k"], 1.0, 8 << 30),
        (["size=64m"], 0.25, 2 << 30),
        (["size=64M"], 0.001, None),
        (["size=0"], 1.0, 8 << 30),
        (["size=1g", "size=64m"], 1.0, 8 << 30),
        ([], 1.0, 8 << 30),
        ([], 0.001, 64 << 20),
        (["size=1g"], 1.0, None),
        (["size=64m", "size=16g"], 1.0, None),
        (["size=50%"], 1.0, None),
        (["size=67108865"], 1.0, None),
        (["size="], 1.0, None),
        (["size=much"], 1.0, None),
    ],
)
def test_shared_memory(options: list[str], share: float, size: int | None) -> None:
    found = decided(
        {}, {"limits.shm-per-gpu": "8g"}, present=shm("tmpfs", *options), shares=[(GPUS[0], share)]
    )
    assert found.edits.tmpfs_sizes == ({} if size is None else {"/dev/shm": size})
    assert found.notes == []


@pytest.mark.parametrize("present", [shm("bind", "rbind", "size=64m"), Present({})])
def test_shared_memory_that_is_not_the_containers_own(present: Present) -> None:
    """With --ipc=host or another container's, and for Podman, which mounts it itself."""
    found = decided({}, {"limits.shm-per-gpu": "8g"}, present=present)
    assert found.edits.tmpfs_sizes == {}
    assert found.notes == [
        "limits.shm-per-gpu is not applied: /dev/shm is no tmpfs of the container's own."
    ]


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=16),
    st.floats(0.1, 64),
    st.integers(1, 1 << 40),
    st.integers(1, 100_000),
)
def test_any_share_is_within_what_is_configured(
    shares: list[float], cpus: float, memory: int, pids: int
) -> None:
    values = {
        "limits.cpus-per-gpu": cpus,
        "limits.memory-per-gpu": str(memory),
        "limits.pids-per-gpu": pids,
    }
    found = decided({}, values, shares=[(GPUS[0], share) for share in shares]).edits.resources
    whole = sum(shares)
    assert 1000 <= found["cpu"]["quota"] <= max(1000, cpus * whole * 100_000 + 1)
    assert 64 << 20 <= found["memory"]["limit"] <= max(64 << 20, memory * whole + 1)
    assert 32 <= found["pids"]["limit"] <= max(32, pids * whole + 1)
