"""The rigs themselves: their engines, gpushim in them, and what is left when they have ended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from tests.conftest import cannot
from tests.images import ImageUnavailable
from tests.rigs import Rig, rig
from tests.rigs.look import LOOK, Seen
from tests.rigs.rig import Cgroups

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rigs")]

SUITES = ["trixie", "forky"]
CGROUPS: tuple[Cgroups, ...] = get_args(Cgroups)


@pytest.mark.parametrize(("suite", "oldest"), [("trixie", 26), ("forky", 28)])
def test_its_engine(request: pytest.FixtureRequest, suite: str, oldest: int) -> None:
    machine = rig(request, suite)
    info = json.loads(machine.docker("info", "--format={{json .}}", check=True).stdout)
    assert int(info["ServerVersion"].split(".")[0]) >= oldest
    assert info["Runtimes"]["gpushim"]["path"] == "/usr/local/bin/gpushim"
    assert info["DefaultRuntime"] == "runc"
    assert "/etc/cdi" in info["CDISpecDirs"]
    assert machine.docker("compose", "version", "--short").stdout.startswith(("2.", "v2.", "5."))


@pytest.mark.parametrize("suite", SUITES)
def test_gpushim_in_it(request: pytest.FixtureRequest, suite: str) -> None:
    machine = rig(request, suite)
    assert machine.run("gpushim", "--version").stdout == machine.run("runc", "--version").stdout
    machine.ctl("doctor", "--skip=docker", check=True)
    options = ["--rm", "--network=none", "--runtime=gpushim", "-e", "NVIDIA_VISIBLE_DEVICES=1,3"]
    done = machine.docker("run", *options, machine.image("debian"), *LOOK)
    assert done.returncode == 0, done.stderr
    seen = Seen(machine, done.stdout)
    assert seen.has(1, 3), seen


def own_groups() -> list[Path]:
    """The control groups of this session's rigs, some of which may be in use."""
    return list(Path("/sys/fs/cgroup").glob(f"**/gpushim-rig-{os.getpid()}-*"))


@pytest.mark.parametrize("cgroups", CGROUPS)
def test_nothing_is_left(cgroups: Cgroups) -> None:
    before = set(own_groups())
    machine = Rig("forky", cgroups)
    try:
        machine.start()
        image = machine.image("busybox")
        gpu = ["--network=none", "--runtime=gpushim", "-e", "NVIDIA_VISIBLE_DEVICES=1"]
        machine.docker("run", "-d", *gpu, image, "sleep", "300", check=True)
        done = machine.docker("run", "--rm", *gpu, image, *LOOK)
        assert Seen(machine, done.stdout).allowed == [1], done
        version = machine.docker("info", "--format={{.CgroupVersion}}").stdout.strip()
        assert version == "2" or cgroups == "host"
        inside = f"/proc/{machine.pid}/root/run/docker.sock"
        assert os.path.exists(inside)
    except ImageUnavailable as reason:
        cannot(str(reason))
    finally:
        machine.stop()
    assert not os.path.exists(inside)
    assert not machine.work.exists()
    assert str(machine.work) not in Path("/proc/self/mountinfo").read_text()
    assert set(own_groups()) == before
