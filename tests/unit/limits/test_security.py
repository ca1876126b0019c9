"""What the configuration demands of every container with GPUs."""

from __future__ import annotations

import pytest
from gpushim.errors import GpushimError
from gpushim.limits.present import Present
from gpushim.limits.wanted import wanted

from tests.unit.limits.deciding import decided


def privileged() -> Present:
    found = Present({})
    found.privileged = True
    return found


def test_nothing_by_default() -> None:
    found = decided(present=privileged())
    assert found.edits.drop_capabilities == []
    assert found.edits.no_new_privileges is False
    assert found.warnings == found.notes == []


def test_privileges_are_taken() -> None:
    values = {"security.drop-capabilities": ["SYS_PTRACE"], "security.no-new-privileges": True}
    found = decided(values=values)
    assert found.edits.drop_capabilities == ["CAP_SYS_PTRACE"]
    assert found.edits.no_new_privileges is True
    without = decided(values=values, shares=[])
    assert without.edits.drop_capabilities == []


def test_privileged_containers_can_be_refused() -> None:
    values = {"security.privileged": "refuse"}
    assert decided(values=values).edits.resources == {}
    with pytest.raises(GpushimError, match="by a privileged container") as error:
        decided(values=values, present=privileged())
    assert "permission denied" not in str(error.value)


TWO = {"0": "0-3", "1": "4-7"}
ONE = {"0": "0-7"}


@pytest.mark.parametrize(
    ("values", "keys", "cpus", "modes", "answer"),
    [
        ({}, {}, TWO, ["MPOL_PREFERRED"], False),
        ({"limits.numa": "prefer"}, {}, TWO, ["MPOL_PREFERRED"], True),
        ({"limits.numa": "prefer"}, {}, ONE, ["MPOL_PREFERRED"], False),
        ({"limits.numa": "prefer"}, {}, TWO, [], False),
        ({"limits.numa": "prefer"}, {"numa": "off"}, TWO, ["MPOL_PREFERRED"], False),
        ({"limits.numa": "bind"}, {}, TWO, [], True),
        ({"limits.numa": "bind"}, {}, ONE, [], False),
        ({"limits.numa": "prefer"}, {"numa": "bind"}, TWO, [], True),
        ({"limits.cpus-per-gpu": "8"}, {}, ONE, [], True),
        ({"limits.memory-per-gpu": "8g"}, {}, ONE, [], True),
        ({"limits.pids-per-gpu": "8"}, {}, ONE, [], True),
        ({"limits.shm-per-gpu": "8g"}, {}, ONE, [], True),
        ({"limits.unified": {"cpu.weight": "1"}}, {}, ONE, [], True),
        ({"limits.unified": {}, "limits.cpus-per-gpu": ""}, {}, ONE, [], False),
        ({"security.drop-capabilities": ["X"]}, {}, ONE, [], True),
        ({"security.drop-capabilities": []}, {}, ONE, [], False),
        ({"security.no-new-privileges": True}, {}, ONE, [], True),
        ({"security.privileged": "warn"}, {}, ONE, [], False),
        ({"security.privileged": "refuse"}, {}, ONE, [], True),
    ],
)
def test_whether_limits_need_a_thought(
    values: dict[str, object],
    keys: dict[str, str],
    cpus: dict[str, str],
    modes: list[str],
    answer: bool,
) -> None:
    assert wanted(values, keys, cpus, modes) is answer
