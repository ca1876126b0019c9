"""MIG devices: the kernel module's tables, NVML's answers, and where the two differ."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from gpushim.config_keys import configured
from gpushim.host import devicenodes, gpus, mig, nodes, nvml
from gpushim.host.model import Gpu, Inventory
from hypothesis import given
from hypothesis import strategies as st

from tests.fakehost import Description, FakeHost, GpuSpec, build, preset

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")

UUID = "MIG-00000000-0000-0000-0000-000000000001"


def inventory(*found: Gpu) -> Inventory:
    return Inventory("550.1", list(found), {}, [], [], False, "")


def read(here: FakeHost) -> tuple[Inventory, list[str]]:
    """The host's GPUs with what NVML says of them, and what is said of that."""
    found = inventory(*gpus.read(str(here.proc_root), str(here.root / "sys")))
    answers = nvml.ask(str(here.nvml), [gpu.bus for gpu in here.gpus], [], 20)
    assert answers.problem == ""
    return found, mig.add(found, answers.gpus, str(here.proc_root))


@root_only
def test_all_of_a_partitioned_machine(tmp_path: Path) -> None:
    """B37: each device with its instances' ids and their nodes' minors, as nvidia-smi -L counts."""
    here = build(tmp_path / "host", preset("mig_host"))
    found, problems = read(here)
    assert problems == []
    assert (found.mig_config_minor, found.mig_monitor_minor) == (1, 2)
    for gpu, real in zip(found.gpus, here.gpus, strict=True):
        assert [
            (one.index, one.uuid, one.profile, one.gpu_instance_minor, one.compute_instance_minor)
            for one in gpu.mig_devices
        ] == [
            (index, device.uuid, device.name, device.gi_minor, device.ci_minor)
            for index, device in enumerate(real.mig)
        ]
        for one, device in zip(gpu.mig_devices, real.mig, strict=True):
            assert (one.gpu_instance, one.compute_instance) == (device.gi, device.ci)
            assert one.memory
            assert abs(one.memory - (device.profile.memory_mib << 20)) < 1 << 30
    assert [gpu.mig_enabled for gpu in found.gpus] == [True, True, None]  # the last is collect's


@root_only
def test_parts_of_an_instance_have_a_profile_of_their_own(tmp_path: Path) -> None:
    here = build(tmp_path / "host", Description(gpus=[GpuSpec(mig=("3g.40gb:1c,2c",))]))
    found, problems = read(here)
    assert problems == []
    assert [one.profile for one in found.gpus[0].mig_devices] == ["1c.3g.40gb", "2c.3g.40gb"]
    assert len({one.gpu_instance_minor for one in found.gpus[0].mig_devices}) == 1


@root_only
def test_what_nvml_leaves_out_is_a_problem(tmp_path: Path) -> None:
    """One was made a moment ago, or its nodes can't be opened."""
    here = build(tmp_path / "host", preset("mig_host"))
    (here.proc_root / "driver/nvidia/capabilities/gpu0/mig/gi3/ci1").mkdir()
    found, problems = read(here)
    assert [len(gpu.mig_devices) for gpu in found.gpus] == [4, 7, 0]
    assert problems == ["NVML tells of 4 MIG devices of GPU 0, where the kernel module lists 5."]


@root_only
def test_mig_mode_without_instances(tmp_path: Path) -> None:
    here = build(tmp_path / "host", Description(gpus=[GpuSpec(mig=())]))
    answers = nvml.ask(str(here.nvml), [here.gpus[0].bus], [], 20)
    (line,) = answers.gpus.values()
    assert (line["mig_enabled"], line["mig_devices"], line["mig_problem"]) == (True, [], "")
    assert read(here)[1] == []


@root_only
@pytest.mark.parametrize("fault", ["broken", "lost"])
def test_a_gpu_in_trouble_is_no_problem_of_mig(tmp_path: Path, fault: str) -> None:
    """B54: its own health tells; a device of its listing is none that could be granted."""
    gpu = GpuSpec(mig=("1g.10gb",), broken=fault == "broken")
    here = build(tmp_path / "host", Description(gpus=[gpu, GpuSpec(mig=("1g.10gb",))]))
    if fault == "lost":
        here.set_lost(0)
    found, problems = read(here)
    assert problems == []
    assert [len(one.mig_devices) for one in found.gpus] == [0, 1]


@root_only
def test_without_nvml_a_partitioned_gpu_is_known_as_one(tmp_path: Path) -> None:
    """So that `all` never gives it as a whole."""
    here = build(tmp_path / "host", preset("mig_host"))
    found = inventory(*gpus.read(str(here.proc_root), str(here.root / "sys")))
    problems = mig.add(found, {}, str(here.proc_root))
    assert [gpu.mig_enabled for gpu in found.gpus] == [True, True, None]
    assert len(problems) == 2
    assert "NVML tells of 0 MIG devices of GPU 0, where the kernel module lists 4" in problems[0]


def line(**changes: Any) -> dict[str, Any]:
    one: dict[str, Any] = {"index": 0, "uuid": UUID, "profile": "1g.10gb", "memory": None}
    one |= {"gpu_instance": 7, "compute_instance": 0, **changes}
    return {"bus_id": "b", "mig_devices": [one], "mig_problem": ""}


def proc(path: Path, table: str, *instances: str) -> str:
    (path / "driver/nvidia-caps").mkdir(parents=True)
    (path / "driver/nvidia-caps/mig-minors").write_text(table)
    for name in instances:
        (path / "driver/nvidia/capabilities" / name).mkdir(parents=True)
    return str(path)


def test_a_device_without_a_minor(tmp_path: Path) -> None:
    root = proc(tmp_path, "config 1\ngpu3/gi7/access 900\nnonsense\nx -1\ny 9999999999\n")
    found = inventory(Gpu(0, "GPU-1", 3, "b", "m"))
    assert mig.add(found, {"b": line()}, root) == []
    (one,) = found.gpus[0].mig_devices
    assert (one.gpu_instance_minor, one.compute_instance_minor) == (900, -1)
    assert (found.mig_config_minor, found.mig_monitor_minor) == (1, -1)
    assert mig.minors(root) == {"config": 1, "gpu3/gi7/access": 900}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"b": {**line(), "mig_problem": "NVML says: Timeout"}}, "GPU 0: NVML says: Timeout."),
        ({"b": line(gpu_instance=8)}, "tells of 1 MIG devices of GPU 0, where the kernel module"),
        ({"b": line(uuid=None)}, "tells of 0 MIG devices"),
        ({"b": line(uuid="")}, "tells of 0 MIG devices"),
        ({}, "tells of 0 MIG devices"),
    ],
)
def test_what_nvml_does_not_tell(tmp_path: Path, answers: dict[str, Any], said: str) -> None:
    root = proc(tmp_path, "", "gpu3/mig/gi7/ci0")
    found = inventory(Gpu(0, "GPU-1", 3, "b", "m"))
    (problem,) = mig.add(found, answers, root)
    assert said in problem
    assert found.gpus[0].mig_enabled is True


def test_a_machine_without_mig(tmp_path: Path) -> None:
    found = inventory(Gpu(0, "GPU-1", 3, "b", "m", mig_enabled=False))
    assert mig.add(found, {}, str(tmp_path)) == []
    assert mig.capabilities(str(tmp_path)) == {}
    assert found.gpus[0].mig_enabled is False


def test_which_nodes_are_of_use(tmp_path: Path) -> None:
    table = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi2/access 21\n"
    root = proc(tmp_path, table, "gpu0/mig/gi1/ci0", "mig/config", "mig/monitor")
    where = root + "/driver/nvidia/capabilities"
    assert mig.capabilities(root) == {
        1: where + "/mig/config",
        2: where + "/mig/monitor",
        12: where + "/gpu0/mig/gi1/access",
        13: where + "/gpu0/mig/gi1/ci0/access",
    }


def test_a_board_that_cannot_be_partitioned_needs_no_node(tmp_path: Path) -> None:
    assert mig.capabilities(proc(tmp_path, "config 1\nmonitor 2\n", "mig", "gpu0")) == {}


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["config", " ", "1", "\n", "²"])).map("".join)
)
def test_a_table_of_anything(text: str) -> None:
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "driver/nvidia-caps").mkdir(parents=True)
        data = text.encode("utf-8", "surrogatepass")
        (Path(path) / "driver/nvidia-caps/mig-minors").write_bytes(data)
        assert all(number >= 0 for number in mig.minors(path).values())


class Nodes:
    """A partitioned fake host whose nodes come and go."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.host = build(path / "host", preset("mig_host", **changes))
        self.values: dict[str, bool | str | list[str]] = {
            "host.proc-root": str(self.host.proc_root),
            "host.dev-root": str(self.host.dev_root),
            "host.helpers": [],
        }

    def make(self) -> dict[str, str]:
        capabilities = mig.capabilities(str(self.host.proc_root))
        return nodes.make_missing(configured(self.values), [0, 1, 2], False, capabilities)

    def facts(self, name: str) -> tuple[int, int, int, int, int] | None:
        return devicenodes.node_facts(str(self.host.dev_root), name)


@root_only
@pytest.mark.parametrize("helper", [True, False], ids=["nvidia-modprobe", "mknod"])
def test_nodes_of_instances_are_made(tmp_path: Path, helper: bool) -> None:
    """B56: with the driver's own program, or without, modes and links are the same."""
    machine = Nodes(tmp_path)
    if helper:
        machine.values["host.helpers"] = [str(machine.host.root / "usr/bin")]
    device = machine.host.gpus[0].mig[1]
    names = [f"nvidia-caps/nvidia-cap{minor}" for minor in (1, device.gi_minor, device.ci_minor)]
    before = [machine.facts(name) for name in names]
    for name in names:
        machine.host.remove_node(name)
    (machine.host.dev_root / f"char/508:{device.gi_minor}").unlink()
    assert machine.make() == {}
    assert [machine.facts(name) for name in names] == before
    assert [fact[2] for fact in before if fact] == [0o400, 0o444, 0o444]
    link = machine.host.dev_root / f"char/508:{device.gi_minor}"
    assert os.readlink(link) == f"../nvidia-caps/nvidia-cap{device.gi_minor}"


@root_only
def test_nodes_with_numbers_of_old_are_made_anew(tmp_path: Path) -> None:
    """The driver was loaded again and has another major: the old node is somebody else's."""
    machine = Nodes(tmp_path)
    minor = machine.host.gpus[0].mig[0].gi_minor
    path = machine.host.dev_root / f"nvidia-caps/nvidia-cap{minor}"
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o444, os.makedev(499, minor))
    assert machine.make() == {}
    assert machine.facts(f"nvidia-caps/nvidia-cap{minor}") == (508, minor, 0o444, 0, 0)
    names = os.listdir(machine.host.dev_root / "nvidia-caps")
    assert not [name for name in names if name.startswith(".")]


@root_only
def test_why_a_node_of_an_instance_can_not_be_made(tmp_path: Path) -> None:
    machine = Nodes(tmp_path)
    minor = machine.host.gpus[0].mig[0].gi_minor
    name = f"nvidia-caps/nvidia-cap{minor}"
    machine.host.remove_node(name)
    (machine.host.dev_root / name).touch()
    assert "something else is there" in machine.make()[name]
    (machine.host.dev_root / name).unlink()
    devices = machine.host.proc_root / "devices"
    devices.write_text(devices.read_text().replace("nvidia-caps\n", "other\n"))
    assert "nvidia-caps is not loaded" in machine.make()[name]
    machine.values["host.load-driver"] = False
    assert "load-driver is off" in machine.make()[name]


@root_only
def test_imex_channels_are_made(tmp_path: Path) -> None:
    machine = Nodes(tmp_path, device_mode=0o660, device_gid=44)

    def make(*channels: int) -> dict[str, str]:
        names = {devicenodes.channel_node(channel): channel for channel in channels}
        return nodes.make_named(configured(machine.values), names)

    assert make(0, 7) == {}
    assert machine.facts("nvidia-caps-imex-channels/channel7") == (506, 7, 0o660, 0, 44)
    devices = machine.host.proc_root / "devices"
    devices.write_text(devices.read_text().replace("nvidia-caps-imex-channels", "other"))
    assert make(0) == {}
    (reason,) = make(9).values()
    assert "nvidia-caps-imex-channels is not loaded" in reason
