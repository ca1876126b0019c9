"""Each row of the matrix in each of its cells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.matrix.cell import Cell
from tests.matrix.checks import CHECKS, NotHere

pytestmark = [pytest.mark.e2e]


@pytest.mark.parametrize("title", CHECKS)
def test_holds(cell: Cell, title: str, record_property: Any) -> None:
    record_property("check", title)
    record_property("suite", cell.place.suite)
    record_property("place", cell.place.title)
    record_property("way", cell.way.title)
    record_property("facts", json.dumps(cell.facts()))
    try:
        CHECKS[title](cell)
    except NotHere as reason:
        record_property("not here", str(reason))
