"""One fake host for all tests of the driver's files."""

from __future__ import annotations

import pytest

from tests.fakehost import Description, FakeHost, build

VERSION = "550.163.01"


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> FakeHost:
    return build(tmp_path_factory.mktemp("host"), Description(gpus=1, driver=VERSION))
