"""The files of a fake host: /proc, /sys, /dev, libraries."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakehost import PRESETS, Description, FakeHost, GpuSpec, build, preset

from .asking import numbers, tool

Make = Callable[..., FakeHost]


def symbols(library: Path) -> str:
    return subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout


def soname(library: Path) -> str:
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    found = re.search(r"Library soname: \[(.*)\]", text.stdout)
    return found.group(1) if found else ""


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_preset_builds_and_lists_its_gpus(name: str, tmp_path: Path) -> None:
    host = build(tmp_path / "host", preset(name))
    listed = tool(host, "usr/bin/nvidia-smi", "-L").stdout
    assert re.findall(r"^GPU \d+: .* \(UUID: (GPU-.*)\)$", listed, re.M) == [
        gpu.uuid for gpu in host.gpus
    ]
    buses = [gpu.bus for gpu in host.gpus]
    assert buses == sorted(buses)
    assert set(buses) <= {path.name for path in (host.sys_root / "bus/pci/devices").iterdir()}
    broken = [
        path
        for directory, folders, files in os.walk(host.root)
        for path in (Path(directory, entry) for entry in folders + files)
        if path.is_symlink() and not path.exists() and "lib/fakehost" not in str(path)
    ]
    assert broken == []


def test_information_has_the_drivers_form(make: Make) -> None:
    host = make(gpus=2, minors="reversed")
    gpu = host.gpus[0]
    text = (host.proc_root / "driver/nvidia/gpus" / gpu.bus / "information").read_text()
    assert text.splitlines()[:3] == [
        "Model: \t\t NVIDIA A100-SXM4-80GB", "IRQ:   \t\t 64", f"GPU UUID: \t {gpu.uuid}",
    ]  # fmt: skip
    assert f"Bus Location: \t {gpu.bus}\nDevice Minor: \t 1\n" in text


def test_version_of_both_kinds_of_module(make: Make, tmp_path: Path) -> None:
    text = (make().proc_root / "driver/nvidia/version").read_text()
    assert text.startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  ")
    host = build(tmp_path / "open", Description(open_module=True, ldcache=False))
    text = (host.proc_root / "driver/nvidia/version").read_text()
    assert "NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  " in text


def test_params_and_their_change(make: Make) -> None:
    host = make(device_gid=44, device_mode=0o660)
    params = host.proc_root / "driver/nvidia/params"
    assert "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\n" in params.read_text()
    assert "DeviceFileMode: 432\n" in params.read_text()
    host.set_modify_device_files(0)
    assert "ModifyDeviceFiles: 0\n" in params.read_text()


def test_nodes_agree_with_proc_devices(make: Make) -> None:
    host = make(gpus=2, minors="reversed", uvm_major=237, model="NVIDIA A100-SXM4-80GB")
    devices = (host.proc_root / "devices").read_text()
    assert "237 nvidia-uvm\n" in devices
    assert "195 nvidiactl\n" in devices
    assert numbers(host.dev_root / "nvidia1") == (195, 1)
    assert numbers(host.dev_root / "nvidiactl") == (195, 255)
    assert numbers(host.dev_root / "nvidia-uvm") == (237, 0)
    assert numbers(host.dev_root / "nvidia-uvm-tools") == (237, 1)
    assert numbers(host.dev_root / "dri/renderD129") == (226, 129)
    assert os.readlink(host.dev_root / "char/195:255") == "../nvidiactl"


def test_opening_a_node_says_that_no_driver_is_there(make: Make) -> None:
    with pytest.raises(OSError) as caught:
        os.open(make().dev_root / "nvidia0", os.O_RDWR)
    assert caught.value.errno == errno.ENXIO


def test_older_driver_has_the_old_name_of_its_major(make: Make) -> None:
    devices = (make(driver="535.183.01").proc_root / "devices").read_text()
    assert "195 nvidia-frontend\n" in devices
    assert "195 nvidiactl" not in devices


def test_mig_capabilities_have_the_minors_of_the_table(make: Make) -> None:
    host = make(gpus=[GpuSpec(), GpuSpec(minor=3, mig=("1g.10gb:1c", "3g.40gb:1c,2c"))])
    table = dict(
        line.split()
        for line in (host.proc_root / "driver/nvidia-caps/mig-minors").read_text().splitlines()
    )
    root = host.proc_root / "driver/nvidia/capabilities"
    assert table["gpu1/gi0/access"] == "138"
    for name in ("gi7/access", "gi7/ci0/access", "gi1/ci1/access"):
        text = (root / "gpu3/mig" / name).read_text()
        minor = table[f"gpu3/{name}"]
        assert text == f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        node = host.dev_root / f"nvidia-caps/nvidia-cap{minor}"
        assert numbers(node) == (508, int(minor))
    assert [device.name for device in host.gpus[1].mig] == ["1g.10gb", "1c.3g.40gb", "2c.3g.40gb"]
    host.set_mig_layout(1, ["7g.80gb"])
    assert not (root / "gpu3/mig/gi7").exists()
    assert (root / "gpu3/mig/gi0/ci0/access").exists()
    assert not (host.dev_root / f"nvidia-caps/nvidia-cap{table['gpu3/gi7/access']}").exists()


def test_impossible_layouts_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        make(gpus=[GpuSpec(mig=("4g.40gb", "4g.40gb"))])
    with pytest.raises(ValueError, match="no MIG profile"):
        make(gpus=[GpuSpec(mig=("1g.5gb",))])


def test_pci_tree_shows_switches(make: Make) -> None:
    host = make(gpus=4, gpus_per_switch=2, numa_nodes=2, nics=2)
    devices = host.sys_root / "bus/pci/devices"
    paths = [os.path.realpath(devices / gpu.bus).split("/") for gpu in host.gpus]
    assert os.readlink(devices / host.gpus[0].bus).startswith("../../../devices/pci0000:")
    assert paths[0][:-2] == paths[1][:-2]
    assert paths[1][:-2] != paths[2][:-2]
    nic = os.path.realpath(host.sys_root / "class/infiniband/mlx5_0/device").split("/")
    assert nic[:-2] == paths[0][:-2]
    device = devices / host.gpus[2].bus
    assert (device / "numa_node").read_text() == "1\n"
    assert (device / "local_cpulist").read_text() == "8-15,24-31\n"
    assert (device / "local_cpus").read_text() == "ff00ff00\n"
    assert (device / "class").read_text() == "0x030200\n"
    node = host.sys_root / "devices/system/node/node1"
    assert (node / "distance").read_text() == "20 10\n"


@pytest.mark.parametrize(
    ("layout", "wide", "narrow"),
    [
        ("debian", "usr/lib/x86_64-linux-gnu", "usr/lib/i386-linux-gnu"),
        ("fedora", "usr/lib64", "usr/lib"),
        ("arch", "usr/lib", "usr/lib32"),
    ],
)
def test_libraries_and_loader_cache(tmp_path: Path, layout: str, wide: str, narrow: str) -> None:
    host = build(tmp_path / "host", Description(layout=layout, driver="560.35.03"))
    cuda = host.root / wide / "libcuda.so.560.35.03"
    assert soname(cuda) == "libcuda.so.1"
    assert {"cuInit", "cuDriverGetVersion"} <= set(symbols(cuda).split())
    assert soname(host.root / wide / "libnvidia-nvvm.so.560.35.03") == "libnvidia-nvvm.so.4"
    assert (host.root / wide / "libGLX_nvidia.so.0").resolve().name == "libGLX_nvidia.so.560.35.03"
    old = (host.root / narrow / "libcuda.so.1").read_bytes()
    assert old[:5] == b"\x7fELF\x01"
    listing = subprocess.run(
        ["/sbin/ldconfig", "-r", host.root, "-p"], capture_output=True, text=True, check=True
    ).stdout
    assert f"libcuda.so.1 (libc6,x86-64) => /{wide}/libcuda.so.1\n" in listing
    assert f"libcuda.so.1 (libc6) => /{narrow}/libcuda.so.1\n" in listing


def test_no_symbol_is_newer_than_old_images(make: Make) -> None:
    host = make()
    for path in (
        host.nvml,
        host.library_directory / "libcuda.so.1",
        host.root / "usr/bin/nvidia-smi",
    ):
        text = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True)
        versions = re.findall(r"GLIBC_2\.(\d+)", text.stdout)
        assert versions
        assert max(map(int, versions)) <= 31, path


def test_other_drivers_nodes_and_sockets(make: Make) -> None:
    host = make(nvswitches=1, nics=1, imex_channels=2, gds=True)
    assert numbers(host.dev_root / "infiniband/uverbs0") == (231, 192)
    assert numbers(host.dev_root / "nvidia-caps-imex-channels/channel1") == (506, 1)
    assert numbers(host.dev_root / "nvidia-nvswitchctl") == (509, 255)
    assert numbers(host.dev_root / "nvidia-fs0") == (504, 0)
    assert (host.root / "run/nvidia-fabricmanager/socket").is_socket()
