"""gpushim and all that it needs as wheels, for a machine that has no network."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.images import ImageUnavailable, cache
from tests.rigs.roots import collect, locked

_PROJECT = Path(__file__).resolve().parents[2]
_CONSTRAINTS = _PROJECT / "packaging/constraints-ci.txt"
_SOURCES = ("shim/gpushim", "hooks/gpushim_hooks", "specs/gpushim_specs")
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
# What both distributions' C libraries can load.
_PLATFORM = f"manylinux_2_17_{os.uname().machine}"


def _run(*command: str | Path, cwd: Path = _PROJECT) -> None:
    done = subprocess.run([str(w) for w in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        text = f"{done.stdout}\n{done.stderr}".strip()[-2000:]
        raise ImageUnavailable(f"{' '.join(map(str, command[:4]))} failed: {text}")


@functools.cache
def own() -> tuple[str, bytes]:
    """The wheel of the working tree as it is now: name and content."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "source")
        for name in ("pyproject.toml", "README.md", "LICENSE", *_SOURCES):
            source, target = _PROJECT / name, copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        # No isolation: the build back end is among the test requirements.
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
        _run(*build, directory, cwd=copy)
        (wheel,) = Path(directory).glob("*.whl")
        return wheel.name, wheel.read_bytes()


def _fetch(python: str, wheel: Path, directory: Path) -> None:
    """Get the wheels of all that a wheel needs, for another Python than the one that runs this.

    For a foreign Python pip takes only ready wheels, so what is published as source alone (it has
    no compiled parts) is built by this one first.
    """
    local = directory / "local"
    _run(*_PIP, "wheel", "--use-pep517", "-c", _CONSTRAINTS, "-w", local, wheel)
    _run(
        *(*_PIP, "download", "--only-binary=:all:", "--implementation=cp"),
        *(f"--python-version={python}", f"--platform={_PLATFORM}", f"--find-links={local}"),
        *("-c", _CONSTRAINTS, "-d", directory, wheel),
    )
    shutil.rmtree(local)
    (directory / wheel.name).unlink()


def house(python: str, destination: Path) -> None:
    """Fill a directory with the wheels for a Python ("3.13"), gpushim's own among them.

    The others are kept until the requirements change. Raises ImageUnavailable if they can't be had.
    """
    name, content = own()
    kept = cache.directory()
    wanted = (_PROJECT / "pyproject.toml").read_bytes() + _CONSTRAINTS.read_bytes()
    key = hashlib.sha256(wanted + python.encode()).hexdigest()[:16]
    final = kept / f"wheels-{python}-{key}"
    with locked(kept / f"wheels-{python}.lock"):
        if not final.is_dir():
            work = Path(tempfile.mkdtemp(prefix="new-", dir=kept))
            try:
                (work / "wheels").mkdir()
                (work / name).write_bytes(content)
                _fetch(python, work / name, work / "wheels")
                (work / "wheels").rename(final)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        collect(kept, f"wheels-{python}", final)
    destination.mkdir(parents=True)
    for path in final.iterdir():
        shutil.copy(path, destination)
    (destination / name).write_bytes(content)
