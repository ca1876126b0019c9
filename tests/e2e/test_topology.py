"""What gpushimctl topology prints, and what NCCL is told of the network in a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakehost import FakeHost, preset
from tests.harness import Bundle, Runtime
from tests.harness.bundle import PROBE
from tests.harness.machine import Machine
from tests.harness.seen import outcomes, probe, variables

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
RuntimeOf = Callable[[Machine], Runtime]

# As `nvidia-smi topo -m` has it on such a machine, but for the names of its last columns.
PAIRS = """\
      GPU0  GPU1  GPU2  GPU3  NIC0  NIC1  CPU affinity  NUMA affinity  GPU NUMA id
GPU0  X     NV12  SYS   SYS   PHB   SYS   0-31,64-95    0              N/A
GPU1  NV12  X     SYS   SYS   PHB   SYS   0-31,64-95    0              N/A
GPU2  SYS   SYS   X     NV12  SYS   PHB   32-63,96-127  1              N/A
GPU3  SYS   SYS   NV12  X     SYS   PHB   32-63,96-127  1              N/A
NIC0  PHB   PHB   SYS   SYS   X     SYS
NIC1  SYS   SYS   PHB   PHB   SYS   X
"""
CHECK = probe(
    [
        "open",
        *(f"/dev/infiniband/uverbs{number}" for number in range(8)),
        "/dev/infiniband/rdma_cm",
    ],
    ["env"],
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Four A100 in two pairs, one on each socket, each with an adapter. Nobody changes it."""
    return Machine(tmp_path_factory.mktemp("pairs"), preset("a100_pcie4", modify_device_files=0))


def test_the_matrix(pairs: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")  # as wide as it need be
    matrix, legend, adapters = pairs.installed.ctl("topology").split("\n\n")
    assert matrix + "\n" == PAIRS
    assert legend.splitlines()[-1] == "NV#   that number of NVLinks"
    first, second = adapters.splitlines()
    assert first.startswith("NIC0  0000:")
    assert "mlx5_0 (up), ib0 (" in first
    assert "mlx5_1 (up), ib1 (" in second


def test_as_data(pairs: Machine) -> None:
    found = json.loads(pairs.installed.ctl("topology", "--json"))
    first = found["gpus"][0]
    assert first["uuid"] == pairs.host.gpus[0].uuid
    assert first["links"] == ["X", "NV12", "SYS", "SYS"]
    assert (first["cpus"], first["numa_node"]) == ("0-31,64-95", 0)
    assert first["memory_numa_node"] is None
    assert found["numa_nodes"] == {"0": "0-31,64-95", "1": "32-63,96-127"}
    assert found["nics"][1]["gpus"] == ["SYS", "SYS", "PHB", "PHB"]
    assert found["nics"][1]["rdma"] == {"mlx5_1": "up"}
    assert found["problems"] == []
    # What placement goes by is what is shown.
    inventory = json.loads(pairs.installed.ctl("inventory", "--json"))
    assert [gpu["values"] for gpu in found["gpus"]] == inventory["topology"]


def test_states_of_interfaces_are_the_kernels(tmp_path: Path) -> None:
    """In a network namespace of its own there is lo and nothing else, and it is down."""
    machine = Machine(tmp_path, preset("hgx_h100"))
    device = (machine.host.sys_root / "class/net/ib0/device").resolve()
    (device / "net/lo").mkdir()
    names = machine.host.sys_root / "class/net"
    (names / "lo").symlink_to(os.path.relpath(device / "net/lo", names))
    command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", machine.places.root]
    done = subprocess.run(
        ["unshare", "-n", *command, "topology", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    interfaces = [nic["interfaces"] for nic in json.loads(done.stdout)["nics"]]
    assert interfaces[0] == {"ib0": "unknown", "lo": "down"}
    assert interfaces[1] == {"ib1": "unknown"}


def test_a_gpu_whose_memory_is_a_numa_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grace Hopper: the kernel has the GPU's memory online, and the driver tells as what."""
    monkeypatch.setenv("COLUMNS", "0")
    machine = Machine(tmp_path, preset("workstation"))
    gpu = machine.host.gpus[0]
    where = machine.host.proc_root / "driver/nvidia/gpus" / gpu.bus / "numa_status"
    where.write_text("Node:      4\nStatus:    online\nAddress:   0\nSize:      0\n")
    lines = machine.installed.ctl("topology").splitlines()
    assert lines[0].split()[:1] == ["GPU0"]
    assert lines[1].split() == ["GPU0", "X", "0-7,8-15", "0", "4"]


def ready_for_nccl(host: FakeHost) -> None:
    """Gives each RDMA device its node's name, as the kernel's ib_uverbs does."""
    for number in range(host.description.nics):
        device = host.sys_root / f"class/infiniband/mlx5_{number}/device"
        (device / "infiniband_verbs" / f"uverbs{number}").mkdir(parents=True)


@pytest.fixture(scope="module")
def dgx(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("dgx"), configuration='[inject]\nnccl = "auto"\n')
    ready_for_nccl(machine.host)
    return machine


def asking(make_bundle: MakeBundle, devices: str, *env: str, **options: Any) -> Bundle:
    """A container on NVIDIA_VISIBLE_DEVICES that may lock as much memory as it likes."""
    bundle = make_bundle(args=CHECK, env=[f"NVIDIA_VISIBLE_DEVICES={devices}", *env], **options)
    bundle.config["process"]["capabilities"]["effective"].append("CAP_IPC_LOCK")
    for kind in ("bounding", "permitted"):
        bundle.config["process"]["capabilities"][kind].append("CAP_IPC_LOCK")
    bundle.write()
    return bundle


def nodes(text: str) -> list[str]:
    """The nodes that a container has; nobody that it could use is behind them here."""
    return [
        path.removeprefix("/dev/infiniband/")
        for path, outcome in outcomes(text).items()
        if path.startswith("/dev/infiniband/") and outcome not in ("ENOENT", "EPERM")
    ]


@pytest.mark.parametrize("userns", [False, True])
def test_nccl_in_a_container(
    dgx: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle, userns: bool
) -> None:
    bundle = asking(make_bundle, "0,1", userns=userns)
    seen = runtime_of(dgx).run(bundle).check().stdout
    assert nodes(seen) == ["uverbs0", "uverbs1", "rdma_cm"]
    assert sorted(variables(seen)["NCCL_IB_HCA"].lstrip("=").split(",")) == ["mlx5_0", "mlx5_1"]
    # Its network is its own: the host's interfaces are not in it.
    assert "NCCL_SOCKET_IFNAME" not in variables(seen)


def test_a_later_process_has_the_same(
    dgx: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    bundle = asking(make_bundle, "6,7")
    bundle.config["process"]["args"] = [PROBE, "sleep", "60"]
    bundle.write()
    runtime = runtime_of(dgx)
    runtime.create(bundle).check()
    runtime.start(bundle.id).check()
    seen = variables(runtime.exec(bundle.id, PROBE, "env").check().stdout)
    assert sorted(seen["NCCL_IB_HCA"].lstrip("=").split(",")) == ["mlx5_6", "mlx5_7"]
    runtime.kill(bundle.id).check()


@pytest.mark.parametrize("words", [["0"], ["0,1", "NCCL_IB_HCA=mlx5_7"]])
def test_who_gets_nothing_for_nccl(
    dgx: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle, words: list[str]
) -> None:
    seen = runtime_of(dgx).run(asking(make_bundle, *words)).check().stdout
    assert nodes(seen) == []
    assert variables(seen).get("NCCL_IB_HCA") in (None, "mlx5_7")


def test_a_container_that_may_lock_no_memory(
    dgx: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(args=CHECK, env=["NVIDIA_VISIBLE_DEVICES=0,1"])
    limit = {"type": "RLIMIT_MEMLOCK", "soft": 1 << 16, "hard": 1 << 16}
    bundle.config["process"]["rlimits"] = [limit]
    bundle.write()
    seen = runtime_of(dgx).run(bundle).check().stdout
    assert nodes(seen) == []
    warnings = [line for entry in dgx.log_lines() for line in entry.get("warnings", [])]
    assert any("--ulimit memlock=-1" in line for line in warnings)


def test_nccl_is_off_unless_configured(
    pairs: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    seen = runtime_of(pairs).run(asking(make_bundle, "0,1")).check().stdout
    assert nodes(seen) == []
    assert "NCCL_IB_HCA" not in variables(seen)
