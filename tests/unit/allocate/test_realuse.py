"""What counts as really used, of made-up readings, leases and processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate import realuse
from gpushim.allocate.filter import RealUse
from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, SHARED, Booking, Lease
from gpushim.allocate.liveness import Roots
from gpushim.allocate.realuse import is_called_for, look, real_use, targets
from gpushim.allocate.wish import Wish
from gpushim.host.deviceuse import DeviceUse, Reading, now
from gpushim.oci.jsontext import dumps
from gpushim.places import Places
from gpushim.request.request import Request
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocate.machines import machine

GIB, MIB = 1 << 30, 1 << 20
A, B = "a" * 64, "b" * 64
GPU, OTHER = "GPU-1", "GPU-2"
HZ = os.sysconf("SC_CLK_TCK")
STAMP = 100.0


class Kernel:
    """proc and cgroups with no process but init, in the first PID namespace."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.proc = top / "proc"
        self.roots = Roots(str(self.proc), str(top / "cgroup"))
        (top / "cgroup").mkdir()
        self.process(1, "init")
        self.namespace("self", "pid:[4026531836]")

    def process(
        self, pid: int, name: str = "python", cgroup: str = "/", began: float = 1.0,
        state: str = "S", threads: int = 1,
    ) -> None:  # fmt: skip
        directory = self.proc / str(pid)
        directory.mkdir(parents=True)
        fields = [state, *["0"] * 16, str(threads), "0", str(int(began * HZ)), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (directory / "cgroup").write_text(f"0::{cgroup}\n")

    def namespace(self, pid: int | str, name: str) -> None:
        (self.proc / str(pid) / "ns").mkdir(parents=True)
        (self.proc / str(pid) / "ns/pid").symlink_to(name)

    def use(self, leases: list[Lease], *processes: Any, **more: Any) -> RealUse:
        return real_use(reading(*processes, **more), leases, self.roots)[GPU]


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def reading(*processes: Any, **more: Any) -> Reading:
    made = Reading(STAMP)
    use = made.devices[GPU] = DeviceUse()
    use.total, use.reserved = 80 * GIB, GIB
    use.processes = list(processes)
    use.used = sum(memory or 0 for _, memory, _ in processes)
    for name, value in more.items():
        setattr(use, name, value)
    return made


def lease(id: str, mode: str = EXCLUSIVE, memory: int = 0, gpu: str = GPU, **more: Any) -> Lease:
    made = Lease(id, more.pop("state_root", "/nowhere"), (50, 20), [Booking(gpu, mode, memory)])
    made.family = "runc"
    for name, value in more.items():
        setattr(made, name, value)
    return made


def docker(id: str) -> str:
    return f"/system.slice/docker-{id}.scope"


PYTHON = (100, "python", 4 * GIB)


@pytest.mark.parametrize(
    ("leases", "expected"),
    [
        ([], (4 * GIB, [PYTHON])),
        ([lease(A)], (0, [])),
        ([lease(A, SHARED, 8 * GIB)], (0, [])),
        ([lease(A, SHARED)], (4 * GIB, [])),
        ([lease(A, OPEN)], (4 * GIB, [PYTHON])),
        ([lease(A, ALL)], (4 * GIB, [PYTHON])),
        ([lease(B)], (4 * GIB, [PYTHON])),
        ([lease(A, gpu=OTHER)], (4 * GIB, [PYTHON])),
        ([lease(B, SHARED, GIB), lease(A, SHARED, GIB)], (0, [])),
    ],
)
def test_whose_process_it_is(
    kernel: Kernel, leases: list[Lease], expected: tuple[int, list[Any]]
) -> None:
    kernel.process(100, cgroup=docker(A))
    found = kernel.use(leases, (100, 4 * GIB, "c"), busy=30)
    assert (found.memory, list(found.processes), found.busy) == (*expected, 30)


@pytest.mark.parametrize(
    ("cgroup", "own", "expected"),
    [
        ("/docker/web/sub", {}, True),
        # cgroupsPath, where the name is another
        ("/jobs/7", {"cgroup": "/jobs/7"}, True),
        ("/jobs/7/inner", {"cgroup": "/jobs/7"}, True),
        ("/jobs/77", {"cgroup": "/jobs/7"}, False),
        ("/a.slice/a-b.slice/job-7.scope", {"cgroup": "a-b.slice:job:7"}, True),
        ("/jobs", {"cgroup": "/"}, False),
        # of the runtime's state, which knows best
        ("/made/by/runc", {"cgroup": "/jobs/7", "state": "/made/by/runc"}, True),
        ("/jobs/7", {"cgroup": "/jobs/7", "state": "/made/by/runc"}, False),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_containers_without_their_name_in_the_cgroup(
    kernel: Kernel, cgroup: str, own: dict[str, str], expected: bool, version: int
) -> None:
    kernel.process(100, cgroup=cgroup)
    mount = Path(kernel.roots.cgroup)
    if version == 2:
        (mount / "cgroup.controllers").write_text("memory\n")
    else:
        (mount / "memory").mkdir()
        mount /= "memory"
    mine = lease("web", cgroup=own.get("cgroup", ""), state_root=str(kernel.top))
    if "state" in own:
        keep_state(kernel, cgroup_paths={"memory": f"{mount}{own['state']}"})
    assert (kernel.use([mine], (100, GIB, "c")).memory == 0) is expected


def keep_state(kernel: Kernel, **state: Any) -> None:
    (kernel.top / "web").mkdir()
    (kernel.top / "web/state.json").write_text(json.dumps(state))


def test_what_was_in_a_cgroup_before_the_container(kernel: Kernel) -> None:
    """A container may share its cgroup with the session that started it."""
    (Path(kernel.roots.cgroup) / "cgroup.controllers").write_text("memory\n")
    kernel.process(100, "before", "/user.slice", began=1)
    kernel.process(101, "after", "/user.slice", began=3)
    mine = lease("web", cgroup="/user.slice", creator=(50, 2 * HZ))
    found = kernel.use([mine], (100, GIB, "c"), (101, GIB, "c"))
    assert [name for _, name, _ in found.processes] == ["before"]


@pytest.mark.parametrize(
    ("namespaces", "expected"),
    [
        ({200: "pid:[5]", 100: "pid:[5]"}, True),
        ({200: "pid:[5]", 100: "pid:[6]"}, False),
        ({200: "pid:[4026531836]", 100: "pid:[4026531836]"}, False),  # the host's
        ({}, False),
    ],
)
def test_containers_without_a_cgroup(
    kernel: Kernel, namespaces: dict[int, str], expected: bool
) -> None:
    """As rootless ones on version 1, and crun's with its cgroup manager disabled."""
    kernel.process(100, cgroup="/")
    kernel.process(200, cgroup="/")
    for pid, name in namespaces.items():
        kernel.namespace(pid, name)
    keep_state(kernel, init_process_pid=200, init_process_start=1)
    mine = lease("web", state_root=str(kernel.top))
    assert (kernel.use([mine], (100, GIB, "c")).memory == 0) is expected


def test_nested_containers(kernel: Kernel) -> None:
    """B76: the one that has the lease counts, whether it is the outer or the inner one."""
    kernel.process(100, cgroup=f"{docker(A)}/docker/{B}")
    for holder in (A, B):
        assert kernel.use([lease(holder)], (100, GIB, "c")).memory == 0


@pytest.mark.parametrize(
    ("change", "is_there"),
    [
        ({}, True),
        ({"state": "Z"}, False),
        ({"state": "Z", "threads": 2}, True),
        ({"began": STAMP + 1}, False),  # it only has the number of one that has ended
        ({"began": STAMP - 1}, True),
    ],
)
def test_processes_that_end_meanwhile(
    kernel: Kernel, change: dict[str, Any], is_there: bool
) -> None:
    """B77."""
    kernel.process(100, **change)
    found = kernel.use([], (100, 4 * GIB, "c"))
    assert (found.memory, len(found.processes)) == ((4 * GIB, 1) if is_there else (0, 0))


def test_a_process_that_has_gone_is_no_use(kernel: Kernel) -> None:
    """B77: a moment ago it had memory, which is free by now."""
    assert kernel.use([], (100, 4 * GIB, "c")).memory == 0
    assert kernel.use([], (100, None, "c"), used=4 * GIB).memory == 0


@pytest.mark.parametrize("how", ["namespace", "hidden"])
def test_processes_that_can_not_be_seen(kernel: Kernel, how: str) -> None:
    """B77: in a PID namespace of its own gpushim sees none of those that NVML numbers."""
    if how == "namespace":
        (kernel.proc / "self/ns/pid").unlink()
        (kernel.proc / "self/ns/pid").symlink_to("pid:[4026532000]")
    else:
        (kernel.proc / "1/stat").unlink()
    found = kernel.use([], (100, 4 * GIB, "c"))
    assert (found.memory, list(found.processes)) == (4 * GIB, [(100, "", 4 * GIB)])


@pytest.mark.parametrize(
    ("kinds", "memory", "display", "name", "counts"),
    [
        ("g", 300 * MIB, True, "Xorg", False),
        ("g", 4 * MIB, False, "Xorg", False),
        ("g", 6 * GIB, False, "blender", True),
        ("g", None, False, "blender", True),
        ("g", None, True, "Xorg", False),
        ("cg", 4 * MIB, True, "blender", True),
        ("c", 4 * MIB, True, "python", True),
        ("c", 30 * MIB, False, "nvidia-cuda-mps", False),
        ("m", 30 * MIB, False, "python", True),
    ],
)
def test_displays_and_servers(
    kernel: Kernel, kinds: str, memory: int | None, display: bool, name: str, counts: bool
) -> None:
    """A desktop's own processes leave its GPU free; one that draws for somebody else does not."""
    kernel.process(100, name)
    found = kernel.use([], (100, memory, kinds), display=display)
    assert bool(found.processes) is counts
    assert (found.memory > 0) is (counts and memory is not None)


@pytest.mark.parametrize(
    ("leases", "processes", "used", "reserved", "expected"),
    [
        ([], [], 0, GIB, 0),
        ([], [], 300 * MIB, GIB, 0),  # what the driver loses track of
        ([], [], 5 * GIB, GIB, 5 * GIB),
        ([], [], 700 * MIB, None, 0),  # the driver's own share may be in it
        ([], [], 5 * GIB, None, 5 * GIB),
        ([lease(A)], [], 5 * GIB, GIB, 0),  # it may be the holder's
        ([], [(100, GIB, "c")], 5 * GIB, GIB, 5 * GIB),
        ([], [(100, None, "c")], 5 * GIB, GIB, 5 * GIB),
        ([lease(A)], [(100, None, "c")], 5 * GIB, GIB, 5 * GIB),
        ([lease(A)], [(101, None, "c")], 5 * GIB, GIB, 0),
        ([lease(A)], [(100, GIB, "c"), (101, 2 * GIB, "c")], 5 * GIB, GIB, GIB),
    ],
)
def test_memory_that_no_process_is_told_to_hold(
    kernel: Kernel,
    leases: list[Lease],
    processes: list[Any],
    used: int,
    reserved: int | None,
    expected: int,
) -> None:
    kernel.process(100)
    kernel.process(101, cgroup=docker(A))
    found = kernel.use(leases, *processes, used=used, reserved=reserved)
    assert found.memory == expected


@pytest.mark.parametrize(("leases", "expected"), [([], 5 * GIB), ([lease(A)], 0)])
def test_a_list_that_can_not_be_believed(
    kernel: Kernel, leases: list[Lease], expected: int
) -> None:
    """B78: nobody is named, and the memory counts where it can't be a holder's."""
    found = kernel.use(leases, processes=None, used=5 * GIB)
    assert (found.memory, list(found.processes)) == (expected, [])


@given(
    st.lists(st.tuples(st.integers(1, 5), st.none() | st.integers(0, 80 * GIB), st.just("c"))),
    st.integers(0, 80 * GIB),
    st.lists(st.sampled_from([EXCLUSIVE, SHARED, OPEN, ALL]), max_size=3),
)
def test_never_more_than_there_is(processes: list[Any], used: int, modes: list[str]) -> None:
    """What counts as taken is no more than what is in use or what processes are told to hold."""
    leases = [lease(A, mode) for mode in modes]
    found = real_use(reading(*processes, used=used), leases, Roots("/nowhere", "/nowhere"))[GPU]
    told = sum(memory or 0 for _, memory, _ in processes)
    assert 0 <= found.memory <= max(used, told)


def wish(mode: str, count: int | None) -> Wish:
    return Wish(Request([], [], {}), count, mode)


@pytest.mark.parametrize(
    ("setting", "mode", "count", "expected"),
    [
        ("auto", EXCLUSIVE, 1, True),
        ("auto", EXCLUSIVE, 7, True),
        ("auto", EXCLUSIVE, 8, False),  # there is no choice
        ("auto", SHARED, 1, True),
        ("auto", EXCLUSIVE, None, False),
        ("auto", OPEN, None, False),
        ("auto", ALL, None, False),
        ("always", EXCLUSIVE, 8, True),
        ("always", EXCLUSIVE, None, True),
        ("always", OPEN, None, False),
        ("always", ALL, None, False),
        ("never", EXCLUSIVE, 1, False),
    ],
)
def test_when_the_driver_is_asked(
    setting: str, mode: str, count: int | None, expected: bool
) -> None:
    assert is_called_for(setting, wish(mode, count), machine("dgx_a100").gpus) is expected


def test_what_is_asked_about() -> None:
    """MIG devices in place of their GPU, and nothing that is ill."""
    gpus = machine("mig_host").gpus
    whole = gpus[2]
    parts = [(mig.uuid, "") for gpu in gpus[:2] for mig in gpu.mig_devices]
    assert targets(gpus) == [*parts, (whole.uuid, whole.bus_id)]
    whole.health = "NVML says: GPU is lost"
    assert targets(gpus) == parts


def test_the_exporter_is_asked_before_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, gpus = Places(str(tmp_path)), machine("workstation").gpus
    asked: list[Any] = []
    answer = Reading(0.0)

    def read(*how: Any) -> Reading:
        asked.append(how)
        return answer

    monkeypatch.setattr("gpushim.host.nvml_quick.read", read)
    assert look(places, "/lib", gpus, 0.5) is answer
    assert asked == [("/lib", [(gpus[0].uuid, gpus[0].bus_id)], 0.5)]
    kept = Reading(now())
    kept.devices[gpus[0].uuid] = DeviceUse()
    Path(places.run).mkdir(parents=True)
    Path(places.use).write_text(dumps(kept.to_json()))
    found = look(places, "/lib", gpus, 0.5)
    assert (found.stamp, found.problems, len(asked)) == (kept.stamp, [], 1)


def test_without_the_library(tmp_path: Path) -> None:
    found = look(Places(str(tmp_path)), "", machine("workstation").gpus, 0.5)
    assert found.devices == {}
    assert "not installed" in found.problems[0]
    assert realuse.real_use(found, []) == {}
