"""Machines with GPUs for end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cannot
from tests.fakehost import preset
from tests.harness import Bundle, EngineUnavailable, PrivateDockerd, Runtime, workspace
from tests.harness.leased import Here
from tests.harness.machine import Machine
from tests.harness.privateroot import Root


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


@pytest.fixture
def make_here(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Callable[..., Here]:
    """Asks on a machine with this configuration: a DGX A100, or what is described."""

    def make(configuration: str = "", name: str = "dgx_a100", **changes: object) -> Here:
        described = preset(name, modify_device_files=0, **changes)
        machine = make_machine(described, configuration)
        return Here(machine, runtime_of(machine), make_bundle)

    return make


@pytest.fixture
def here(make_here: Callable[..., Here]) -> Here:
    return make_here()


@pytest.fixture(scope="session")
def engine(dgx: Machine) -> Iterator[PrivateDockerd]:
    """A dockerd on the DGX A100 whose default runtime is gpushim.

    Runtimes: gpushim, runc, and "noted", which is gpushim behind a script that keeps each spec as
    the engine wrote it in ``base/specs/<id>.json``. An executable with the name of the vendor's
    hook is on its PATH, since Docker offers ``--gpus`` only then; it notes that it was run in
    ``base/hook-ran``.
    """
    tools = workspace.make("tools", Path("/var/tmp"))
    noted = tools / "noted"
    engine = PrivateDockerd(
        config={"default-runtime": "gpushim"},
        runtimes={"gpushim": {"path": str(dgx.launcher)}, "noted": {"path": str(noted)}},
        path=[tools],
    )
    (engine.base / "specs").mkdir()
    noted.write_text(
        "#!/bin/sh\n"
        "for word; do case $before:$word in --bundle:*) bundle=$word ;; esac; before=$word; done\n"
        f'[ "$bundle" ] && cp "$bundle/config.json" {engine.base}/specs/${{bundle##*/}}.json\n'
        f'exec {dgx.launcher} "$@"\n'
    )
    hook = tools / "nvidia-container-runtime-hook"
    hook.write_text(f"#!/bin/sh\ntouch {engine.base}/hook-ran\n")
    for program in (noted, hook):
        program.chmod(0o755)
    try:
        engine.start()
    except EngineUnavailable as reason:
        engine.stop()
        cannot(str(reason))
    yield engine
    engine.stop()
    workspace.remove(tools)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    # Others must be able to look in, as they can at the real places.
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    (tmp_path / "a root's").mkdir()
    return Root(tmp_path / "a root's")
