"""Python or gpushim's code gone, replaced or slow: the launcher says so, and others start."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Bundle, Runtime, processes
from tests.harness.attempt import Attempts, set_launcher
from tests.harness.machine import Machine
from tests.harness.seen import NODES, devices, probe, variables

pytestmark = pytest.mark.e2e

SHIM = Path(__file__).resolve().parent.parent.parent / "shim"
EMPTY = ("void", "")

# An interpreter that says of itself that it is of another version.
_OTHER_VERSION = """#!/bin/sh
shift 2
exec {python} -I -S -c '
import sys
sys.version_info = (3, 9, 2, "final", 0)
sys.argv[:] = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
' "$@"
"""


@pytest.fixture
def here(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Attempts:
    machine = make_machine()
    return Attempts(machine, runtime_of(machine), make_bundle)


def test_python_is_gone(here: Attempts, tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    (tmp_path / "text").write_text("#!/bin/sh\n")
    for path in ("/no/such/python", directory, tmp_path / "text"):
        set_launcher(here.machine, python=path)
        assert here.others_start(*EMPTY)
        text = here.refused()
        assert str(path) in text
        assert "gpushimctl install" in text


def test_python_goes_while_a_container_runs(here: Attempts) -> None:
    """Its later processes are started all the same: the container has its GPUs."""
    runtime, bundle = here.runtime, here.bundle()
    bundle.config["process"]["args"] = probe(["sleep", "100"])
    bundle.write()
    runtime.create(bundle).check()
    runtime.start(bundle.id).check()
    set_launcher(here.machine, python="/no/such/python")
    file = runtime.directory / "process.json"
    args = probe(["open", *NODES], ["env"])
    file.write_text(json.dumps({**bundle.config["process"], "args": args}))
    seen = runtime.call("exec", "--process", file, bundle.id).check().stdout
    assert here.machine.node(1) in devices(seen)
    runtime.delete(bundle.id, "--force").check()


def test_the_path_of_the_caller_is_not_altered(here: Attempts) -> None:
    """Nor is anything else of its environment, when the launcher looks closely."""
    set_launcher(here.machine, python="/no/such/python")
    hook = {
        "path": "/bin/sh",
        "args": ["sh", "-c", f"tr '\\0' '\\n' </proc/$PPID/environ >{here.runtime.directory}/env"],
    }
    bundle = here.bundle("void")
    bundle.config["hooks"] = {"poststart": [hook]}
    bundle.write()
    here.runtime.run(bundle, environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}).check()
    seen = variables((here.runtime.directory / "env").read_text())
    assert seen["PATH"] == "/usr/sbin:/usr/bin:/sbin:/bin"
    assert "LC_ALL" not in seen


def test_the_code_is_gone(here: Attempts, tmp_path: Path) -> None:
    set_launcher(here.machine, code=tmp_path)
    assert here.others_start(*EMPTY)
    assert str(tmp_path) in here.refused()


def test_an_older_python(here: Attempts, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text(_OTHER_VERSION.format(python=sys.executable))
    old.chmod(0o755)
    set_launcher(here.machine, python=old)
    assert here.others_start()
    text = here.refused()
    assert "Python 3.10 or later" in text
    assert "3.9" in text


def test_a_python_that_is_broken(here: Attempts, tmp_path: Path) -> None:
    """It can say nothing in the engine's log; the create fails, and nothing is written."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'cannot load libpython' >&2\nexit 127\n")
    broken.chmod(0o755)
    set_launcher(here.machine, python=broken)
    assert here.others_start()
    bundle = here.bundle()
    result = here.runtime.create(bundle)
    assert result.status == 127
    assert "libpython" in result.stderr
    assert sorted(path.name for path in bundle.path.glob("config*")) == ["config.json"]


def test_code_that_is_read_only_and_not_compiled(here: Attempts, tmp_path: Path) -> None:
    code = tmp_path / "code"
    shutil.copytree(
        SHIM / "gpushim", code / "gpushim", ignore=shutil.ignore_patterns("__pycache__")
    )

    subprocess.run(["mount", "--bind", code, code], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", code], check=True)
        set_launcher(here.machine, code=code)
        assert here.granted()
        assert here.others_start(*EMPTY)
        assert not list(code.glob("**/__pycache__"))
    finally:
        processes.unmount_below(code)


def test_the_interpreter_of_refresh_is_gone(here: Attempts) -> None:
    """What is known already is still given; what has to be found out fails with the reason."""
    installation = Path(here.machine.places.installation)
    text = installation.read_text().replace(sys.executable, "/no/such/python")
    installation.write_text(text)
    set_launcher(here.machine, refresh_python="/no/such/python")
    assert here.granted()
    here.machine.forget()
    assert here.others_start(*EMPTY)
    assert "/no/such/python" in here.refused()
    assert "gpushimctl install" in here.refused()
