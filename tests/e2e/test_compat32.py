"""32-bit programs find the driver's 32-bit libraries (NVIDIA_DRIVER_CAPABILITIES: compat32)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakehost import Description, write_library
from tests.harness import Bundle, Runtime, workspace
from tests.harness.bundle import PROBE
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
LIB64, LIB32 = "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"
# The loader itself says what it would load; there need be no 32-bit program to run.
LIST = "/lib/ld-linux.so.2 --list /needs32.so; "
LOAD = f"{PROBE} dlopen {' '.join(LIBRARIES)}; "


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    path = workspace.make("compat32", Path("/var/tmp"))
    yield Machine(path, Description(gpus=1, modify_device_files=0))
    workspace.remove(path)


@pytest.fixture
def needs32(tmp_path: Path) -> Path:
    """A 32-bit library that needs the driver's."""
    for name in LIBRARIES:
        write_library(tmp_path / name, name, bits=32)
    made = tmp_path / "needs32.so"
    command = ["gcc", "-m32", "-shared", "-nostdlib", "-Wl,--no-as-needed", "-o", str(made)]
    command += [str(tmp_path / name) for name in LIBRARIES]
    subprocess.run(command, check=True)
    return made


def run(
    runtime: Runtime,
    make_bundle: MakeBundle,
    needs32: Path,
    script: str,
    env: list[str],
    **how: bool,
) -> list[str]:
    bundle = make_bundle("debian32", ["/bin/sh", "-c", script], env=env, **how)
    (bundle.rootfs / "needs32.so").write_bytes(needs32.read_bytes())
    return [line.strip() for line in runtime.run(bundle).check().stdout.splitlines()]


@pytest.mark.parametrize("readonly", [False, True])
def test_both_loaders_find_their_own(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    needs32: Path,
    readonly: bool,
) -> None:
    """The cache has both, each with its flags; an ldconfig in the container leaves it so."""
    env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute,utility,compat32"]
    again = "" if readonly else "ldconfig && " + LIST + LOAD
    seen = run(
        runtime_of(machine), make_bundle, needs32, LIST + LOAD + again, env, readonly=readonly
    )
    for name in LIBRARIES:
        found = [line for line in seen if line.startswith(f"{name} => {LIB32}/{name} (0x")]
        assert len(found) == (1 if readonly else 2), seen
        assert seen.count(f"{name} -> {LIB64}/{name}") == (1 if readonly else 2), seen


def test_without_it_there_are_none(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    needs32: Path,
) -> None:
    env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    seen = run(runtime_of(machine), make_bundle, needs32, LIST + LOAD + f"ls {LIB32}", env)
    assert not any(LIB32 + "/" in line for line in seen), seen
    assert f"libcuda.so.1 -> {LIB64}/libcuda.so.1" in seen
    assert seen[-1].startswith("libnvidia-ml.so.1 ->"), "its directory is empty"


def test_alone_it_gives_nothing(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    needs32: Path,
) -> None:
    """It says in which form other capabilities come, as with the vendor's runtime."""
    env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compat32"]
    seen = run(runtime_of(machine), make_bundle, needs32, f"ls {LIB32} {LIB64}", env)
    assert [line for line in seen if line.startswith("lib")] == []
