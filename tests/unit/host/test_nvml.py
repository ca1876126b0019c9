"""Asking NVML: the real pynvml against the fake host's library."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from gpushim.host import nvml

from tests.fakehost import Description, FakeHost, GpuSpec, build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")


def host(path: Path, *gpus: GpuSpec, **more: object) -> FakeHost:
    return build(path / "host", Description(gpus=list(gpus), **more))  # type: ignore[arg-type]


def ask(here: FakeHost, silence: float = 10.0, wake: tuple[str, ...] = ()) -> nvml.Answers:
    return nvml.ask(str(here.nvml), [gpu.bus for gpu in here.gpus], list(wake), silence)


def test_all_that_is_asked(tmp_path: Path) -> None:
    here = host(tmp_path, GpuSpec(mig=("1g.10gb",)), GpuSpec(model="NVIDIA GeForce RTX 4090"))
    found = ask(here)
    assert (found.problem, found.mismatch) == ("", False)
    assert (found.driver_version, found.cuda_version) == ("550.163.01", "12.4")
    first, second = (found.gpus[gpu.bus] for gpu in here.gpus)
    assert (first["compute_capability"], first["mig_enabled"]) == ("8.0", True)
    assert (second["compute_capability"], second["mig_enabled"]) == ("8.9", False)
    assert second["brand"] == "geforce"
    assert second["memory"] == here.gpus[1].memory
    assert second["reserved"] == here.gpus[1].reserved
    assert second["uuid"] == here.gpus[1].uuid


def test_a_driver_that_does_not_tell_its_own_memory_apart(tmp_path: Path) -> None:
    found = ask(host(tmp_path, GpuSpec(), driver="470.256.02"))
    (only,) = found.gpus.values()
    assert (found.problem, only["reserved"], only["compute_capability"]) == ("", None, "8.0")


@pytest.mark.parametrize("fault", ["broken", "lost"])
def test_one_that_fails_does_not_spoil_the_others(tmp_path: Path, fault: str) -> None:
    """B54."""
    here = host(tmp_path, GpuSpec(), GpuSpec(broken=fault == "broken"), GpuSpec())
    if fault == "lost":
        here.set_lost(1)
    found = ask(here)
    assert found.problem == ""
    assert ["error" in found.gpus[gpu.bus] for gpu in here.gpus] == [False, True, False]


def test_a_hang_ends_it_and_what_came_before_counts(tmp_path: Path) -> None:
    here = host(tmp_path, GpuSpec(), GpuSpec(), GpuSpec())
    here.hang_nvml()
    began = time.monotonic()
    found = ask(here, 0.7)
    assert time.monotonic() - began < 4
    assert "no answer for 0.7 seconds" in found.problem


def test_a_library_of_another_version(tmp_path: Path) -> None:
    here = host(tmp_path, GpuSpec(), kernel_driver="535.54.03")
    found = ask(here)
    assert found.mismatch
    assert "NVML says" in found.problem


def test_a_library_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("no library")
    found = nvml.ask(str(path), ["0000:07:00.0"], [], 10)
    assert "can't be loaded" in found.problem
    assert found.gpus == {}


def test_nodes_are_opened_even_without_a_library(tmp_path: Path) -> None:
    found = nvml.ask("", ["0000:07:00.0"], [str(tmp_path / "absent"), "/dev/null"], 10)
    assert found.problem == ""
    assert found.gpus == {}


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    here = host(tmp_path, GpuSpec())
    found = nvml.ask(str(here.nvml), ["0000:ff:00.0"], [], 10)
    assert "error" in found.gpus["0000:ff:00.0"]


def test_links_are_told_one_by_one(tmp_path: Path) -> None:
    """A driver that is slow with each answer is waited for, as with all other questions."""
    specs = [
        GpuSpec(links=("0000:41:00.0", "", "switch"), bus="0000:01:00.0"),
        GpuSpec(links=("0000:01:00.0", "", ""), bus="0000:41:00.0"),
        GpuSpec(model="NVIDIA L4", bus="0000:81:00.0"),
    ]
    here = host(tmp_path, *specs)
    here.set_delay(0.1)
    found = ask(here, 1.2)
    assert found.problem == ""
    assert [line.get("nvlinks") for line in found.gpus.values()] == [
        ["0000:41:00.0", "switch"],
        ["0000:01:00.0"],
        None,
    ]
    assert all(line["memory"] for line in found.gpus.values())
