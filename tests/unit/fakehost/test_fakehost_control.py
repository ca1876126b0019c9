"""Changing a fake host while it is in use, and the programs that act on it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakehost import FakeHost, GpuSpec
from tests.fakehost.__main__ import main

from .asking import ask, numbers, tool

Make = Callable[..., FakeHost]


def test_hot_plug_keeps_other_minors(make: Make) -> None:
    host = make(gpus=[GpuSpec(bus="0000:10:00.0"), GpuSpec(bus="0000:30:00.0")])
    library = host.nvml.stat()
    added = host.hotplug(GpuSpec(model="NVIDIA L4", bus="0000:20:00.0"))
    assert (added.index, added.minor) == (1, 2)
    program = "answer = [nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(i))"
    program += " for i in range(nvml.nvmlDeviceGetCount())]"
    assert ask(host, program) == [0, 2, 1]
    host.unplug(0)
    assert ask(host, program) == [2, 1]
    assert not (host.dev_root / "nvidia0").exists()
    assert not (host.proc_root / "driver/nvidia/gpus/0000:10:00.0").exists()
    assert not (host.sys_root / "bus/pci/devices/0000:10:00.0").is_symlink()
    after = host.nvml.stat()
    assert (after.st_ino, after.st_mtime_ns) == (library.st_ino, library.st_mtime_ns)


def test_driver_upgrade_replaces_files(make: Make) -> None:
    host = make()
    host.upgrade_driver("555.42.06")
    assert not (host.library_directory / "libcuda.so.550.163.01").exists()
    assert os.readlink(host.library_directory / "libcuda.so.1") == "libcuda.so.555.42.06"
    assert "  555.42.06  " in (host.proc_root / "driver/nvidia/version").read_text()
    assert (host.sys_root / "module/nvidia/version").read_text() == "555.42.06\n"
    assert (host.root / "usr/lib/firmware/nvidia/555.42.06/gsp_ga10x.bin").exists()


def test_unloaded_driver_and_the_way_back(make: Make) -> None:
    host = make(gpus=2)
    loaded = (host.proc_root / "devices").read_text()
    host.unload_driver()
    assert not (host.proc_root / "driver").exists()
    assert not (host.sys_root / "module").exists()
    assert "nvidia" not in (host.proc_root / "devices").read_text()
    assert [path for path in host.dev_root.iterdir() if "nvidia" in path.name] == []
    assert tool(host, "usr/sbin/modprobe", "nvidia").returncode == 0
    assert (host.proc_root / "driver/nvidia/version").exists()
    assert not (host.sys_root / "module/nvidia_uvm").exists()
    assert not (host.dev_root / "nvidia0").exists()
    for words in (["-c", "0", "-c=1", "-c", "255"], ["-u", "-c", "0"], ["-m"]):
        assert tool(host, "usr/bin/nvidia-modprobe", *words).returncode == 0
    assert numbers(host.dev_root / "nvidia1") == (195, 1)
    assert numbers(host.dev_root / "nvidia-uvm-tools") == (511, 1)
    assert numbers(host.dev_root / "nvidia-modeset") == (195, 254)
    assert sorted((host.proc_root / "devices").read_text().split("\n")) == sorted(
        loaded.split("\n")
    )
    assert ask(host, "answer = nvml.nvmlDeviceGetCount()") == 2


def test_driver_that_will_not_load(make: Make) -> None:
    host = make()
    host.unload_driver(refuse=True)
    assert tool(host, "usr/sbin/modprobe", "nvidia").returncode == 1
    assert tool(host, "usr/bin/nvidia-modprobe", "-c", "0").returncode == 1
    host.load_driver()
    assert numbers(host.dev_root / "nvidia0") == (195, 0)


def test_udev_rule_makes_nodes_at_once(make: Make) -> None:
    host = make(device_mode=0o660, device_gid=44)
    host.unload_driver(udev=True)
    tool(host, "usr/sbin/modprobe", "nvidia-uvm")
    status = (host.dev_root / "nvidia0").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, 44)
    assert numbers(host.dev_root / "nvidia-uvm") == (511, 0)


def test_nvidia_modprobe_obeys_the_module(make: Make) -> None:
    host = make(gpus=[GpuSpec(mig=("1g.10gb",))], modify_device_files=0)
    host.remove_node("nvidia0")
    assert tool(host, "usr/bin/nvidia-modprobe", "-c", "0").returncode == 0
    assert not (host.dev_root / "nvidia0").exists()
    host.restore_node("nvidia0")
    assert numbers(host.dev_root / "nvidia0") == (195, 0)
    minor = host.gpus[0].mig[0].gi_minor
    host.remove_node(f"nvidia-caps/nvidia-cap{minor}")
    file = "/proc/driver/nvidia/capabilities/gpu0/mig/gi7/access"
    assert tool(host, "usr/bin/nvidia-modprobe", "-f", file).returncode == 0
    assert numbers(host.dev_root / f"nvidia-caps/nvidia-cap{minor}") == (508, minor)


def test_nvidia_smi_prints_what_people_know(make: Make) -> None:
    host = make(gpus=[GpuSpec(mig=("1g.10gb",)), GpuSpec(model="NVIDIA L4")])
    listed = tool(host, "usr/bin/nvidia-smi", "-L").stdout.splitlines()
    assert listed[0] == f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {host.gpus[0].uuid})"
    assert listed[1] == f"  MIG 1g.10gb     Device  0: (UUID: {host.gpus[0].mig[0].uuid})"
    query = tool(host, "usr/bin/nvidia-smi", "--query-gpu=index,uuid,name,memory.total",
                 "--format=csv")  # fmt: skip
    assert query.stdout.splitlines()[0] == "index, uuid, name, memory.total [MiB]"
    assert query.stdout.splitlines()[2] == f"1, {host.gpus[1].uuid}, NVIDIA L4, 23034 MiB"
    table = tool(host, "usr/bin/nvidia-smi")
    assert "Driver Version: 550.163.01" in table.stdout
    assert "CUDA Version: 12.4" in table.stdout
    assert {len(line) for line in table.stdout.splitlines() if line} == {91}
    host.unload_driver()
    failed = tool(host, "usr/bin/nvidia-smi")
    assert failed.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in failed.stdout


def test_other_processes_see_and_make_changes(make: Make) -> None:
    host = make(gpus=2)
    FakeHost.open(host.root).set_memory_used(1, 7)
    host.set_lost(0)
    again = FakeHost.open(host.root)
    assert again.running.loads[host.gpus[1].uuid].used == 7
    assert again.running.loads[host.gpus[0].uuid].lost
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in host.gpus]


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(tmp_path / "host")
    words = [directory, "--gpus", "2", "--model", "nvidia l40s", "--driver", "580.65.06"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed == FakeHost.open(directory).toml()
    assert f'driver-root = "{tmp_path}/host"' in printed
    assert main(words) == 1
    assert "there is a fake host in" in capsys.readouterr().err


def test_calls_for_a_device_take_their_time(make: Make) -> None:
    host = make(gpus=1)
    host.set_delay(0.1)
    program = """
        import time
        start = time.monotonic()
        nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))
        answer = time.monotonic() - start
    """
    assert 0.2 <= ask(host, program) < 5
