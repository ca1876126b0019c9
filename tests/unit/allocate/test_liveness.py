"""Whether a container lives, on made-up processes and cgroups."""

from __future__ import annotations

import json
import os
import posix
import shutil
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate import cgroup_of, liveness
from gpushim.allocate.lease import Lease
from gpushim.allocate.liveness import Roots, is_running, lives
from hypothesis import given
from hypothesis import strategies as st

BOOT = "0b007"
ID = "c0ffee"
CREATOR, BEGAN = 100, 5000


class Kernel:
    """A proc and a cgroup mount, and a state root, to be filled by a test."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.cgroup, self.state = top / "proc", top / "cgroup", top / "state"
        self._monkeypatch = monkeypatch
        for directory in (self.proc / "self", self.cgroup, self.state):
            directory.mkdir(parents=True)
        boot = self.proc / "sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text(BOOT)
        (self.proc / "self/uid_map").write_text("         0          0 4294967295\n")
        self.process(1, 1)
        self.me(0)
        self.roots = Roots(str(self.proc), str(self.cgroup))

    def me(self, uid: int) -> None:
        self._monkeypatch.setattr(posix, "geteuid", lambda: uid)

    def process(
        self, pid: int, began: int, state: str = "S", uid: int = 0, threads: int = 1
    ) -> None:
        directory = self.proc / str(pid)
        directory.mkdir()
        fields = [state, *["0"] * 16, str(threads), "0", str(began), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} (a b) S) {' '.join(fields)}\n")
        (directory / "status").write_text(f"Name:\tx\nUid:\t{uid}\t0\t0\t0\nGid:\t0\t0\t0\t0\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def runc(self, pid: Any, began: Any, **more: Any) -> None:
        self._keep("state.json", init_process_pid=pid, init_process_start=began, **more)

    def crun(self, pid: Any, began: Any, **more: Any) -> None:
        self._keep("status", **{"pid": pid, "process-start-time": began, **more})

    def _keep(self, file: str, **data: Any) -> None:
        (self.state / ID).mkdir(exist_ok=True)
        (self.state / ID / file).write_text(json.dumps(data))

    def version_2(self) -> None:
        (self.cgroup / "cgroup.controllers").write_text("memory\n")

    def group(self, path: str, *pids: int) -> str:
        directory = self.cgroup / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return str(directory)

    def lease(self, cgroup: str = "", family: str = "runc", owner: int = 0) -> Lease:
        lease = Lease(ID, str(self.state), (CREATOR, BEGAN), [])
        lease.boot, lease.family, lease.cgroup, lease.owner = BOOT, family, cgroup, owner
        return lease

    def lives(self, *arguments: Any, **more: Any) -> bool:
        return lives(self.lease(*arguments, **more), self.roots)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("began", "state", "threads", "expected"),
    [
        (BEGAN, "S", 1, True),
        (BEGAN, "R", 1, True),
        (BEGAN, "D", 1, True),
        (BEGAN, "T", 1, True),
        (BEGAN + 1, "S", 1, False),  # another process has got the number
        (BEGAN, "Z", 1, False),
        (BEGAN, "X", 1, False),
        (BEGAN, "Z", 3, True),  # its first thread alone has ended
    ],
)
def test_the_creator(kernel: Kernel, began: int, state: str, threads: int, expected: bool) -> None:
    kernel.process(CREATOR, began, state, threads=threads)
    assert kernel.lives() is expected
    assert is_running(CREATOR, BEGAN, kernel.roots) is expected


def test_nothing_is_left(kernel: Kernel) -> None:
    assert not kernel.lives()
    assert not kernel.lives(cgroup=f"/docker/{ID}", family="crun")


def test_another_boot(kernel: Kernel) -> None:
    """B31: numbers of processes come again after a boot, and leases may have been kept."""
    kernel.process(CREATOR, BEGAN)
    lease = kernel.lease()
    lease.boot = "an-earlier-one"
    assert not lives(lease, kernel.roots)


@pytest.mark.parametrize("family", ["runc", "crun"])
@pytest.mark.parametrize(
    ("pid", "began", "expected"),
    [
        (200, 6000, True),
        (200, 6001, False),
        (201, 6000, False),
        (202, 6000, False),  # a zombie
        (0, 0, False),
        (-1, 6000, False),
        ("200", "6000", False),
        (None, None, False),
        (True, 1, False),
        ([], {}, False),
    ],
)
def test_the_init_in_the_state(
    kernel: Kernel, family: str, pid: Any, began: Any, expected: bool
) -> None:
    kernel.process(200, 6000)
    kernel.process(202, 6000, "Z")
    getattr(kernel, family)(pid, began)
    assert kernel.lives(family=family) is expected


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b'"x"', b'{"init_process_pid": 1}']
)
def test_a_state_file_that_is_none(kernel: Kernel, content: bytes) -> None:
    """Experiment 1: directories with whatever in them stay for ever."""
    kernel.runc(0, 0)
    (kernel.state / ID / "state.json").write_bytes(content)
    assert not kernel.lives()


def test_a_state_directory_alone(kernel: Kernel) -> None:
    """What a killed create, or a dockerd that ended during one, leaves."""
    (kernel.state / ID).mkdir()
    os.mkfifo(kernel.state / ID / "exec.fifo")
    assert not kernel.lives()
    os.mkfifo(kernel.state / ID / "state.json")
    assert not kernel.lives()


def test_an_id_that_is_no_file_name(kernel: Kernel) -> None:
    for odd in ("a\0b", "\ud800", "x" * 5000):
        lease = kernel.lease()
        lease.id = lease.state_root = odd
        lease.cgroup = "/" + odd
        (kernel.cgroup / "memory").mkdir(exist_ok=True)
        assert not lives(lease, kernel.roots)


@pytest.mark.parametrize("is_v2", [True, False])
@pytest.mark.parametrize(
    ("cgroup", "directory"),
    [
        (f"/docker/{ID}", f"docker/{ID}"),
        (f"/libpod_parent/libpod-{ID}", f"libpod_parent/libpod-{ID}/inner/more"),
        (f"system.slice:docker:{ID}", f"system.slice/docker-{ID}.scope"),
        (f":crio:{ID}", f"system.slice/crio-{ID}.scope/container"),
        (f"a-b.slice:cri-containerd:{ID}", f"a.slice/a-b.slice/cri-containerd-{ID}.scope"),
        (f"-.slice::{ID}", f"{ID}.scope"),
    ],
)
def test_processes_in_the_cgroup_of_the_spec(
    kernel: Kernel, is_v2: bool, cgroup: str, directory: str
) -> None:
    """A container that shares the host's processes outlives its init."""
    if is_v2:
        kernel.version_2()
    else:
        kernel.group("cpuset")
        directory = f"memory/{directory}"
    kernel.group(directory)
    assert not kernel.lives(cgroup=cgroup)
    kernel.group(directory, 300)
    assert not kernel.lives(cgroup=cgroup), "it has ended already"
    kernel.process(300, 10)
    assert kernel.lives(cgroup=cgroup)


def test_the_cgroup_in_runcs_state(kernel: Kernel) -> None:
    kernel.process(300, 6000)
    paths = {"": kernel.group(f"unified/x/{ID}"), "pids": kernel.group(f"pids/x/{ID}")}
    kernel.runc(0, 0, cgroup_paths=paths)
    assert not kernel.lives()
    kernel.group(f"pids/x/{ID}", 300)
    assert kernel.lives()
    for odd in ({"": 5}, {"": "/etc"}, {"": paths["pids"] + "/../../y"}, ["x"], 5):
        kernel.runc(0, 0, cgroup_paths=odd)
        assert not kernel.lives(), odd


def test_the_cgroup_in_cruns_state(kernel: Kernel) -> None:
    kernel.process(300, 6000)
    kernel.version_2()
    kernel.group(f"system.slice/libpod-{ID}.scope/container", 300)
    kernel.crun(0, 0, **{"cgroup-path": f"/system.slice/libpod-{ID}.scope/container"})
    assert kernel.lives(family="crun")
    # Without cgroups crun says "".
    kernel.crun(0, 0, **{"cgroup-path": ""})
    assert not kernel.lives(family="crun")


@pytest.mark.parametrize("path", ["/", "", "//", "/../..", "jobs", "./jobs", "a:b", "/jobs/x:y:z"])
def test_a_cgroup_that_tells_nothing(kernel: Kernel, path: str) -> None:
    kernel.version_2()
    kernel.process(300, 9000)
    (kernel.cgroup / "cgroup.procs").write_text("300\n")
    assert not kernel.lives(cgroup=path)


@pytest.mark.parametrize(("began", "expected"), [(BEGAN - 1, False), (BEGAN, True)])
def test_a_cgroup_of_another_name_may_be_shared(kernel: Kernel, began: int, expected: bool) -> None:
    """What was in it before the container is not the container's."""
    kernel.version_2()
    kernel.group("jobs", 300)
    kernel.process(300, began)
    assert kernel.lives(cgroup="/jobs") is expected


def test_many_cgroups_come_to_an_end(kernel: Kernel) -> None:
    kernel.version_2()
    for number in range(1200):
        (kernel.cgroup / f"docker/{ID}/{number}").mkdir(parents=True)
    assert not kernel.lives(cgroup=f"/docker/{ID}")


class TestOwner:
    """Root believes another user's lease only for that user's processes."""

    def test_creator(self, kernel: Kernel) -> None:
        kernel.process(CREATOR, BEGAN, uid=1000)
        assert kernel.lives(owner=1000)
        assert not kernel.lives(owner=1001)
        assert kernel.lives(owner=0)

    def test_init(self, kernel: Kernel) -> None:
        kernel.process(200, 6000, uid=0)
        kernel.runc(200, 6000)
        assert not kernel.lives(owner=1000)

    def test_cgroup(self, kernel: Kernel) -> None:
        kernel.version_2()
        kernel.process(300, 6000, uid=0)
        kernel.group(f"docker/{ID}", 300)
        assert not kernel.lives(cgroup=f"/docker/{ID}", owner=1000)
        kernel.process(301, 6000, uid=1000)
        kernel.group(f"docker/{ID}", 300, 301)
        assert kernel.lives(cgroup=f"/docker/{ID}", owner=1000)

    @pytest.mark.parametrize("uid", [0, 1001])
    def test_others_go_by_what_they_see(self, kernel: Kernel, uid: int) -> None:
        """Root of a user namespace is no other than a user."""
        (kernel.proc / "self/uid_map").write_text("0 1001 1\n")
        kernel.me(uid)
        kernel.process(CREATOR, BEGAN, uid=65534)
        assert kernel.lives(owner=1000)

    def test_a_users_unit_is_below_its_manager(self, kernel: Kernel) -> None:
        kernel.version_2()
        kernel.process(300, 6000, uid=1000)
        manager = "user.slice/user-1000.slice/user@1000.service"
        kernel.group(f"{manager}/user.slice/libpod-{ID}.scope", 300)
        assert kernel.lives(cgroup=f"user.slice:libpod:{ID}", owner=1000)
        assert not kernel.lives(cgroup=f"user.slice:libpod:{ID}")


class TestHidden:
    """A user can't see root's state, and maybe no process of others."""

    @pytest.fixture(autouse=True)
    def hide(self, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel.me(1000)
        kernel.version_2()

        def refuse(path: str, limit: int) -> bytes:
            raise PermissionError(13, path)

        monkeypatch.setattr(liveness, "read_small", refuse)

    def test_the_cgroup_tells(self, kernel: Kernel) -> None:
        kernel.process(300, 6000)
        kernel.group(f"docker/{ID}", 300)
        assert kernel.lives(cgroup=f"/docker/{ID}")
        kernel.group(f"docker/{ID}")
        assert not kernel.lives(cgroup=f"/docker/{ID}")

    def test_nothing_tells(self, kernel: Kernel) -> None:
        assert kernel.lives(), "it may live"
        assert kernel.lives(cgroup="jobs")

    def test_a_user_of_a_runtime_without_cgroups(self, kernel: Kernel) -> None:
        """Two users with rootless runtimes: it may be any process of neither root's nor mine."""
        kernel.process(200, BEGAN + 1, uid=1000)
        kernel.process(201, BEGAN + 1, uid=0)
        kernel.process(202, BEGAN - 1, uid=1001)
        cgroups = ("", f"/user.slice/{ID}", f"user.slice:libpod:{ID}")
        for cgroup in cgroups:
            assert not kernel.lives(cgroup=cgroup, owner=1001)
        for uid in (1001, 170005):
            kernel.process(uid, BEGAN + 1, uid=uid)
            for cgroup in cgroups:
                assert kernel.lives(cgroup=cgroup, owner=1001)
            kernel.end(uid)
        # Its cgroup tells, where it has one.
        kernel.process(300, BEGAN + 1, uid=1001)
        kernel.group(f"user.slice/{ID}")
        assert not kernel.lives(cgroup=cgroups[1], owner=1001)
        kernel.group(f"user.slice/{ID}", 300)
        assert kernel.lives(cgroup=cgroups[1], owner=1001)

    def test_processes_of_others_are_hidden(self, kernel: Kernel) -> None:
        (kernel.proc / "1/stat").unlink()
        assert kernel.lives(cgroup=f"/docker/{ID}")
        assert not kernel.lives(cgroup=f"/docker/{ID}", owner=1000)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("system.slice", "/system.slice"),
        ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"),
        ("-.slice", ""),
        ("", ""),
    ],
)
def test_slices(name: str, path: str) -> None:
    assert cgroup_of.slice_path(name) == path


@pytest.mark.parametrize(
    ("path", "id", "expected"),
    [
        ("/docker/abc", "abc", True),
        ("/system.slice/docker-abc.scope", "abc", True),
        ("/x/libpod-abc/container", "abc", True),
        ("/jobs/batch", "a", False),
        ("/jobs/xabc", "abc", False),
        ("/jobs/abc-1", "abc", False),
    ],
)
def test_names_of_containers(path: str, id: str, expected: bool) -> None:
    assert cgroup_of.has_name(path, id) is expected


@given(st.text(), st.integers(0, 2000))
def test_any_cgroup_path_is_understood_or_not(text: str, owner: int) -> None:
    assert all(path.startswith("/") for path in cgroup_of.paths_of(text, owner))
