"""What a cgroup allows and what is used of it: version 2 by files made here, 1 by the kernel's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpushim.observe.cgroups import MOUNT, Reading, of_process, read

V2 = {
    "memory.current": "1048576\n",
    "memory.max": "1073741824\n",
    "cpu.max": "150000 100000\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
    "pids.current": "3\n",
    "pids.max": "100\n",
    "cpuset.cpus.effective": "0-2,7\n",
    "cpuset.mems.effective": "1\n",
}


def unified(top: Path, files: dict[str, str]) -> Path:
    (top / "cgroup.controllers").write_text("memory\n")
    group = top / "docker" / "a"
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / name).write_text(text)
    return group


def test_version_2(tmp_path: Path) -> None:
    group = unified(tmp_path, V2)
    assert read([str(group)], str(tmp_path)).to_json() == {
        "memory": 1 << 20,
        "memory_limit": 1 << 30,
        "processors": 1.5,
        "cpu_seconds": 2.5,
        "pids": 3,
        "pids_limit": 100,
        "cpus": [0, 1, 2, 7],
        "memory_nodes": [1],
    }


NOTHING = Reading().to_json()


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"memory.max": "max\n", "cpu.max": "max 100000\n", "pids.max": "max\n"},
        {"memory.max": "", "cpu.max": "", "cpu.stat": "", "cpuset.cpus.effective": "\n"},
        {"memory.max": "much", "cpu.max": "1 0", "cpu.stat": "a b c", "cpuset.cpus.effective": "x"},
    ],
)
def test_no_limits_and_odd_files(tmp_path: Path, files: dict[str, str]) -> None:
    group = unified(tmp_path, files)
    assert read([str(group)], str(tmp_path)).to_json() == NOTHING


def test_a_group_that_is_gone(tmp_path: Path) -> None:
    unified(tmp_path, {})
    assert read([str(tmp_path / "gone")], str(tmp_path)).to_json() == NOTHING
    assert read([], str(tmp_path)).to_json() == NOTHING
    assert read([f"{MOUNT}/memory/gone"], MOUNT).to_json() == NOTHING


@pytest.mark.parametrize(
    ("text", "version", "directories"),
    [
        ("0::/docker/a\n", 2, ["/docker/a"]),
        ("4:memory:/x\n0::/docker/a\n", 2, ["/docker/a"]),
        ("0::/\n", 2, [""]),
        # B75: the group of a process outside this one's part of the hierarchy.
        ("0::/../docker-1.scope\n", 2, []),
        (
            "4:memory:/docker/a\n1:cpu,cpuacct:/docker/a\n1:name=systemd:/b\n0::/c\n",
            1,
            ["/memory/docker/a", "/cpu,cpuacct/docker/a"],
        ),
        ("", 1, []),
        ("4:memory\nbroken\n", 1, []),
    ],
)
def test_the_group_of_a_process(
    tmp_path: Path, text: str, version: int, directories: list[str]
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("")
    found = of_process(7, str(tmp_path), str(tmp_path))
    assert found == [f"{tmp_path}{path}" for path in directories]
    assert of_process(8, str(tmp_path), str(tmp_path)) == []


CONTROLLERS = ("memory", "cpu", "cpuacct", "cpuset", "pids")


@pytest.fixture
def groups() -> Iterator[dict[str, Path]]:
    """A group of version 1 in each hierarchy."""
    if os.geteuid() != 0 or not all(Path(MOUNT, name, "tasks").exists() for name in CONTROLLERS):
        pytest.skip("cgroup version 1 is not here, or not writable")
    name = f"gpushim-reading-{os.getpid()}"
    made = {each: Path(MOUNT, each, name) for each in CONTROLLERS}
    for path in made.values():
        path.mkdir()
    yield made
    for path in made.values():
        path.rmdir()


def test_version_1(groups: dict[str, Path]) -> None:
    for controller, name, value in (
        ("memory", "memory.limit_in_bytes", "67108864"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpuset", "cpuset.cpus", "0"),
        ("cpuset", "cpuset.mems", "0"),
        ("pids", "pids.max", "50"),
    ):
        (groups[controller] / name).write_text(value)
    sleeper = subprocess.Popen(["sleep", "100"])
    try:
        for path in groups.values():
            (path / "cgroup.procs").write_text(str(sleeper.pid))
        directories = of_process(sleeper.pid)
        assert set(map(str, groups.values())) <= set(directories)
        found = read(directories)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert (found.memory_limit, found.processors) == (64 << 20, 0.5)
    assert (found.pids, found.pids_limit) == (1, 50)
    assert (found.cpus, found.memory_nodes) == ([0], [0])
    assert found.memory is not None and found.memory < 64 << 20
    assert found.cpu_seconds is not None and found.cpu_seconds >= 0


def test_version_1_without_limits(groups: dict[str, Path]) -> None:
    found = read([str(path) for path in groups.values()])
    assert (found.memory_limit, found.processors, found.pids_limit) == (None, None, None)
    assert (found.memory, found.pids) == (0, 0)
