"""The machines of the matrix, and the table that a run of it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import cannot
from tests.images import ImageUnavailable
from tests.matrix.cell import PLACES, WAYS, Cell, Place, Way
from tests.matrix.table import Outcome, write
from tests.rigs.shared import machine

CELLS = [(place, way) for place in PLACES for way in WAYS.values()]
# Those that each run of the suite looks at; all are for `make matrix`.
QUICK = [(place, way) for place, way in CELLS if place.cgroups == "systemd" and way.name == "gpus"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("matrix")
    group.addoption("--matrix", action="store_true", help="all cells of the matrix of engines")
    group.addoption("--matrix-table", metavar="DIRECTORY", help="where its table is written")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        cells = CELLS if metafunc.config.getoption("--matrix") else QUICK
        params = [
            pytest.param(
                (place, way),
                id=f"{place.suite}-{place.cgroups}-{way.name}",
                marks=pytest.mark.xdist_group(f"matrix-{place.suite}-{place.cgroups}"),
            )
            for place, way in cells
        ]
        metafunc.parametrize("cell", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    place: Place
    way: Way
    place, way = request.param
    rig = machine(place.suite, place.cgroups)
    try:
        try:
            rig.start()
        except ImageUnavailable as reason:
            cannot(f"no rig {place}: {reason}")
        if way.install:
            rig.ctl("install", *way.install)
        yield Cell(rig, place, way)
    finally:
        rig.stop()


@pytest.hookimpl
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    directory = config.getoption("--matrix-table")
    if not directory:
        return
    outcomes = [
        Outcome(report.outcome, dict(report.user_properties))
        for kind in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(kind, [])
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    found = [each for each in outcomes if "check" in each.properties]
    if found:
        paths = write(Path(directory), found)
        terminalreporter.write_line(f"The matrix is in {' and '.join(map(str, paths))}.")
