"""What explain has of a container's cgroup: found by the runtime's state, told in words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gpushim.admin.explain_cgroup import lines, reading
from gpushim.allocate.liveness import Roots
from gpushim.observe.cgroups import Reading, of_process, read


def with_state(root: Path, state: dict[str, Any], file: str = "state.json") -> dict[str, Any]:
    """A decision record of a container whose low-level runtime has this state."""
    (root / "a").mkdir()
    (root / "a" / file).write_text(json.dumps(state))
    return {"id": "a", "state_root": str(root)}


def test_the_group_that_the_runtime_names(tmp_path: Path) -> None:
    own = of_process(os.getpid())
    found = reading(with_state(tmp_path, {"cgroup_paths": dict(enumerate(own))}), None)
    assert found is not None
    assert set(found) == set(Reading.__slots__)
    # Others work on this machine: what is used changes, what is allowed does not.
    for limit in ("memory_limit", "processors", "pids_limit"):
        assert found[limit] == getattr(read(own), limit)


@pytest.mark.parametrize("spec", [None, [], {"linux": None}, {"linux": {"cgroupsPath": 3}}])
def test_nothing_is_known(tmp_path: Path, spec: Any) -> None:
    assert reading({"id": None, "bundle": "/b"}, spec) is None
    assert reading({"id": "a", "sentence": "No.", "refused": 1.0}, spec) is None
    assert reading({"id": "a", "state_root": str(tmp_path)}, spec) is None
    gone = {"cgroup_paths": {"memory": "/sys/fs/cgroup/memory/gone"}}
    assert reading(with_state(tmp_path, gone), spec) is None


@pytest.mark.parametrize(
    ("file", "state", "path"),
    [
        ("status", {"pid": 1, "cgroup-path": "/machine/libpod-a"}, "/elsewhere"),
        ("status", {"pid": 1}, "/machine/libpod-a"),
        ("state.json", {}, "/machine/libpod-a"),
    ],
)
def test_the_group_by_its_path(tmp_path: Path, file: str, state: dict[str, Any], path: str) -> None:
    """crun's state has a path, and where a state has none, the spec's is the one."""
    group = tmp_path / "cgroup/machine/libpod-a"
    group.mkdir(parents=True)
    (tmp_path / "cgroup/cgroup.controllers").write_text("pids\n")
    (group / "pids.current").write_text("5\n")
    record = with_state(tmp_path, state, file)
    roots = Roots(cgroup=str(tmp_path / "cgroup"))
    found = reading(record, {"linux": {"cgroupsPath": path}}, roots)
    assert found is not None and found["pids"] == 5


def told(**values: Any) -> list[str]:
    found = Reading()
    for name, value in values.items():
        setattr(found, name, value)
    return lines(found.to_json())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, []),
        ({"memory": 3 << 20, "memory_limit": 2 << 30}, ["memory: 3 MiB of 2 GiB"]),
        ({"memory": 3 << 20}, ["memory: 3 MiB, no limit"]),
        (
            {"cpu_seconds": 2.04, "processors": 0.5},
            ["processor time: 0.5 at once, 2.0 s used"],
        ),
        ({"cpu_seconds": 2.04}, ["processor time: no limit, 2.0 s used"]),
        ({"pids": 3, "pids_limit": 32}, ["processes and threads: 3 of 32"]),
        ({"pids": 3}, ["processes and threads: 3, no limit"]),
        (
            {"cpus": [0, 1, 2, 7], "memory_nodes": [1]},
            ["processors: 0-2,7", "memory of nodes: 1"],
        ),
    ],
)
def test_in_words(values: dict[str, Any], words: list[str]) -> None:
    assert told(**values) == words
