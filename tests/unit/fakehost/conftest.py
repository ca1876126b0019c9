"""Helpers for the tests of the fake host itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakehost import Description, FakeHost, build


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid():
        pytest.skip("device nodes can be made by root only")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., FakeHost]:
    """Builds a host of a description, or of single fields of one; without what takes time."""

    def _make(description: Description | None = None, **fields: Any) -> FakeHost:
        fields = {"lib32": False, "graphics": False, "ldcache": False, **fields}
        return build(tmp_path / "host", description or Description(**fields))

    return _make
