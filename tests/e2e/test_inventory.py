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

pytestmark = pytest.mark.e2e


class Machine:
    """A fake host and a private installation on it."""

    def __init__(self, path: Path) -> None:
        gpus = [GpuSpec(), GpuSpec(broken=True), GpuSpec()]
        self.host: FakeHost = build(path / "host", Description(gpus=gpus, minors="reversed"))
        self.places = Places(str(path / "root"))
        os.mkdir(self.places.root)
        (path / "config.toml").write_text(self.host.toml())
        self.first = self.ctl("install", "--config-from", str(path / "config.toml"))
        assert self.first.returncode == 0, self.first.stderr

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", self.places.root]
        return subprocess.run(
            [*command, *arguments], capture_output=True, encoding="utf-8", timeout=120
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
