"""What exec makes of the record of a container, of this version's and of the first's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushim.execute import add_variables
from gpushim.records import Record

WHOLE = {"index": 2, "uuid": "GPU-2", "minor": 0, "model": "m"}
MIG = [
    {"name": f"0:{n}", "uuid": f"MIG-{n}", "profile": "1g.10gb", "gpu": "GPU-0", "minor": 3}
    for n in (10, 2)
]


def variables(grant: Any, *present: str) -> dict[str, str]:
    record = Record("/r", {"grant": grant, "library_path": ""})
    changed = json.loads(add_variables(json.dumps({"env": list(present)}), record))
    return dict(entry.split("=", 1) for entry in changed["env"])


@pytest.mark.parametrize(
    ("grant", "visible"),
    [
        ({"gpus": [WHOLE], "capabilities": []}, "GPU-2"),  # as the first version kept it
        ({"gpus": [WHOLE], "mig": [], "capabilities": []}, "GPU-2"),
        ({"gpus": [WHOLE], "mig": MIG, "capabilities": []}, "MIG-2,MIG-10,GPU-2"),
        ({"gpus": [], "mig": MIG[:1], "capabilities": []}, "MIG-10"),
        ({"gpus": [], "capabilities": []}, "void"),
    ],
)
def test_what_a_process_sees(grant: dict[str, Any], visible: str) -> None:
    """In the order that create had."""
    assert variables(grant)["NVIDIA_VISIBLE_DEVICES"] == visible


def test_names_of_the_host_are_translated() -> None:
    grant = {"gpus": [WHOLE], "mig": MIG, "capabilities": []}
    seen = variables(grant, "CUDA_VISIBLE_DEVICES=0:10")
    assert seen["CUDA_VISIBLE_DEVICES"] == "MIG-10"


@pytest.mark.parametrize(
    "grant",
    [
        None, [], "x", {}, {"gpus": None}, {"gpus": [{}]}, {"gpus": [], "mig": [{"name": "x"}]},
        {"gpus": [], "mig": [{"name": "x:y", "uuid": "MIG-1"}]}, {"gpus": [], "mig": 3},
        {"gpus": [], "mig": [{"name": None, "uuid": "MIG-1"}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_record_changes_nothing(grant: Any) -> None:
    assert variables(grant, "A=b") == {"A": "b"}
