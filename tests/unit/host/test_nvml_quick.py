"""The reader of real use that a create can afford: what it tells, and what no fault does to it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from gpushim.host import deviceuse, nvml_calls, nvml_quick
from gpushim.host.deviceuse import DeviceUse, Reading, recent
from gpushim.oci.jsontext import dumps
from gpushim.places import Places

from tests.fakehost import Description, FakeHost, GpuSpec, build, preset

GIB = 1 << 30
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")


def targets(host: FakeHost) -> list[tuple[str, str]]:
    whole = [(gpu.uuid, gpu.bus) for gpu in host.gpus if gpu.mig_layout is None]
    return whole + [(part.uuid, "") for gpu in host.gpus for part in gpu.mig]


def children() -> set[str]:
    """This process's children; tests before may have left some of their own running."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in _born_of(task)}


def _born_of(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except OSError:  # a thread that has ended
        return []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nvml_calls.Memory, pynvml.c_nvmlMemory_t),
        (nvml_calls.MemoryV2, pynvml.c_nvmlMemory_v2_t),
        (nvml_calls.ProcessInfo, pynvml.c_nvmlProcessInfo_v2_t),
        (nvml_calls.ProcessInfo, pynvml.c_nvmlProcessInfo_v3_t),
        (nvml_calls.Utilization, pynvml.c_nvmlUtilization_t),
    ],
)
def test_structures_are_those_of_the_binding(ours: type, theirs: type) -> None:
    def layout(structure: type) -> list[tuple[int, int]]:
        names = [field[0] for field in structure._fields_]  # type: ignore[attr-defined]
        return [(getattr(structure, n).offset, getattr(structure, n).size) for n in names]

    assert layout(ours) == layout(theirs)
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)


def test_values_are_those_of_the_binding() -> None:
    assert pynvml.nvmlMemory_v2 == nvml_calls.MEMORY_V2
    assert pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value == nvml_calls._NOT_AVAILABLE
    assert list(nvml_calls._TROUBLE) == [
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
    ]
    assert pynvml.NVML_ERROR_INSUFFICIENT_SIZE == nvml_calls._INSUFFICIENT_SIZE
    for _, name in nvml_calls._LISTS:
        assert hasattr(pynvml, name)


@as_root
def test_all_that_is_told(tmp_path: Path) -> None:
    host = build(tmp_path / "host", preset("mig_host"))
    gpu = host.gpus[2]
    part = host.gpus[0].mig[1]
    host.set_memory_used(2, 7 * GIB)
    host.set_memory_used(0, 3 * GIB, part.uuid)
    host.set_utilization(2, 43)
    host.set_processes(2, [(100, 4 * GIB), (101, GIB)])
    host.set_processes(2, [(101, GIB), (102, 5 << 20)], "g")
    host.set_processes(2, [(103, 2 * GIB)], "m")
    host.set_processes(0, [(104, 3 * GIB)], mig=part.uuid)
    before = deviceuse.now()
    found = nvml_quick.read(str(host.nvml), targets(host))
    assert (found.problems, found.silent) == ([], [])
    assert before <= found.stamp <= deviceuse.now()
    whole = found.devices[gpu.uuid]
    assert (whole.total, whole.reserved, whole.used) == (gpu.memory, gpu.reserved, 7 * GIB)
    assert (whole.busy, whole.display, whole.trouble) == (43, False, "")
    assert whole.processes == [
        (100, 4 * GIB, "c"),
        (101, GIB, "cg"),
        (102, 5 << 20, "g"),
        (103, 2 * GIB, "m"),
    ]
    instance = found.devices[part.uuid]
    assert (instance.used, instance.busy) == (3 * GIB, None)
    assert instance.processes == [(104, 3 * GIB, "c")]
    assert found.devices[host.gpus[0].mig[0].uuid].processes == []
    assert found.reserve() == gpu.reserved


@as_root
@pytest.mark.parametrize("driver", ["470.256.02", "550.163.01", "615.10"])
def test_drivers_of_all_ages(tmp_path: Path, driver: str) -> None:
    """Those before 510 have neither what tells the driver's own memory nor the latest lists."""
    host = build(tmp_path / "host", Description(driver=driver))
    host.set_memory_used(0, GIB)
    host.set_processes(0, [(100, GIB)])
    use = nvml_quick.read(str(host.nvml), targets(host)).devices[host.gpus[0].uuid]
    assert use.processes == [(100, GIB, "c")]
    assert (use.reserved is None) == (driver < "510")


@as_root
def test_a_lost_gpu_is_told_apart(tmp_path: Path) -> None:
    host = build(tmp_path / "host", Description(gpus=[GpuSpec(), GpuSpec(), GpuSpec(broken=True)]))
    host.set_lost(1)
    found = nvml_quick.read(str(host.nvml), targets(host))
    uuids = [gpu.uuid for gpu in host.gpus]
    assert [found.devices[uuid].trouble for uuid in uuids[:2]] == ["", "lost"]
    assert found.silent == [uuids[2]]
    assert uuids[2] in found.problems[0]


@as_root
def test_a_hang_costs_no_more_than_the_deadline(tmp_path: Path) -> None:
    host = build(tmp_path / "host", Description(gpus=2))
    host.hang_nvml()
    before, began = children(), time.monotonic()
    found = nvml_quick.read(str(host.nvml), targets(host), 0.4)
    assert time.monotonic() - began < 5
    assert (found.devices, found.silent) == ({}, [])
    assert "0.4 seconds" in found.problems[0]
    assert children() <= before


@pytest.mark.parametrize("content", [b"no library", None])
def test_a_library_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    if content is not None:
        path.write_bytes(content)
    found = nvml_quick.read(str(path), [("GPU-1", "0000:07:00.0")])
    assert found.devices == {}
    assert "GPU-1 is used for" in found.problems[0]


@as_root
def test_a_library_of_another_version(tmp_path: Path) -> None:
    host = build(tmp_path / "host", Description(kernel_driver="535.54.03"))
    found = nvml_quick.read(str(host.nvml), targets(host))
    assert "NVML says" in found.problems[0]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that does what bus ids say."""
    library = tmp_path_factory.mktemp("odd") / "libodd.so"
    source = Path(__file__).with_name("nvml_odd.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_one_that_hangs_is_passed_over(odd: str) -> None:
    before, began = children(), time.monotonic()
    asked = [("A", "fine"), ("B", "hang"), ("C", "fine"), ("D", "hang"), ("E", "fine")]
    found = nvml_quick.read(odd, asked, 1.0)
    assert time.monotonic() - began < 5
    assert list(found.devices) == ["A", "C", "E"]
    assert found.silent == ["B", "D"]
    assert found.devices["A"].used == 4 * GIB
    assert children() <= before


def test_a_crash_costs_one_device(odd: str) -> None:
    found = nvml_quick.read(odd, [("A", "crash"), ("B", "fine"), ("C", "unknown")])
    assert list(found.devices) == ["B"]
    assert found.silent == ["A", "C"]
    assert "Unknown Error" in found.problems[1]


@pytest.mark.parametrize(("what", "trouble"), [("lost", "lost"), ("reset", "in need of a reset")])
def test_troubles(odd: str, what: str, trouble: str) -> None:
    found = nvml_quick.read(odd, [("A", what)])
    assert found.devices["A"].trouble == trouble


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("fine", [(100, GIB, "c"), (101, GIB, "c")]),
        ("long", [(100, GIB, "c"), (101, GIB, "c")]),
        ("odd", None),
        ("secret", [(100, GIB, "c"), (101, None, "c")]),
    ],
)
def test_lists_of_processes(odd: str, what: str, expected: object) -> None:
    """B78: entries that can't be are those of another layout, and another call is tried."""
    assert nvml_quick.read(odd, [("A", what)]).devices["A"].processes == expected


def test_a_list_that_grows_while_it_is_read(odd: str) -> None:
    processes = nvml_quick.read(odd, [("A", "grows")]).devices["A"].processes
    assert processes is not None
    assert len(processes) >= 100


def test_a_display(odd: str) -> None:
    found = nvml_quick.read(odd, [("A", "display"), ("B", "fine")])
    assert [found.devices[name].display for name in "AB"] == [True, False]


def test_the_asker_holds_nothing_of_its_parent(odd: str, tmp_path: Path) -> None:
    """A lock that the create holds is free when the create lets go, whatever hangs."""
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        ended: list[int] = []
        nvml_quick._end = lambda pid, patience: ended.append(pid)
        nvml_quick.read(odd, [("A", "hang")], 0.3)
        os.write(writing, b"%d" % ended[0])
        os.kill(os.getpid(), 9)
    os.close(writing)
    os.close(lock)
    left = int(os.read(reading, 20))
    os.waitpid(pid, 0)
    try:
        assert os.read(reading, 1) == b"", "the asker has the engine's pipe"
        again = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(again)
    finally:
        os.close(reading)
    # And it does not outlive the one that asked.
    for _ in range(100):
        try:
            os.kill(left, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError(f"{left} goes on")


def test_ignored_children(odd: str) -> None:
    """Some engines start their runtime with SIGCHLD ignored, and there is no status then."""
    pid = os.fork()
    if pid == 0:
        import signal

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os._exit(0 if "A" in nvml_quick.read(odd, [("A", "fine")]).devices else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(str(tmp_path))
    Path(made.run).mkdir(parents=True)
    return made


Keep = Callable[..., None]


@pytest.fixture
def keep(places: Places) -> Keep:
    def write(age: float = 0.5, mode: int = 0o644, **changes: object) -> None:
        use = DeviceUse()
        use.used, use.processes = GIB, [(100, GIB, "c"), (101, None, "g")]
        reading = Reading(deviceuse.now() - age)
        reading.devices["A"] = use
        Path(places.use).write_text(dumps({**reading.to_json(), **changes}))
        Path(places.use).chmod(mode)

    return write


def test_what_the_exporter_keeps(places: Places, keep: Keep) -> None:
    keep()
    found = recent(places, ["A"])
    assert found is not None
    assert found.devices["A"].processes == [(100, GIB, "c"), (101, None, "g")]
    assert recent(places, ["A", "B"]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"age": 2.5},
        {"age": -1.0},  # of another boot, whose clock had gone further
        {"mode": 0o666},
        {"devices": {"A": {}}},
        {"devices": []},
        {"stamp": "now"},
        {"format": 0},
    ],
)
def test_what_of_it_is_not_taken(places: Places, keep: Keep, changes: dict[str, object]) -> None:
    assert recent(places, ["A"]) is None
    keep(**changes)
    assert recent(places, ["A"]) is None
