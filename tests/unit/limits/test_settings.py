"""What the configuration says of limits."""

from __future__ import annotations

import pytest
from gpushim.config_keys import configured
from gpushim.limits.settings import settings_of


def test_nothing_is_set_by_default() -> None:
    for values in ({}, configured().values):
        found = settings_of(values)
        assert (found.cpus, found.memory, found.pids, found.shm) == (0, 0, 0, 0)
        assert (found.numa, found.privileged) == ("prefer", "warn")
        assert (found.unified, found.drop_capabilities) == ({}, [])
        assert found.no_new_privileges is False


def test_each_key() -> None:
    found = settings_of(
        {
            "limits.cpus-per-gpu": "7.5",
            "limits.memory-per-gpu": "64g",
            "limits.pids-per-gpu": 4096,
            "limits.shm-per-gpu": "8GiB",
            "limits.numa": "bind",
            "limits.unified": {"cpu.weight": 200, "memory.high": "100g"},
            "security.privileged": "refuse",
            "security.drop-capabilities": ["sys_ptrace", "CAP_MKNOD"],
            "security.no-new-privileges": True,
        }
    )
    assert (found.cpus, found.memory, found.pids, found.shm) == (7.5, 64 << 30, 4096, 8 << 30)
    assert (found.numa, found.privileged) == ("bind", "refuse")
    assert found.unified == {"cpu.weight": "200", "memory.high": "100g"}
    assert found.drop_capabilities == ["CAP_SYS_PTRACE", "CAP_MKNOD"]
    assert found.no_new_privileges is True


@pytest.mark.parametrize(
    "values", [{"limits.cpus-per-gpu": "many"}, {"limits.memory-per-gpu": "much"}]
)
def test_what_is_no_number(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        settings_of(values)
