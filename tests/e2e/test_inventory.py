"""An installation on a machine with GPUs: what refresh, inventory and doctor tell of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.places import Places

from tests.fakehost import Description, FakeHost, GpuSpec, build
from tests.harness import PrivateDockerd

pytestmark = pytest.mark.e2e


class Machine:
    """A fake host and a private installation on it."""

    def __init__(self, path: Path) -> None:
        gpus = [GpuSpec(), GpuSpec(broken=True), GpuSpec(mig=())]
        self.host: FakeHost = build(path / "host", Description(gpus=gpus, minors="reversed"))
        self.places = Places(str(path / "root"))
        os.mkdir(self.places.root)
        (path / "config.toml").write_text(self.host.toml())
        self.first = self.ctl("install", "--config-from", str(path / "config.toml"))
        assert self.first.returncode == 0, self.first.stderr

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", self.places.root]
        # Tables are as wide as they need be where nobody says how wide that is.
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        return subprocess.run(
            [*command, *arguments],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            env=environment,
        )

    def json(self, *arguments: str) -> Any:
        done = self.ctl(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    yield Machine(tmp_path_factory.mktemp("machine"))


def test_install_finds_the_gpus_at_once(machine: Machine) -> None:
    assert "Found 3 GPUs (1 of them not usable)" in machine.first.stdout


def test_inventory(machine: Machine) -> None:
    shown = machine.json("inventory")
    assert [(gpu["uuid"], gpu["minor"]) for gpu in shown["gpus"]] == [
        (gpu.uuid, gpu.minor) for gpu in machine.host.gpus
    ]
    done = machine.ctl("inventory")
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if "GPU-" in line]
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert f"NVIDIA driver {shown['driver_version']}" in done.stdout
    assert rows[0].rstrip().endswith("ok")
    assert not rows[1].rstrip().endswith("ok")
    assert rows[0].split()[-2] == "off"
    assert rows[2].split()[-2] == "on"


def test_refresh(machine: Machine) -> None:
    shown = machine.json("refresh")
    assert len(shown["gpus"]) == 3
    assert "Found 3 GPUs" in machine.ctl("refresh").stdout


def test_doctor_finds_the_broken_gpu(machine: Machine) -> None:
    report = machine.json("doctor", "--only", "gpu", "--only", "driver")
    assert report["driver.loaded"]["status"] == "ok"
    assert report["driver.versions-match"]["status"] == "ok"
    assert report["gpu.health"]["status"] == "warn"
    assert "GPU 1" in report["gpu.health"]["seen"]
    assert report["gpu.mig"]["status"] == "warn"
    assert "GPU 2 is in MIG mode" in report["gpu.mig"]["seen"]


def test_a_wrong_configuration_is_told_by_refresh(machine: Machine) -> None:
    path = Path(machine.places.config)
    content = path.read_text()
    try:
        path.write_text(content + "[runtime]\nlog-levle = 1\n")
        done = machine.ctl("refresh")
        assert done.returncode == 1
        assert "did you mean log-level" in done.stderr
    finally:
        path.write_text(content)
    assert machine.ctl("refresh").returncode == 0


@pytest.mark.docker
def test_explain_knows_a_container_by_its_name(machine: Machine, dockerd: PrivateDockerd) -> None:
    machine.host.set_modify_device_files(0)
    content = dockerd.config_path.read_bytes()
    where = ["--config", str(dockerd.config_path), "--pidfile", str(dockerd.run / "docker.pid")]
    image = dockerd.import_image("busybox")
    assert machine.ctl("install", *where).returncode == 0
    options = ["--network=none", "--runtime=gpushim", "-e", "NVIDIA_VISIBLE_DEVICES=2"]
    try:
        done = dockerd.docker("run", "-d", "--name=web", *options, image, "sleep", "60")
        assert done.returncode == 0, done.stderr
        container = done.stdout.strip()
        shown = machine.json("explain", "web")
        assert shown["id"] == container
        assert shown["request"]["devices"] == ["2"]
        assert [gpu["uuid"] for gpu in shown["grant"]["gpus"]] == [machine.host.gpus[2].uuid]
        assert shown["before"] != shown["after"]
        told = machine.ctl("explain", container[:8]).stdout
        assert "environment NVIDIA_VISIBLE_DEVICES=2" in told
        assert f"Warning: GPU 2 ({machine.host.gpus[2].uuid}) is in MIG mode" in told
        assert "Note: The driver's libraries were merged into /etc/ld.so.cache." in told
        # What has GPUs keeps its runtime.
        refused = machine.ctl("uninstall")
        assert refused.returncode == 1
        assert container in refused.stderr
        assert os.path.exists(machine.places.launcher)
        assert "runtime gpushim: web." in refused.stderr
        # Forced, it leaves what the container uses, and says how to end that.
        forced = machine.ctl("uninstall", "--force", "--keep-config")
        assert forced.returncode == 0, forced.stderr
        assert "stay, with records and driver files" in forced.stdout
        assert not os.path.exists(machine.places.launcher)
        assert os.listdir(machine.places.driver_trees)
        assert machine.ctl("uninstall", "--keep-config").returncode == 1
        assert machine.ctl("install", *where).returncode == 0
    finally:
        dockerd.docker("rm", "--force", "web")
    assert machine.ctl("explain", container[:8]).returncode == 1
    assert machine.ctl("uninstall").returncode == 0
    assert dockerd.config_path.read_bytes() == content
    for backup in dockerd.config_path.parent.glob("*.bak-gpushim-*"):
        backup.unlink()
