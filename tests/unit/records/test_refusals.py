"""Why containers were refused: kept by id, the latest ones only, for root alone."""

from __future__ import annotations

import os
from pathlib import Path

from gpushim import refusals


def test_a_refusal_comes_back(tmp_path: Path) -> None:
    directory = str(tmp_path / "run/refused")
    refusals.write(directory, "c1", {"sentence": "No.", "request": None})
    refusals.write(directory, "c1", {"sentence": "Still no.", "request": None})
    (found,) = refusals.every(directory)
    assert found["id"] == "c1"
    assert found["sentence"] == "Still no."
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert os.stat(f"{directory}/c1").st_mode & 0o777 == 0o600


def test_only_the_latest_are_kept(tmp_path: Path) -> None:
    directory = str(tmp_path)
    for number in range(70):
        refusals.write(directory, f"c{number}", {"sentence": "No."})
        os.utime(f"{directory}/c{number}", ns=(number, number))
    names = {data["id"] for data in refusals.every(directory)}
    assert len(names) == 64
    assert "c69" in names and "c5" not in names


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    assert refusals.every(str(tmp_path / "none")) == []
    (tmp_path / "c1").write_text("{")
    (tmp_path / "c2").write_text('{"format":1}')
    assert refusals.every(str(tmp_path)) == []
