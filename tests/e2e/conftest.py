"""Machines with GPUs for end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakehost import preset
from tests.harness import Bundle, Runtime, workspace
from tests.harness.machine import Machine


@pytest.fixture(scope="session")
def dgx() -> Iterator[Machine]:
    """A DGX A100 that all tests share: nobody changes it."""
    # Not in pytest's own directory, which other users, such as a container's, can't enter.
    path = workspace.make("dgx", Path("/var/tmp"))
    yield Machine(path)
    workspace.remove(path)


@pytest.fixture
def make_machine() -> Iterator[Callable[..., Machine]]:
    """Make machines of the test's own: changes to the DGX A100, or another description."""
    paths: list[Path] = []

    def make(description: Any = None, configuration: str = "", **changes: Any) -> Machine:
        paths.append(workspace.make("machine", Path("/var/tmp")))
        if description is None:
            description = preset("dgx_a100", **{"modify_device_files": 0, **changes})
        return Machine(paths[-1], description, configuration)

    yield make
    for path in paths:
        workspace.remove(path)


@pytest.fixture
def runtime_of(make_bundle: Callable[..., Bundle]) -> Iterator[Callable[[Machine], Runtime]]:
    """Give a machine's gpushim as a runtime, whose containers are deleted after the test."""
    made: list[Runtime] = []

    def get(machine: Machine, *options: str) -> Runtime:
        made.append(Runtime(machine.launcher, *options))
        return made[-1]

    yield get
    for runtime in made:
        runtime.close()


@pytest.fixture
def gpushim(dgx: Machine, runtime_of: Callable[[Machine], Runtime]) -> Runtime:
    """gpushim on the DGX A100, in place of runc."""
    return runtime_of(dgx)
