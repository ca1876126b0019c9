"""install --default: what an image's baked NVIDIA_VISIBLE_DEVICES=all means then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.privateroot import Root

pytestmark = pytest.mark.e2e

KEY = "request.all-from-environment"


def value(root: Root) -> str:
    """What holds, as gpushimctl config shows it."""
    shown = json.loads(root.well("config", "--json"))
    return str(shown[KEY]["value"])


def test_a_default_runtime_gives_no_gpus_to_images_that_only_have_all(root: Root) -> None:
    """B39."""
    out = root.well("install", "--default")
    assert "--gpus" in out and "GPUSHIM_GPUS=all" in out and "is no request" in out
    text = Path(root.places.config).read_text()
    assert '\nall-from-environment = "none"\n' in text
    assert "Set by install --default" in text
    assert value(root) == "none"
    before = root.tree()
    root.well("install", "--default")
    assert root.tree() == before


def test_without_default_all_means_all(root: Root) -> None:
    assert "is no request" not in root.well("install")
    assert value(root) == "free"


def test_a_file_that_nobody_edited_is_written_anew(root: Root) -> None:
    root.well("install")
    root.well("install", "--default")
    assert value(root) == "none"


def test_an_edited_file_stays_and_the_consequence_is_told(root: Root) -> None:
    root.well("install")
    config = Path(root.places.config)
    config.write_text(config.read_text() + "# mine\n")
    before = config.read_bytes()
    out = root.well("install", "--default")
    assert config.read_bytes() == before
    assert "gives each of their containers all GPUs" in out
    assert 'all-from-environment = "none"' in out


def test_a_file_that_somebody_gave_stays(root: Root, tmp_path: Path) -> None:
    """What --config-from brought is as much somebody's work as an edit."""
    mine = tmp_path / "mine.toml"
    mine.write_text('[host]\ndev-root = "/other"\n')
    root.well("install", "--config-from", mine)
    out = root.well("install", "--default")
    assert Path(root.places.config).read_text() == mine.read_text()
    assert "gives each of their containers all GPUs" in out


def test_a_dry_run_shows_it(root: Root) -> None:
    root.well("install")
    out = root.well("install", "--default", "--dry-run")
    assert '+all-from-environment = "none"' in out
    assert value(root) == "free"
