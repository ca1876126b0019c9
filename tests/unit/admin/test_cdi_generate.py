"""gpushimctl cdi generate: what is said of the place that a spec is written to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpushim.admin.cdi_generate import capabilities_of, remarks
from gpushim.errors import GpushimError

SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}],
}


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    for name in ("static", "dynamic", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("static")
    return [str(tmp_path / "link"), str(tmp_path / "dynamic"), str(tmp_path / "missing")]


def put(tmp_path: Path, name: str) -> str:
    (tmp_path / name).write_text(json.dumps(SPEC))
    return str(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "others", "words"),
    [
        ("static/nvidia.json", [], ""),
        ("link/nvidia.json", ["elsewhere/nvidia.json"], ""),
        ("dynamic/nvidia.json", ["static/vendor.json"], ""),
        ("elsewhere/nvidia.json", [], "is in none of the directories"),
        ("static/nvidia.yml", [], "ends in neither .json nor .yaml"),
        ("static/nvidia.json", ["static/vendor.json"], "static/vendor.json. Leave only one"),
        ("static/nvidia.json", ["dynamic/vendor.json"], "dynamic/vendor.json outrank those of"),
    ],
)
def test_what_keeps_a_spec_from_being_used(
    tmp_path: Path, directories: list[str], name: str, others: list[str], words: str
) -> None:
    for other in others:
        put(tmp_path, other)
    said = remarks(put(tmp_path, name), directories)
    assert len(said) == (1 if words else 0)
    assert words in "".join(said)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", ["compute", "utility"]),
        ("utility, all", ["compute", "utility"]),
        ("utility", ["utility"]),
        ("utility,compute,utility", ["compute", "utility"]),
    ],
)
def test_capabilities(text: str, expected: list[str]) -> None:
    assert capabilities_of(text, ["utility", "compute"]) == expected


@pytest.mark.parametrize(("text", "word"), [("", "none"), (",", "none"), ("video", "video")])
def test_capabilities_that_are_none(text: str, word: str) -> None:
    with pytest.raises(GpushimError, match=word):
        capabilities_of(text, ["utility", "compute"])
