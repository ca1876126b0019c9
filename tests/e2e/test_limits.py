"""Limits as the kernel has them, of containers with GPUs under runc and on Docker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.observe.cgroups import MOUNT, Reading, of_process, read

from tests.fakehost import Description, GpuSpec
from tests.harness import Bundle, PrivateDockerd, Runtime
from tests.harness.dockered import Detached, run
from tests.harness.machine import Machine
from tests.harness.seen import probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
MakeMachine = Callable[..., Machine]
RuntimeOf = Callable[[Machine], Runtime]
GIB = 1 << 30

# Two GPUs at the processor and the memory that every machine has, one at a node that is not here.
NODES = Description(
    gpus=(GpuSpec(numa=0), GpuSpec(numa=0), GpuSpec(numa=1)),
    numa_nodes=2,
    node_cpus=("0", "1"),
    modify_device_files=0,
)
EACH = """[limits]
cpus-per-gpu = 0.5
memory-per-gpu = "1g"
pids-per-gpu = 100
shm-per-gpu = "256m"
"""
# Docker's own values for a container of which nobody said anything.
DOCKER = {"memory": {"disableOOMKiller": False}, "cpu": {"shares": 0}, "blockIO": {"weight": 0}}

UNIFIED = Path(MOUNT, "cgroup.controllers").exists()
version_1 = pytest.mark.skipif(UNIFIED, reason="the limits of this machine are cgroup version 2's")


class Here:
    """A machine with this configuration, and containers on it."""

    def __init__(self, machine: Machine, runtime: Runtime, make_bundle: MakeBundle) -> None:
        self.machine, self.runtime, self._make = machine, runtime, make_bundle

    def bundle(
        self, gpus: str, resources: dict[str, Any] | None = None, *more: str, **options: Any
    ) -> Bundle:
        words = options.pop("args", probe(["sleep", "300"]))
        env = [f"NVIDIA_VISIBLE_DEVICES={gpus}", *more]
        bundle = self._make("busybox", words, env=env, **options)
        bundle.config["linux"]["resources"].update(resources or {})
        bundle.write()
        return bundle

    def group(self, bundle: Bundle) -> Reading:
        """The limits of the container of a bundle, as the kernel has them."""
        self.runtime.create(bundle).check()
        return read(of_process(self.runtime.state(bundle.id)["pid"]))

    def record(self, bundle: Bundle) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(
            self.machine.installed.ctl("explain", "--json", bundle.id)
        )
        return shown


@pytest.fixture
def here(
    make_machine: MakeMachine, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> Callable[..., Here]:
    def get(configuration: str, description: Description = NODES) -> Here:
        machine = make_machine(description, configuration)
        return Here(machine, runtime_of(machine), make_bundle)

    return get


def test_in_proportion_to_gpus(here: Callable[..., Here]) -> None:
    each = here(EACH)
    one = each.group(each.bundle("0", DOCKER))
    assert (one.processors, one.memory_limit, one.pids_limit) == (0.5, GIB, 100)
    three = each.bundle("all")
    found = each.group(three)
    assert (found.processors, found.memory_limit, found.pids_limit) == (1.5, 3 * GIB, 300)
    assert f"size={768 << 20}" in three.read()["mounts"][3]["options"]
    assert each.record(three)["edits"]["tmpfsSizes"] == {"/dev/shm": 768 << 20}
    shown = each.machine.installed.ctl("explain", three.id)
    assert "memory.limit = 3221225472" in shown
    assert "size of /dev/shm = 805306368" in shown
    group = each.record(three)["cgroup"]
    assert (group["processors"], group["memory_limit"], group["pids_limit"]) == (1.5, 3 * GIB, 300)
    assert group["memory"] > 0 and group["cpu_seconds"] > 0
    assert " of 3 GiB" in shown and "processor time: 1.5 at once, " in shown
    assert "processes and threads: " in shown and " of 300\n" in shown


def test_shared_memory_is_as_large_as_it_says(here: Callable[..., Here]) -> None:
    each = here(EACH)
    bundle = each.bundle("0", args=probe(["mounts"]))
    seen = each.runtime.run(bundle).check().stdout
    assert [line for line in seen.splitlines() if " /dev/shm " in line and "size=262144k" in line]


def test_what_the_user_set_stays(here: Callable[..., Here]) -> None:
    """B80: memory and swap together, -1 among them."""
    own = {
        "memory": {"limit": 2 * GIB, "swap": -1},
        "cpu": {"quota": 20_000, "period": 100_000},
        "pids": {"limit": 7},
    }
    each = here(EACH)
    bundle = each.bundle("0,1", own)
    bundle.config["mounts"][3]["options"][-1] = "size=1g"
    bundle.write()
    found = each.group(bundle)
    assert (found.processors, found.memory_limit, found.pids_limit) == (0.2, 2 * GIB, 7)
    spec = bundle.read()
    resources = spec["linux"]["resources"]
    assert {name: resources[name] for name in own} == own
    assert "size=1g" in spec["mounts"][3]["options"]


def test_no_gpu_no_limits(here: Callable[..., Here]) -> None:
    each = here(EACH + '[security]\nno-new-privileges = true\nprivileged = "refuse"\n')
    bundle = each.bundle("void", DOCKER)
    before = bundle.config_path.read_bytes()
    each.runtime.create(bundle).check()
    assert bundle.config_path.read_bytes() == before


@version_1
def test_a_group_above_that_has_less(here: Callable[..., Here]) -> None:
    """The kernel would refuse the group, and runc the container."""
    each = here(EACH)
    bundle = each.bundle("all")
    parent = Path(MOUNT, "cpu", f"gpushim-test-{bundle.id}")
    parent.mkdir()
    try:
        (parent / "cpu.cfs_quota_us").write_text("70000")
        bundle.config["linux"]["cgroupsPath"] = f"/{parent.name}/container"
        bundle.write()
        assert each.group(bundle).processors == 0.7
        assert "gets 0.7 processors and not 1.5" in str(each.record(bundle)["warnings"])
    finally:
        each.runtime.delete(bundle.id, "--force")
        for controller in os.listdir(MOUNT):
            group = Path(MOUNT, controller, parent.name)
            if group.is_dir():
                group.rmdir()


@version_1
def test_unified_keys_on_version_1(here: Callable[..., Here]) -> None:
    unified = (
        '[limits]\nmemory-per-gpu = "1g"\n[limits.unified]\n"cpu.weight" = 100\n'
        '"memory.high" = "512m"\n"memory.oom.group" = 1\n"hugetlb.2MB.max" = 1\n"io.weight" = 500\n'
    )
    each = here(unified)
    bundle = each.bundle("0", DOCKER)
    each.group(bundle)
    group = f"gpushim-test/{bundle.id}"
    assert Path(MOUNT, "cpu", group, "cpu.shares").read_text() == "2597\n"
    soft = Path(MOUNT, "memory", group, "memory.soft_limit_in_bytes")
    assert soft.read_text() == f"{512 << 20}\n"
    assert "unified" not in bundle.read()["linux"]["resources"]
    warnings = each.record(bundle)["warnings"]
    assert [word for text in warnings for word in text.split() if "." in word[:-1]][:2] == [
        "limits.unified",
        "memory.oom.group",
    ]
    assert ("'hugetlb' is not available" in str(warnings)) is not Path(MOUNT, "hugetlb").is_dir()


def test_bound_to_the_node_of_the_gpus(here: Callable[..., Here]) -> None:
    each = here('[limits]\nnuma = "bind"\n')
    bundle = each.bundle("0,1")
    found = each.group(bundle)
    assert (found.cpus, found.memory_nodes) == ([0], [0])
    shown = each.record(bundle)["cgroup"]
    assert (shown["cpus"], shown["memory_nodes"]) == ([0], [0])
    own = each.bundle("0", {"cpu": {"cpus": "1"}})
    assert each.group(own).cpus == [1]
    assert "has its own cpuset (processors 1" in str(each.record(own)["warnings"])


def test_a_key_of_the_containers_own(here: Callable[..., Here]) -> None:
    each = here("")
    found = each.group(each.bundle("0", {}, "GPUSHIM_NUMA=bind"))
    assert (found.cpus, found.memory_nodes) == ([0], [0])
    refused = each.runtime.create(each.bundle("2", {}, "GPUSHIM_NUMA=bind"))
    assert refused.status == 1
    assert (
        "A binding to the GPUs' NUMA nodes was asked for by environment GPUSHIM_NUMA=bind, but no "
        "memory of the GPUs' NUMA nodes (1) is online for containers" in refused.stderr
    )
    assert len(each.machine.records()) == 1


def test_no_memory_policy_of_a_runtime_that_has_none(here: Callable[..., Here]) -> None:
    """runc 1.1 and crun know none, and containers start as they did."""
    each = here("")
    bundle = each.bundle("0")
    each.group(bundle)
    inventory = json.loads(Path(each.machine.places.snapshot).read_text())["inventory"]
    assert inventory["cpus"] == {"0": "0", "1": "1"}
    modes = inventory["memory_policies"]["/usr/sbin/runc"]
    assert ("memoryPolicy" in bundle.read()["linux"]) is ("MPOL_PREFERRED" in modes)


SECURITY = """[security]
drop-capabilities = ["NET_RAW", "CAP_MKNOD"]
no-new-privileges = true
"""
STATUS = probe(["cat", "/proc/self/status"])


def privileges(text: str) -> tuple[int, str]:
    """The bounding set, and whether the process may get no more, of /proc/self/status."""
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return int(lines["CapBnd"], 16), lines["NoNewPrivs"]


NET_RAW, MKNOD = 1 << 13, 1 << 27  # include/uapi/linux/capability.h


def test_privileges_of_every_process(here: Callable[..., Here], tmp_path: Path) -> None:
    each = here(SECURITY)
    without = here("")
    before, may = privileges(without.runtime.run(without.bundle("0", args=STATUS)).check().stdout)
    assert before & NET_RAW and before & MKNOD and may == "0"
    after, may = privileges(each.runtime.run(each.bundle("0", args=STATUS)).check().stdout)
    assert (after, may) == (before & ~NET_RAW & ~MKNOD, "1")

    bundle = each.bundle("0")
    each.runtime.create(bundle).check()
    each.runtime.start(bundle.id).check()
    process = {**bundle.config["process"], "args": STATUS}
    (tmp_path / "process").write_text(json.dumps(process))
    done = each.runtime.call("exec", "--process", tmp_path / "process", bundle.id)
    assert privileges(done.check().stdout) == (after, "1")


def test_privileged_containers_can_be_refused(here: Callable[..., Here]) -> None:
    each = here('[security]\nprivileged = "refuse"\n')
    bundle = each.bundle("0", {"devices": [{"allow": True, "access": "rwm"}]})
    refused = each.runtime.create(bundle)
    assert refused.status == 1
    assert "GPUs were asked for by a privileged container" in refused.stderr
    assert each.machine.records() == []
    each.group(each.bundle("0"))


@pytest.fixture
def limited(dgx: Machine, engine: PrivateDockerd) -> Iterator[PrivateDockerd]:
    """The session's Docker, on the machine with limits for each GPU."""
    dgx.configure(EACH)
    yield engine
    dgx.configure()


@pytest.mark.docker
def test_on_docker(limited: PrivateDockerd) -> None:
    """What Docker writes by itself counts as nothing, and what its options say stays."""

    def group(*options: str) -> tuple[float | None, int | None, int | None]:
        with Detached(limited, *options, gpus="0,1", image="busybox") as container:
            pid = limited.docker("inspect", "-f", "{{.State.Pid}}", container.id).stdout
            found = read(of_process(int(pid)))
            return found.processors, found.memory_limit, found.pids_limit

    assert group() == (1.0, 2 * GIB, 200)
    assert group("--cpus=0.25") == (0.25, 2 * GIB, 200)
    assert group("--memory=64m") == (1.0, 64 << 20, 200)
    assert group("--pids-limit=50") == (1.0, 2 * GIB, 50)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("options", "size"),
    [([], "524288k"), (["--shm-size=1g"], "1048576k"), (["--ipc=host"], None)],
)
def test_shared_memory_on_docker(
    limited: PrivateDockerd, options: list[str], size: str | None
) -> None:
    done = run(limited, *options, "--", *probe(["mounts"]), image="busybox", gpus="0,1")
    lines = [line for line in done.stdout.splitlines() if " /dev/shm " in line]
    assert len(lines) == 1
    assert size is None or f"size={size}" in lines[0]
    if size is None:
        assert "size=524288k" not in lines[0]
