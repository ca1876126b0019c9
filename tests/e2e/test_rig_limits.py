"""Limits of cgroup version 2 as a kernel with its controllers has them, under systemd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rigs import Rig, rig
from tests.rigs.ran import Ran, run, started

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("guest")]

MIB = 1 << 20
CONFIGURATION = "/etc/gpushim/config.toml"
MARK = "# limits\n"
EACH = """[limits]
cpus-per-gpu = 0.5
memory-per-gpu = "256m"
pids-per-gpu = 100
shm-per-gpu = "128m"
"""
UNIFIED = """numa = "bind"
[limits.unified]
"memory.high" = "200m"
"memory.swap.max" = "16m"
"memory.oom.group" = 1
"cpu.weight" = 250
"io.weight" = 300
"io.max" = "1:0 rbps=1048576"
"""


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[Rig]:
    found = rig(request, "forky", "guest")
    before = found.read(CONFIGURATION)
    yield found
    found.write(CONFIGURATION, before)


def configure(machine: Rig, text: str) -> Rig:
    """The machine with this behind what says where its fake host is.

    Each change costs a refresh, so the same text is left as it is.
    """
    now = machine.read(CONFIGURATION)
    wanted = f"{now.partition(MARK)[0]}{MARK}{text}"
    if now != wanted:
        machine.write(CONFIGURATION, wanted)
    return machine


@pytest.fixture
def plain(machine: Rig) -> Rig:
    """The machine with limits for each GPU."""
    return configure(machine, EACH)


@pytest.fixture
def unified(machine: Rig) -> Rig:
    """The machine with files of version 2, too, one of them about a disk in memory (1:0)."""
    machine.run("modprobe", "brd", "rd_nr=1", "rd_size=1024")
    return configure(machine, EACH + UNIFIED)


def asked(machine: Rig, *options: str, gpus: str = "0,1") -> Ran:
    return started(machine, "-e", f"NVIDIA_VISIBLE_DEVICES={gpus}", *options, image="busybox")


def scope(container: Ran) -> str:
    return f"docker-{container.id}.scope"


def group(container: Ran, *files: str) -> list[str]:
    """What the kernel has in these files of the container's group."""
    directory = f"/sys/fs/cgroup/system.slice/{scope(container)}"
    done = container.rig.run("head", "--quiet", *(f"{directory}/{file}" for file in files))
    return done.stdout.splitlines()


def shared_memory(container: Ran) -> int:
    """The size of /dev/shm in it, in bytes."""
    size = container.exec("stat", "-f", "-c", "%b %S", "/dev/shm").stdout.split()
    return int(size[0]) * int(size[1])


def resources(container: Ran) -> dict[str, Any]:
    """What the low-level runtime was given."""
    data = json.loads(container.rig.ctl("explain", "--json", container.id).stdout)
    found: dict[str, Any] = data["after"]["linux"]["resources"]
    return found


LIMITS = ("cpu.max", "memory.max", "pids.max")


def test_what_it_is_for(machine: Rig) -> None:
    """The machine is what the others of this file need."""
    info = json.loads(machine.docker("info", "--format={{json .}}", check=True).stdout)
    assert (info["CgroupVersion"], info["CgroupDriver"]) == ("2", "systemd")
    controllers = machine.read("/sys/fs/cgroup/cgroup.controllers").split()
    assert {"cpu", "io", "memory", "pids"} <= set(controllers) and "cpuset" not in controllers
    assert machine.read("/proc/1/comm") == "systemd\n"
    machine.ctl("doctor")


def test_in_proportion_to_gpus(plain: Rig) -> None:
    with asked(plain) as two:
        assert group(two, *LIMITS) == ["100000 100000", str(512 * MIB), "200"]
        assert shared_memory(two) == 256 * MIB
    # systemd counts in hundredths of a processor, upwards: this is a whole number of them.
    options = ["-e", "GPUSHIM_GPUS=1", "-e", "GPUSHIM_COMPUTE=50%"]
    with started(plain, *options, image="busybox") as part:
        assert group(part, *LIMITS) == ["25000 100000", str(128 * MIB), "50"]
        assert shared_memory(part) == 64 * MIB
    with started(plain, image="busybox") as without:
        assert group(without, *LIMITS[:2]) == ["max 100000", "max"]


def test_what_the_user_set_stays(plain: Rig) -> None:
    """B80: Docker gives as much swap as memory where nobody says more."""
    own = ["--cpus=0.25", "--memory=80m", "--pids-limit=50", "--shm-size=32m"]
    with asked(plain, *own) as container:
        assert group(container, *LIMITS, "memory.swap.max") == [
            *("25000 100000", str(80 * MIB), "50", str(80 * MIB)),
        ]
        assert shared_memory(container) == 32 * MIB
    with asked(plain, "--memory=80m", "--memory-swap=-1", "--cpu-shares=512") as container:
        found = group(container, *LIMITS, "memory.swap.max")
        assert found == ["100000 100000", str(80 * MIB), "200", "max"]


def test_who_takes_more_is_killed(plain: Rig) -> None:
    with asked(plain, "--memory=64m") as container:
        # Busybox keeps a line that never ends.
        done = container.exec("tail", "-n", "1", "/dev/zero")
        assert done.returncode == 137
        (killed,) = [line for line in group(container, "memory.events") if "oom_kill " in line]
        assert int(killed.split()[1]) > 0


def test_no_cpuset_where_the_user_asked_for_one(plain: Rig) -> None:
    gpus = ["-e", "NVIDIA_VISIBLE_DEVICES=0"]
    for numa in ("prefer", "off"):
        options = [*gpus, "-e", f"GPUSHIM_NUMA={numa}"]
        with started(plain, *options, image="busybox") as container:
            assert container.explained()["warnings"] == []
    done = run(plain, "--name=bound", *gpus, "-e", "GPUSHIM_NUMA=bind", image="busybox")
    plain.docker("rm", "bound", check=True)
    assert done.returncode == 125
    assert "asked for by environment GPUSHIM_NUMA=bind" in done.stderr
    assert "the cgroup controller 'cpuset' is not available" in done.stderr


def test_what_ps_and_explain_tell(plain: Rig) -> None:
    with asked(plain) as container:
        told = plain.ctl("ps").stdout
        (row,) = [line for line in told.splitlines() if container.id[:12] in line]
        assert " 1  " in row and row.rstrip().endswith(" of 512 MiB")
        leases = json.loads(plain.ctl("ps", "--json").stdout)["leases"]
        (shown,) = [lease["cgroup"] for lease in leases if lease["id"] == container.id]
        explained = container.explained()["cgroup"]
        for found in (shown, explained):
            limits = (found["processors"], found["memory_limit"], found["pids_limit"])
            assert limits == (1.0, 512 * MIB, 200)
            assert found["memory"] > 0 and found["cpu_seconds"] > 0 and found["pids"] == 1
            assert found["cpus"] is found["memory_nodes"] is None
        text = plain.ctl("explain", "--no-diff", container.id).stdout
        assert " of 512 MiB\n" in text and "processor time: 1 at once, " in text
        assert "processes and threads: 1 of 200\n" in text


def test_files_of_version_2(unified: Rig) -> None:
    """Each is there, none is said twice, and what cannot be is named."""
    with asked(unified, "--cpu-shares=512", gpus="4") as own:
        assert "cpu.weight" not in resources(own)["unified"]
        assert resources(own)["cpu"]["shares"] == 512
        assert group(own, "cpu.weight") != ["250"]
        assert "limits.unified cpu.weight" in str(own.explained()["notes"])
    with asked(unified) as container:
        files = ("memory.high", "memory.swap.max", "memory.oom.group", "cpu.weight", "io.max")
        assert group(container, *files) == [
            *(str(200 * MIB), str(16 * MIB), "1", "250"),
            "1:0 rbps=1048576 wbps=max riops=max wiops=max",
        ]
        assert group(container, *LIMITS) == ["100000 100000", str(512 * MIB), "200"]
        warnings = container.explained()["warnings"]
        assert any("limits.unified io.weight is not applied" in text for text in warnings)
        assert any("limits.numa 'bind' is not applied" in text for text in warnings)
        assert any("'cpuset'" in text for text in warnings)
        # What the warning of memory.oom.group says.
        assert any("memory.oom.group lasts until the next" in text for text in warnings)
        unified.run("systemctl", "daemon-reload")
        assert group(container, *files[:3]) == [str(200 * MIB), str(16 * MIB), "0"]


def test_limits_and_gpus_last(unified: Rig) -> None:
    """Both are in the spec, so that neither Docker nor systemd takes them away."""

    def holds(cpu: str, memory: int) -> None:
        seen = container.look()
        assert (seen.gpus, seen.allowed, seen.control) == ([0, 1], [0, 1], True), seen
        found = group(container, *LIMITS, "memory.high", "cpu.weight")
        assert found == [cpu, str(memory), "200", str(200 * MIB), "250"]

    with asked(unified) as container:
        holds("100000 100000", 512 * MIB)
        unified.run("systemctl", "daemon-reload")
        holds("100000 100000", 512 * MIB)
        sizes = ["--memory=300m", "--memory-swap=300m"]
        unified.docker("update", "--cpus=0.75", *sizes, container.id, check=True)
        holds("75000 100000", 300 * MIB)
        unified.run("systemctl", "daemon-reload")
        holds("75000 100000", 300 * MIB)
        unified.run("systemctl", "set-property", "--runtime", scope(container), "IOWeight=50")
        holds("75000 100000", 300 * MIB)


def test_one_file_instead_of_a_limit_for_each_gpu(machine: Rig) -> None:
    with_file = EACH + '[limits.unified]\n"memory.max" = "100m"\n"pids.max" = 70\n'
    with asked(configure(machine, with_file)) as container:
        assert group(container, *LIMITS) == ["100000 100000", str(100 * MIB), "70"]
        assert "limit" not in resources(container).get("memory", {})
        assert not resources(container).get("pids")
