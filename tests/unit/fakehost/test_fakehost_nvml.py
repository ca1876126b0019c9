"""The real, unpatched pynvml against a fake host's library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakehost import Description, FakeHost, GpuSpec, preset

from .asking import CHILD, ask

Make = Callable[..., FakeHost]
DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH, UNKNOWN = 9, 15, 18, 999

HANDLES = """
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
"""


def test_identity_of_each_gpu(make: Make) -> None:
    host = make(gpus=3, minors="reversed")
    program = HANDLES + "answer = [[nvml.nvmlDeviceGetUUID(h), nvml.nvmlDeviceGetMinorNumber(h),"
    program += " nvml.nvmlDeviceGetPciInfo(h).busId, nvml.nvmlDeviceGetIndex(h),"
    program += " nvml.nvmlDeviceGetName(h)] for h in handles]"
    assert ask(host, program) == [
        [gpu.uuid, 2 - gpu.index, f"0000{gpu.bus}".upper(), gpu.index, "NVIDIA A100-SXM4-80GB"]
        for gpu in host.gpus
    ]


def test_versions(make: Make) -> None:
    host = make(driver="570.133.20")
    calls = ("DriverVersion", "NVMLVersion", "CudaDriverVersion_v2")
    program = "answer = [" + ", ".join(f"nvml.nvmlSystemGet{call}()" for call in calls) + "]"
    assert ask(host, program) == ["570.133.20", "12.570.133.20", 12080]


def test_handles_by_uuid_and_bus_id(make: Make) -> None:
    host = make(gpus=2)
    gpu = host.gpus[1]
    answer = ask(host, f"""
        by_uuid = nvml.nvmlDeviceGetHandleByUUID({gpu.uuid!r})
        by_bus = nvml.nvmlDeviceGetHandleByPciBusId({gpu.bus!r})
        by_long = nvml.nvmlDeviceGetHandleByPciBusId("0000" + {gpu.bus.upper()!r})
        answer = [nvml.nvmlDeviceGetIndex(h) for h in (by_uuid, by_bus, by_long)]
    """)  # fmt: skip
    assert answer == [1, 1, 1]


def test_memory_in_use_can_be_set_while_a_program_runs(make: Make) -> None:
    host = make(gpus=1)
    program = HANDLES + "v1 = nvml.nvmlDeviceGetMemoryInfo(handles[0])\n"
    program += "v2 = nvml.nvmlDeviceGetMemoryInfo(handles[0], version=nvml.nvmlMemory_v2)\n"
    program += "answer = [v1.total, v1.used, v2.used, v2.reserved, v2.free]"
    host.set_memory_used(0, 5 << 30)
    gpu = host.gpus[0]
    free = gpu.memory - gpu.reserved - (5 << 30)
    expected = [gpu.memory, (5 << 30) + gpu.reserved, 5 << 30, gpu.reserved, free]
    assert ask(host, program) == expected


def test_a_running_program_sees_a_change(make: Make) -> None:
    host = make(gpus=2)
    program = (
        HANDLES
        + f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.fakehost import FakeHost
host = FakeHost.open({str(host.root)!r})
before = nvml.nvmlDeviceGetUtilizationRates(handles[1]).gpu
host.set_utilization(1, 80, 20)
after = nvml.nvmlDeviceGetUtilizationRates(handles[1]).gpu
host.set_lost(1)
try:
    nvml.nvmlDeviceGetUUID(handles[1])
    lost = 0
except nvml.NVMLError as error:
    lost = error.value
answer = [before, after, lost]
"""
    )
    assert ask(host, program) == [0, 80, GPU_IS_LOST]


def test_processes(make: Make) -> None:
    host = make(gpus=1)
    host.set_processes(0, [(4711, 1 << 30), (4712, 2 << 30)])
    host.set_processes(0, [(9, 1 << 20)], kind="g")
    program = HANDLES + "answer = [[p.pid, p.usedGpuMemory] for p in"
    program += " nvml.nvmlDeviceGetComputeRunningProcesses(handles[0])]"
    assert ask(host, program) == [[4711, 1 << 30], [4712, 2 << 30]]


def test_one_broken_gpu_leaves_the_others_alone(make: Make) -> None:
    host = make(gpus=[GpuSpec(), GpuSpec(broken=True), GpuSpec()])
    program = """
        answer = []
        for i in range(nvml.nvmlDeviceGetCount()):
            try:
                nvml.nvmlDeviceGetHandleByIndex(i)
                answer.append(0)
            except nvml.NVMLError as error:
                answer.append(error.value)
    """
    assert ask(host, program) == [0, UNKNOWN, 0]


def test_uuid_is_unknown_until_the_gpu_is_used(make: Make) -> None:
    host = make(gpus=[GpuSpec(lazy_uuid=True), GpuSpec()])
    path = host.proc_root / "driver/nvidia/gpus" / host.gpus[0].bus / "information"
    assert "GPU-????????-????-????-????-????????????" in path.read_text()
    ask(host, "nvml.nvmlDeviceGetHandleByIndex(1)")
    assert "????" in path.read_text()
    ask(host, "nvml.nvmlDeviceGetHandleByIndex(0)")
    assert f"GPU UUID: \t {host.gpus[0].uuid}\n" in path.read_text()


def test_no_driver_and_another_driver(make: Make) -> None:
    host = make()
    host.upgrade_driver("555.42.06", userspace_only=True)
    assert ask(host, "") == {"error": MISMATCH}
    host.load_new_module()
    assert ask(host, "answer = nvml.nvmlSystemGetDriverVersion()") == "555.42.06"
    host.unload_driver()
    assert ask(host, "") == {"error": DRIVER_NOT_LOADED}


def test_missing_node_hides_a_gpu_and_numbers_close_up(make: Make) -> None:
    host = make(gpus=3, modify_device_files=0)
    host.remove_node("nvidia0")
    program = HANDLES + "answer = [nvml.nvmlDeviceGetMinorNumber(h) for h in handles]"
    assert ask(host, program) == [1, 2]


def test_missing_node_is_made_where_the_driver_may(make: Make) -> None:
    host = make(gpus=2)
    host.remove_node("nvidia1")
    assert ask(host, "answer = nvml.nvmlDeviceGetCount()") == 2
    assert (host.dev_root / "nvidia1").is_char_device()


def test_links_topology_and_peers(make: Make) -> None:
    host = make(preset("a100_pcie4", ldcache=False))
    program = (
        HANDLES
        + """
def level(a, b):
    return nvml.nvmlDeviceGetTopologyCommonAncestor(handles[a], handles[b])
remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handles[0], 0)
answer = [level(0, 1), level(0, 2), nvml.nvmlDeviceGetNvLinkState(handles[0], 11), remote.busId,
          nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handles[0], 0),
          nvml.nvmlDeviceGetP2PStatus(handles[0], handles[1], nvml.NVML_P2P_CAPS_INDEX_NVLINK),
          nvml.nvmlDeviceGetP2PStatus(handles[0], handles[2], nvml.NVML_P2P_CAPS_INDEX_NVLINK),
          list(nvml.nvmlDeviceGetMemoryAffinity(handles[2], 1, 0)),
          nvml.nvmlDeviceGetCpuAffinityWithinScope(handles[2], 2, 0)[0] & 0xffffffff]
"""
    )
    bus = f"0000{host.gpus[1].bus}".upper()
    assert ask(host, program) == [30, 50, 1, bus, 0, 0, 5, [2], 0]


def test_nvswitch_host_has_links_to_switches_only(make: Make) -> None:
    host = make(preset("dgx_a100", ldcache=False))
    program = (
        HANDLES
        + """
info = nvml.c_nvmlGpuFabricInfoV_t()
nvml.nvmlDeviceGetGpuFabricInfoV(handles[0], nvml.byref(info))
answer = [{nvml.nvmlDeviceGetNvLinkRemoteDeviceType(h, i) for h in handles for i in range(12)}
          == {nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH}, info.state,
          [nvml.nvmlDeviceGetMinorNumber(h) for h in handles]]
"""
    )
    assert ask(host, program) == [True, 3, [2, 3, 0, 1, 6, 7, 4, 5]]


def test_mig_devices(make: Make) -> None:
    host = make(gpus=[GpuSpec(mig=("3g.40gb", "1g.10gb")), GpuSpec()])
    program = (
        HANDLES
        + """
answer = []
for i in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handles[0])):
    try:
        mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handles[0], i)
    except nvml.NVMLError_NotFound:
        continue
    attributes = nvml.nvmlDeviceGetAttributes_v2(mig)
    answer.append([nvml.nvmlDeviceGetUUID(mig), nvml.nvmlDeviceGetName(mig),
                   nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig),
                   attributes.memorySizeMB, nvml.nvmlDeviceGetMemoryInfo(mig).total >> 20])
"""
    )
    name = "NVIDIA A100-SXM4-80GB MIG "
    first, second = host.gpus[0].mig
    assert ask(host, program) == [
        [first.uuid, name + "3g.40gb", 1, 0, 38912, 38912],
        [second.uuid, name + "1g.10gb", 7, 0, 9728, 9728],
    ]
    host.set_mig_layout(0, None)
    modes = HANDLES + "answer = [nvml.nvmlDeviceGetMigMode(h) for h in handles]"
    assert ask(host, modes) == [[0, 0], [0, 0]]


def test_memory_limits_from_615_on(make: Make, tmp_path: Path) -> None:
    program = (
        HANDLES
        + """
limits = nvml.c_nvmlSetMemoryLimits_v1_t(b"/sys/fs/cgroup/x", 0, 1 << 30)
nvml.nvmlDeviceSetMemoryLimits_v1(handles[0], limits)
read = nvml.c_nvmlGetMemoryLimits_v1_t(b"/sys/fs/cgroup/x")
nvml.nvmlDeviceGetMemoryLimits_v1(handles[0], read)
answer = read.hardLimit
"""
    )
    host = make(driver="550.163.01")
    assert ask(host, program) == {"error": 13}
    host.upgrade_driver("615.71.09")
    assert ask(host, program) == 1 << 30
    assert host.memory_limits() == {(host.gpus[0].uuid, "/sys/fs/cgroup/x"): (0, 1 << 30)}


def test_event_set_tells_of_a_lost_gpu(make: Make) -> None:
    host = make(gpus=1)
    program = (
        HANDLES
        + f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.fakehost import FakeHost
events = nvml.nvmlEventSetCreate()
nvml.nvmlDeviceRegisterEvents(handles[0], nvml.nvmlEventTypeXidCriticalError, events)
FakeHost.open({str(host.root)!r}).set_lost(0)
data = nvml.nvmlEventSetWait_v2(events, 1000)
answer = [data.eventType, data.eventData]
"""
    )
    assert ask(host, program) == [8, 79]


def test_calls_wait_while_the_library_hangs(make: Make) -> None:
    host = make(gpus=1)
    host.hang_nvml(True)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, str(CHILD), str(host.nvml)], input=b"", timeout=0.5,
                       capture_output=True)  # fmt: skip
    host.hang_nvml(False)
    assert ask(host, "answer = 1") == 1


def test_every_call_of_monitoring_programs_works(make: Make) -> None:
    """What exporters and nvitop ask for; that it answers at all is the point."""
    host = make(Description(gpus=1, model="NVIDIA GeForce RTX 4090", ldcache=False))
    program = (
        HANDLES
        + """
h = handles[0]
answer = [nvml.nvmlDeviceGetTemperature(h, 0), nvml.nvmlDeviceGetPowerUsage(h),
          nvml.nvmlDeviceGetEnforcedPowerLimit(h), nvml.nvmlDeviceGetTotalEnergyConsumption(h),
          nvml.nvmlDeviceGetClockInfo(h, 0), nvml.nvmlDeviceGetMaxClockInfo(h, 2),
          nvml.nvmlDeviceGetFanSpeed(h), nvml.nvmlDeviceGetPcieThroughput(h, 0),
          nvml.nvmlDeviceGetEncoderUtilization(h)[0], nvml.nvmlDeviceGetPersistenceMode(h),
          nvml.nvmlDeviceGetComputeMode(h), nvml.nvmlDeviceGetVbiosVersion(h),
          nvml.nvmlDeviceGetBrand(h), nvml.nvmlDeviceGetArchitecture(h),
          list(nvml.nvmlDeviceGetCudaComputeCapability(h)), nvml.nvmlDeviceGetPerformanceState(h),
          nvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total,
          nvml.nvmlDeviceGetCurrentClocksEventReasons(h)]
"""
    )
    answer = ask(host, program)
    assert len(answer) == 18
    assert answer[12:15] == [5, 8, [8, 9]]


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare(1)")
def test_alone_in_a_container_nodes_decide(make: Make, tmp_path: Path) -> None:
    """Only the library is there, and nodes for the GPUs 1 and 2 of three."""
    host = make(gpus=3, minors="reversed")
    library = tmp_path / "elsewhere" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    shutil.copy(host.nvml, library)
    program = HANDLES + "answer = [nvml.nvmlDeviceGetUUID(h) for h in handles]"
    script = (
        "mount -t tmpfs none /dev && mknod /dev/nvidiactl c 195 255 && "
        "mknod /dev/nvidia1 c 195 1 && mknod /dev/nvidia0 c 195 0 && mknod /dev/null c 1 3 && "
        f"exec {sys.executable} {CHILD} {library}"
    )
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        input=program, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert [gpu.uuid in result.stdout for gpu in host.gpus] == [False, True, True]
