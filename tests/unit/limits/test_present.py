"""What the user set is told from what engines write by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpushim.limits.present import Present

from tests.unit.limits.deciding import spec_with

# As Docker 20.10 to 29 write them for a container without a word about limits.
DOCKER = {
    "devices": [{"allow": False, "access": "rwm"}],
    "memory": {"disableOOMKiller": False},
    "cpu": {"shares": 0},
    "blockIO": {"weight": 0},
}


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({}, set()),
        (DOCKER, set()),
        ({"pids": {"limit": 0}}, set()),
        ({"pids": {"limit": -1}}, set()),
        ({"pids": {"limit": 100}}, {"pids.max"}),
        ({"pids": {"limit": 2048}}, {"pids.max"}),
        ({"memory": {"limit": 0, "swap": 0}}, set()),
        ({"memory": {"limit": 1 << 30, "swap": 2 << 30}}, {"memory.max", "memory.swap.max"}),
        ({"memory": {"limit": -1}}, {"memory.max"}),
        ({"memory": {"swap": -1}}, {"memory.swap.max"}),
        ({"memory": {"reservation": 1 << 30}}, {"memory.low"}),
        ({"cpu": {"quota": 0, "period": 100000}}, set()),
        ({"cpu": {"quota": -1}}, {"cpu.max"}),
        ({"cpu": {"quota": 150000, "period": 100000}}, {"cpu.max"}),
        ({"cpu": {"shares": 512, "cpus": "", "mems": ""}}, {"cpu.weight"}),
        ({"cpu": {"cpus": "0-3"}}, {"cpuset.cpus"}),
        ({"cpu": {"mems": "0"}}, {"cpuset.mems"}),
        ({"blockIO": {"weight": 0, "weightDevice": []}}, set()),
        ({"blockIO": {"weightDevice": [{"major": 8, "minor": 0, "weight": 5}]}}, {"io.weight"}),
        ({"unified": {"memory.max": "1g", "io.bfq.weight": "5"}}, {"memory.max", "io.weight"}),
        ({"unified": {"pids.max": "max"}, "pids": {"limit": -1}}, {"pids.max"}),
        ({"memory": None, "cpu": None, "pids": None, "unified": None}, set()),
        ({"memory": [1], "cpu": "x", "pids": 5}, set()),
    ],
)
def test_said(resources: dict[str, Any], said: set[str]) -> None:
    assert Present(resources).said == said


@pytest.mark.parametrize(
    ("limit", "said"), [(2048, False), (4096, False), (2047, True), (-1, False)]
)
def test_podmans_own_limit_of_processes(tmp_path: Path, limit: int, said: bool) -> None:
    spec = {
        "annotations": {"io.container.manager": "libpod"},
        "linux": {"resources": {"pids": {"limit": limit}}},
    }
    assert ("pids.max" in spec_with(tmp_path, spec).said) is said


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"linux": None, "mounts": None, "annotations": None},
        {"linux": {"resources": None, "cgroupsPath": 5}, "mounts": [None, {"destination": 5}]},
        {"linux": {"resources": [1]}, "annotations": {"io.container.manager": ["libpod"]}},
    ],
)
def test_odd_specs_say_nothing(tmp_path: Path, spec: Any) -> None:
    """B01, B02."""
    found = spec_with(tmp_path, spec)
    assert found.said == set()
    assert (found.shm, found.memory_policy, found.cgroup) == (None, False, "")


def test_the_rest_of_a_spec(tmp_path: Path) -> None:
    shm = {"destination": "/dev/shm/", "type": "tmpfs", "options": ["size=64m"]}
    found = spec_with(
        tmp_path,
        {
            "mounts": [{"destination": "/dev/shm", "type": "bind"}, shm],
            "linux": {"cgroupsPath": "system.slice:docker:a", "memoryPolicy": {"mode": "x"}},
        },
    )
    assert found.shm == shm
    assert found.memory_policy is True
    assert found.cgroup == "system.slice:docker:a"
