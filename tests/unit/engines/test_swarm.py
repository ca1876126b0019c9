"""What a node of Docker Swarm hands out, in daemon.json, and how it is taken out again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushim.engines import swarm
from gpushim.engines.jsontext import put
from gpushim.errors import GpushimError

A, B = "GPU-7af7a99b", "MIG-c0ffee00"
WHOLE = [f"NVIDIA-GPU={A}", f"NVIDIA-GPU={B}"]


def test_entries() -> None:
    assert swarm.entries([A, B], 0) == WHOLE
    assert swarm.entries([A], 2) == [f"NVIDIA-GPU-SLOT={A}/1of2", f"NVIDIA-GPU-SLOT={A}/2of2"]


@pytest.mark.parametrize("slots", [-1, 1, 51])
def test_numbers_of_slots_that_make_no_sense(slots: int) -> None:
    with pytest.raises(GpushimError, match="slots"):
        swarm.check_slots(slots)


@pytest.mark.parametrize("slots", [0, 2, 50])
def test_numbers_of_slots(slots: int) -> None:
    swarm.check_slots(slots)


@pytest.mark.parametrize(
    ("before", "merged"),
    [
        (None, WHOLE),
        ([], WHOLE),
        (["SSD=1", "NVIDIA-GPU=GPU-old", f"NVIDIA-GPU-SLOT={A}/1of2"], ["SSD=1", *WHOLE]),
        (["NVIDIA-GPUX=1"], ["NVIDIA-GPUX=1", *WHOLE]),
    ],
)
def test_what_was_there_before(before: list[str] | None, merged: list[str]) -> None:
    text = "{}" if before is None else json.dumps({swarm.MEMBER: before})
    assert swarm.merged(before, swarm.entries([A, B], 0)) == merged
    changed = put(text, [swarm.MEMBER], merged)
    undone = json.loads(swarm.without_ours(changed, merged, before))
    assert sorted(undone.get(swarm.MEMBER, [])) == sorted(before or [])
    assert (swarm.MEMBER in undone) == (before is not None)


def test_what_others_added_since_stays() -> None:
    text = json.dumps({swarm.MEMBER: [*WHOLE, "FPGA=1"], "mtu": 1})
    undone = json.loads(swarm.without_ours(text, [*WHOLE, "FPGA=1"], None))
    assert undone == {swarm.MEMBER: ["FPGA=1"], "mtu": 1}


@pytest.mark.parametrize("member", ["NVIDIA-GPU=1", {"a": 1}, [1], 3, False])
def test_a_member_of_another_type(member: Any) -> None:
    with pytest.raises(GpushimError, match="list of texts"):
        swarm.merged(member, WHOLE)
