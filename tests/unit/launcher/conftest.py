from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launcher.machine import Machine
from tests.unit.launcher.rendered import Launcher, build_dump


@pytest.fixture(scope="session")
def dump_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_dump(tmp_path_factory.mktemp("dump"))


@pytest.fixture
def launcher(tmp_path: Path, dump_program: Path) -> Launcher:
    """A launcher that is ready to be rendered (`install`)."""
    return Launcher(tmp_path / "host", dump_program)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, dump_program: Path) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"), dump_program)
