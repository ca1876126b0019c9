"""The linters are tests, so that nobody can forget to run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import cannot

ROOT = Path(__file__).resolve().parent.parent
SHELLS = (b"sh", b"bash", b"dash")
SKIPPED = {".git", ".venv", "build", "dist", "__pycache__"}

pytestmark = pytest.mark.xdist_group("linters")


def is_shell_script(path: Path) -> bool:
    """Tell a shell script by its name or by the interpreter in its first line."""
    if path.is_symlink() or not path.is_file():
        return False
    if path.suffix == ".sh":
        return True
    with path.open("rb") as f:
        first = f.readline(100)
    if not first.startswith(b"#!"):
        return False
    words = first[2:].split()
    names = [w.rsplit(b"/", 1)[-1] for w in words[:2]]
    return bool(names) and (names[0] in SHELLS or (names[0] == b"env" and names[-1] in SHELLS))


def source_files() -> list[Path]:
    """List the files of the project itself: a walk, since a release tarball has no git."""
    found: list[Path] = []
    for directory, subdirectories, files in os.walk(ROOT):
        subdirectories[:] = [
            d
            for d in subdirectories
            if d not in SKIPPED and not d.endswith(("_cache", ".egg-info"))
        ]
        found += [Path(directory, name) for name in files]
    return sorted(found)


def run(*command: str) -> None:
    """Run a linter in the project's root; what it prints is the failure's text."""
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "0"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command[:6])}\n{result.stdout}{result.stderr}"


def test_ruff_check() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_ruff_format() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


def test_mypy() -> None:
    run(sys.executable, "-m", "mypy", "--strict")


def test_shellcheck() -> None:
    tool = shutil.which("shellcheck")
    if tool is None:
        cannot("shellcheck is not installed")
    scripts = [str(p.relative_to(ROOT)) for p in source_files() if is_shell_script(p)]
    assert "packaging/dev-setup.sh" in scripts, "the search for shell scripts is broken"
    run(tool, "--external-sources", *scripts)
