"""Processors and memory near the GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from gpushim.errors import GpushimError
from gpushim.host.memorypolicy import usable_modes
from gpushim.host.model import Gpu
from gpushim.limits.present import Present

from tests.unit.limits.deciding import ALL, GPUS, Host, decided

NEAR_0 = {"cpu": {"cpus": "0-3,8-11", "mems": "0"}}
BIND = {"limits.numa": "bind"}
LOST = Gpu(7, "GPU-7", 7, "0000:09:00.0", "A100", numa_node=-1)
FOUR = {str(node): f"{4 * node}-{4 * node + 3}" for node in range(4)}
BOTH = ["MPOL_PREFERRED", "MPOL_PREFERRED_MANY"]


def on(*gpus: int) -> list[tuple[Gpu, float]]:
    return [(GPUS[index], 1.0) for index in gpus]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([0], NEAR_0),
        ([0, 1], NEAR_0),
        ([3], {"cpu": {"cpus": "4-7,12-15", "mems": "1"}}),
        ([0, 3], {}),
    ],
)
def test_bind(gpus: list[int], expected: dict[str, Any], version: int) -> None:
    for values, keys in ((BIND, {}), ({}, {"numa": "bind"}), (BIND, {"numa": "bind"})):
        found = decided({}, values, keys=keys, shares=on(*gpus), host=Host(version))
        assert found.edits.resources == expected
        assert found.warnings == []


def test_a_quota_goes_beside_it() -> None:
    found = decided({"cpu": {"shares": 0}}, {**BIND, "limits.cpus-per-gpu": "2"})
    assert found.edits.resources["cpu"] == {
        "cpus": "0-3,8-11",
        "mems": "0",
        "quota": 200_000,
        "period": 100_000,
    }


def test_the_key_outranks_the_configuration() -> None:
    assert decided({}, BIND, keys={"numa": "off"}).edits.resources == {}
    assert decided({}, BIND, keys={"numa": "prefer"}).edits.resources == {}


def test_only_what_is_online() -> None:
    found = decided({}, BIND, host=Host(processors=range(2, 10)))
    assert found.edits.resources["cpu"]["cpus"] == "2-3,8-9"


@pytest.mark.parametrize("keys", [{}, {"numa": "bind"}])
def test_nothing_left_is_an_error(keys: dict[str, str]) -> None:
    with pytest.raises(GpushimError) as error:
        decided({}, BIND, keys=keys, host=Host(processors=[4, 5]))
    source = "label gpushim.numa=bind" if keys else "limits.numa"
    assert error.value.sentence == (
        f"A binding to the GPUs' NUMA nodes was asked for by {source}, but no processor of the "
        "GPUs' NUMA nodes (0) is online for containers: they have processors 0-3,8-11, and here "
        "are processors 4-5 and the memory of nodes 0-1."
    )
    with pytest.raises(GpushimError, match="but no memory of the GPUs' NUMA nodes"):
        decided({}, BIND, keys=keys, host=Host(memory=[1]))


def test_a_node_without_processors() -> None:
    with pytest.raises(GpushimError, match="they have processors none"):
        decided({}, BIND, cpus={"0": "", "1": "0-7"})


@pytest.mark.parametrize("cpus", [{}, {"0": "0-15"}])
def test_a_machine_with_one_node_needs_no_binding(cpus: dict[str, str]) -> None:
    found = decided({}, {}, keys={"numa": "bind"}, cpus=cpus, shares=[(LOST, 1.0)])
    assert found.edits.resources == {}
    assert found.warnings == []


def test_a_gpu_whose_node_is_not_known() -> None:
    shares = [*on(0), (LOST, 1.0)]
    found = decided({}, BIND, shares=shares)
    assert found.edits.resources == {}
    assert found.warnings == [
        "limits.numa 'bind' is not applied: the NUMA node of GPU 7 is not known."
    ]
    with pytest.raises(GpushimError, match="the NUMA node of GPU 7 is not known"):
        decided({}, {}, keys={"numa": "bind"}, shares=shares)


def test_a_missing_controller_is_a_warning_or_an_error_where_it_was_asked_for() -> None:
    host = Host(controllers=[name for name in ALL if name != "cpuset"])
    found = decided({}, BIND, host=host)
    assert found.edits.resources == {}
    assert found.warnings == [
        "limits.numa 'bind' is not applied: the cgroup controller 'cpuset' is not available to "
        "containers on this host (cgroup version 2)."
    ]
    with pytest.raises(GpushimError, match=r"by label gpushim\.numa=bind, but the cgroup contr"):
        decided({}, {}, keys={"numa": "bind"}, host=host)


@pytest.mark.parametrize(
    ("resources", "warned"),
    [
        ({"cpu": {"cpus": "0-1"}}, False),
        ({"cpu": {"cpus": "0-1", "mems": "0"}}, False),
        ({"cpu": {"cpus": "0,4"}}, True),
        ({"cpu": {"mems": "0-1"}}, True),
        ({"cpu": {"cpus": "broken"}}, True),
        ({"unified": {"cpuset.cpus": "8"}}, False),
        ({"unified": {"cpuset.mems": "1"}}, True),
    ],
)
@pytest.mark.parametrize("keys", [{}, {"numa": "bind"}])
def test_the_users_cpuset_stays(
    resources: dict[str, Any], warned: bool, keys: dict[str, str]
) -> None:
    found = decided(resources, BIND, keys=keys)
    assert found.edits.resources == {}
    assert [text.partition(":")[0] for text in found.warnings] == (
        ["numa=bind is not applied"] if warned else []
    )


@pytest.mark.parametrize(
    ("gpus", "cpus", "modes", "policy"),
    [
        ([0], None, ["MPOL_PREFERRED"], {"mode": "MPOL_PREFERRED", "nodes": "0"}),
        ([2, 3], None, BOTH, {"mode": "MPOL_PREFERRED", "nodes": "1"}),
        ([0, 3], None, BOTH, None),
        ([0, 3], FOUR, BOTH, {"mode": "MPOL_PREFERRED_MANY", "nodes": "0-1"}),
        ([0, 3], FOUR, ["MPOL_PREFERRED"], None),
        ([0], None, ["MPOL_BIND"], None),
        ([0], None, [], None),
        ([0], {"0": "0-15"}, BOTH, None),
    ],
)
def test_prefer(gpus: list[int], cpus: Any, modes: list[str], policy: Any) -> None:
    found = decided({}, {"limits.numa": "prefer"}, cpus=cpus, modes=modes, shares=on(*gpus))
    assert found.edits.memory_policy == policy
    assert found.edits.resources == {}
    assert found.warnings == found.notes == []


def test_what_keeps_a_preference_away() -> None:
    def policy(present: Present | None = None, **options: Any) -> Any:
        keys = {"numa": "prefer"}
        return decided(
            {}, {}, keys=keys, modes=BOTH, present=present, **options
        ).edits.memory_policy

    own = Present({})
    own.memory_policy = True
    assert policy() is not None
    assert policy(own) is None
    assert policy(Present({"cpu": {"mems": "1"}})) is None
    assert policy(host=Host(memory=[1])) is None
    assert policy(shares=[(LOST, 1.0)]) is None


@pytest.mark.parametrize(
    ("features", "release", "modes"),
    [
        ({"linux": {"memoryPolicy": {"modes": BOTH}}}, "6.1.0-18-amd64", BOTH),
        ({"linux": {"memoryPolicy": {"modes": BOTH}}}, "5.15.0", BOTH),
        ({"linux": {"memoryPolicy": {"modes": BOTH}}}, "5.14.0-427.el9", BOTH[:1]),
        ({"linux": {"memoryPolicy": {"modes": BOTH}}}, "odd", BOTH[:1]),
        ({"linux": {"memoryPolicy": {"modes": [1, "MPOL_BIND"]}}}, "7-rc1", ["MPOL_BIND"]),
        ({"linux": {"memoryPolicy": {"modes": None}}}, "6.1", []),
        ({"linux": {"memoryPolicy": []}}, "6.1", []),
        ({"linux": {}}, "6.1", []),
        (None, "6.1", []),
    ],
)
def test_modes_that_runtime_and_kernel_know(features: Any, release: str, modes: list[str]) -> None:
    assert usable_modes(features, release) == modes
