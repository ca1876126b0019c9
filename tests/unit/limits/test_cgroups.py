"""What is read of a host's cgroups: of both versions, made of files here, and the one at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpushim.limits.cgroups import Cgroups

FILES = dict[str, str | None]


def tree(top: Path, files: FILES) -> Path:
    """Files with these texts; a directory where the text is None."""
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_text(text)
    return top


V1: FILES = {
    "cpu/cgroup.procs": "",
    "cpu/cpu.cfs_quota_us": "-1\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "cpu/docker/cpu.cfs_quota_us": "-1\n",
    "cpu/docker/cpu.cfs_period_us": "100000\n",
    "cpu/kubepods/cpu.cfs_quota_us": "800000\n",
    "cpu/kubepods/cpu.cfs_period_us": "100000\n",
    "cpu/kubepods/pod1/cpu.cfs_quota_us": "100000\n",
    "cpu/kubepods/pod1/cpu.cfs_period_us": "50000\n",
    "cpuset/cgroup.procs": "",
    "cpuset/cpuset.cpus": "0-7\n",
    "cpuset/cpuset.mems": "0-1\n",
    "cpuset/docker/cpuset.cpus": "\n",
    "cpuset/docker/cpuset.mems": "\n",
    "cpuset/machine.slice/cpuset.cpus": "2-3\n",
    "cpuset/machine.slice/cpuset.mems": "1\n",
    "memory/cgroup.procs": "",
    "memory/docker/memory.limit_in_bytes": "",
    "blkio/cgroup.procs": "",
    "blkio/docker/blkio.bfq.weight": "",
    "unified/cgroup.controllers": "",
}
V2: FILES = {
    "cgroup.controllers": "cpuset cpu io memory pids\n",
    "cgroup.subtree_control": "memory pids\n",
    "cpuset.cpus.effective": "0-7\n",
    "cpuset.mems.effective": "0-1\n",
    "memory.stat": "",
    "system.slice/memory.high": "",
    "system.slice/memory.swap.max": "",
    "system.slice/cpuset.cpus.effective": "0-3\n",
    "system.slice/cpuset.mems.effective": "0\n",
}


def test_version_1(tmp_path: Path) -> None:
    host = Cgroups("/docker/a", str(tree(tmp_path, V1)))
    assert host.version == 1
    assert [name for name in ("cpu", "cpuset", "io", "memory", "pids") if host.has(name)] == [
        "cpu",
        "cpuset",
        "io",
        "memory",
    ]
    assert host.processors() == set(range(8))
    assert host.memory_nodes() == {0, 1}
    assert host.processors_allowed() == 0.0
    assert host.has_file("blkio.bfq.weight") and not host.has_file("blkio.weight")
    assert not host.has_file("memory.memsw.limit_in_bytes")
    assert host.has_file("pids.max"), "nobody can tell"


@pytest.mark.parametrize(
    ("cgroup", "processors", "nodes", "allowed"),
    [
        ("machine.slice:libpod:a", {2, 3}, {1}, 0.0),
        ("/machine.slice/libpod-a.scope", {2, 3}, {1}, 0.0),
        ("/kubepods/pod1/a", set(range(8)), {0, 1}, 2.0),
        ("/kubepods/pod2/a", set(range(8)), {0, 1}, 8.0),
        ("/kubepods", set(range(8)), {0, 1}, 0.0),
        ("relative", set(range(8)), {0, 1}, 0.0),
        ("", set(range(8)), {0, 1}, 0.0),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="a user's units are elsewhere")
def test_the_groups_above_in_version_1(
    tmp_path: Path, cgroup: str, processors: set[int], nodes: set[int], allowed: float
) -> None:
    host = Cgroups(cgroup, str(tree(tmp_path, V1)))
    assert host.processors() == processors
    assert host.memory_nodes() == nodes
    assert host.processors_allowed() == allowed


@pytest.mark.skipif(os.geteuid() != 0, reason="a user's units are elsewhere")
def test_version_2(tmp_path: Path) -> None:
    top = str(tree(tmp_path, V2))
    host = Cgroups("system.slice:docker:a", top)
    assert host.version == 2
    assert all(host.has(name) for name in ("cpuset", "cpu", "io", "memory", "pids"))
    assert not host.has("hugetlb")
    assert host.processors() == {0, 1, 2, 3}
    assert host.memory_nodes() == {0}
    assert Cgroups("/docker/a", top).processors() == set(range(8))
    assert host.processors_allowed() == 0.0
    assert host.has_file("memory.high") and not host.has_file("memory.zswap.max")
    assert host.has_file("io.weight"), "no group has the controller yet"


def test_without_any(tmp_path: Path) -> None:
    system = tree(tmp_path, {"s/cpu/online": "0-1\n", "s/node/has_memory": "0\n"}) / "s"
    host = Cgroups("/docker/a", str(tmp_path / "none"), str(system))
    assert host.version == 1
    assert not any(host.has(name) for name in ("cpu", "cpuset", "io", "memory", "pids"))
    assert host.processors() == {0, 1}
    assert host.memory_nodes() == {0}
    assert host.processors_allowed() == 0.0


def test_what_cannot_be_read_is_no_processor(tmp_path: Path) -> None:
    files: FILES = {"cpuset/cpuset.cpus": "0-x", "cpuset/cpuset.mems": ""}
    host = Cgroups("/a", str(tree(tmp_path, files)), str(tmp_path))
    assert host.processors() == host.memory_nodes() == set()


def test_a_user_of_version_2_has_what_was_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rootless engines: the group of the user's own manager and below."""
    top = tree(
        tmp_path,
        {
            "cgroup.controllers": "cpuset cpu io memory pids\n",
            "cgroup.subtree_control": "",
            "user.slice/cgroup.controllers": "cpu memory pids\n",
            "user.slice/cgroup.subtree_control": "",
            "user.slice/u/cgroup.controllers": "memory pids\n",
            "user.slice/u/cgroup.subtree_control": "",
            "user.slice/u/app/cgroup.controllers": "",
            "user.slice/u/app/cgroup.subtree_control": "",
        },
    )
    writable = [f"{top}/user.slice/u/{place}cgroup.subtree_control" for place in ("", "app/")]
    monkeypatch.setattr("gpushim.limits.cgroups.posix.access", lambda path, mode: path in writable)
    monkeypatch.setattr("gpushim.limits.cgroups._own_group", lambda: "/user.slice/u/app")
    host = Cgroups("user.slice:libpod:a", str(top))
    assert host.has("memory") and host.has("pids")
    assert not host.has("cpu") and not host.has("cpuset")
    monkeypatch.setattr("gpushim.limits.cgroups._own_group", lambda: "/user.slice")
    assert not Cgroups("user.slice:libpod:a", str(top)).has("memory")


def test_the_host_at_hand() -> None:
    host = Cgroups("/gpushim-test/none")
    assert host.version in (1, 2)
    assert host.processors() <= set(range(os.cpu_count() or 1))
    assert host.processors()
    assert host.memory_nodes()
