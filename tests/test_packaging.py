"""The wheel holds all that runs, and says the right things about itself."""

from __future__ import annotations

import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("shim/gpushim", "hooks/gpushim_hooks", "specs/gpushim_specs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a copy, so that nothing is left in the working tree."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", *SOURCES):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    out = copy / "out"
    # No isolation: the build back end is installed, and a test needs no network.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    built = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture
def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def test_every_file_of_the_packages_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    expected = set()
    for source in SOURCES:
        for directory, subdirectories, files in os.walk(ROOT / source):
            subdirectories[:] = [d for d in subdirectories if d != "__pycache__"]
            base = Path(directory).relative_to((ROOT / source).parent)
            expected |= {str(base / f) for f in files if not f.endswith(".pyc")}
    inside = {n for n in wheel.namelist() if ".dist-info/" not in n}
    assert inside == expected


def test_launcher_and_schemas_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    inside = wheel.namelist()
    assert "gpushim/launcher.sh" in inside
    assert [n for n in inside if re.fullmatch(r"gpushim_specs/[a-z0-9-]+\.json", n)]


def test_no_test_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tops = {n.split("/")[0] for n in wheel.namelist() if ".dist-info/" not in n}
    assert tops == {"gpushim", "gpushim_hooks", "gpushim_specs"}


def test_metadata(metadata: email.message.Message) -> None:
    namespace: dict[str, str] = {}
    exec((ROOT / "shim/gpushim/__init__.py").read_text(), namespace)
    assert metadata["Name"] == "gpushim"
    assert metadata["Version"] == namespace["__version__"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"


def test_requirements_have_lower_bounds_and_never_name_pynvml(
    metadata: email.message.Message,
) -> None:
    """The distribution called pynvml would overwrite the module of nvidia-ml-py."""
    requirements = [str(r) for r in metadata.get_all("Requires-Dist", [])]
    names = {re.split(r"[^A-Za-z0-9._-]", r)[0].lower() for r in requirements}
    assert "nvidia-ml-py" in names
    assert not names & {"pynvml", "nvidia-ml-py3"}
    for requirement in requirements:
        if "extra ==" not in requirement:
            assert ">=" in requirement.split(";")[0], requirement


def test_console_script(wheel: zipfile.ZipFile) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/entry_points.txt"))
    assert "gpushimctl = gpushim.admin.cli:main" in wheel.read(name).decode()
