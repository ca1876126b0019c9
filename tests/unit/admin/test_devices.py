"""What devices are called when people are told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpushim.admin.devices import Devices, at_hand
from gpushim.errors import GpushimError
from gpushim.places import Places

from tests.unit.allocate.machines import Machine, machine

A100 = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("3", f"GPU 3 ({A100})"),
        ("0,1", f"GPUs 0, 1 ({A100})"),
        ("7,0,2,1", f"GPUs 0 to 2, 7 ({A100})"),
        ("0,1,2,3,4,5,6,7", f"GPUs 0 to 7 ({A100})"),
        ("1,3,5", f"GPUs 1, 3, 5 ({A100})"),
    ],
)
def test_whole_gpus(names: str, expected: str) -> None:
    box = machine("dgx_a100")
    assert Devices(box.gpus).titled(uuids(box, names)) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("0:2", f"MIG device 0:2 (1g.10gb of {A100})"),
        ("1:0,1:1,1:2", f"MIG devices 1:0 to 1:2 (1g.10gb of {A100})"),
        # Those of two GPUs are no neighbours to people, nor are those of two profiles.
        ("0:3,1:0", f"MIG devices 0:3, 1:0 (1g.10gb of {A100})"),
        ("0:0,0:1", f"MIG devices 0:0 (3g.40gb of {A100}), 0:1 (2g.20gb of {A100})"),
        ("2,0:2", f"GPUs 2 ({A100}), 0:2 (1g.10gb of {A100})"),
        ("2", f"GPU 2 ({A100})"),
    ],
)
def test_parts_of_gpus(names: str, expected: str) -> None:
    box = machine("mig_host")
    assert Devices(box.gpus).titled(uuids(box, names)) == expected


def test_several_models() -> None:
    box = machine("mixed_lab")
    words = Devices(box.gpus).words(uuids(box, "2,0"))
    assert words == "0 (NVIDIA GeForce RTX 3090), 2 (Tesla T4)"


def test_what_is_not_known() -> None:
    """A GPU that was taken out, or none that anybody has looked for."""
    box = machine("workstation")
    known = Devices(box.gpus)
    there = box.uuid("0")
    assert known.words(["GPU-0123456789ab", there]) == f"0 ({box.gpus[0].model}), GPU-01234567"
    assert Devices([]).titled([there]) == f"GPU {there[:12]}"
    assert known.model("GPU-x") == ""
    assert known.parts("GPU-x") == {"GPU-x"}


def test_parts() -> None:
    box = machine("mig_host")
    known = Devices(box.gpus)
    assert known.parts(box.uuid("0")) == {box.uuid("0"), *uuids(box, "0:0,0:1,0:2,0:3")}
    assert known.parts(box.uuid("0:1")) == {box.uuid("0:1")}


def test_finding() -> None:
    box = machine("mig_host")
    known = Devices(box.gpus)
    for name in ("0", "2", "0:1", "1:6"):
        assert known.find(name) == box.uuid(name)
        assert known.find(box.uuid(name)) == box.uuid(name)
    with pytest.raises(GpushimError, match=r"'9' is no GPU of this machine: 0 = "):
        known.find("9")


def test_a_beginning_that_two_have() -> None:
    box = machine("dgx_a100")
    box.gpus[4].uuid = box.uuid("3")[:-1] + "-"
    with pytest.raises(GpushimError, match=f"means {box.uuid('3')}, {box.uuid('4')}"):
        Devices(box.gpus).find(box.uuid("3")[:-1])


def test_nobody_has_looked(tmp_path: Path) -> None:
    assert at_hand(Places(str(tmp_path))).gpus == []


def uuids(box: Machine, names: str) -> list[str]:
    return [box.uuid(name) for name in names.split(",")]
