"""A create from the engine's call to the low-level runtime's, which here only says what it saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.machine import Machine
from tests.unit.launcher.rendered import CODE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An empty root for the states of containers."""
    path = tmp_path / "state"
    path.mkdir()
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.json"


def options(state: Path, log: Path) -> list[str]:
    return ["--root", str(state), "--log", str(log), "--log-format", "json"]


def message(log: Path) -> str:
    (line,) = log.read_text().splitlines()
    entry: dict[str, Any] = json.loads(line)
    assert entry["level"] == "error"
    text: str = entry["msg"]
    return text


def own_log(machine: Machine) -> list[dict[str, Any]]:
    return [json.loads(line) for line in machine.installed.log.splitlines()]


def files(bundle: Path) -> list[str]:
    return sorted(path.name for path in bundle.iterdir())


@pytest.fixture
def clean(machine: Machine) -> Iterator[Machine]:
    bundle = machine.bundle()
    for path in bundle.glob("config.json.*"):
        path.unlink()
    yield machine


def test_a_container_gets_its_gpus(clean: Machine, state: Path, log: Path) -> None:
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=1", "X=1")
    done = clean.call(*options(state, log), "create", "--bundle", bundle, "c1")
    assert (done.returncode, done.stderr) == (0, "")
    assert not log.exists()
    assert clean.reached()
    spec = json.loads((bundle / "config.json").read_text())
    uuid = clean.host.gpu(1).uuid
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}" in spec["process"]["env"]
    paths = [device["path"] for device in spec["linux"]["devices"]]
    assert "/dev/nvidiactl" in paths
    assert len([path for path in paths if path[-1].isdigit()]) == 1
    entry = own_log(clean)[-1]
    assert (entry["level"], entry["id"]) == ("info", "c1")
    assert entry["grant"]["gpus"][0]["uuid"] == uuid


def test_twice_is_once(clean: Machine, state: Path, log: Path) -> None:
    """B05: an engine that tries again."""
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=all")
    contents = []
    for _ in range(3):
        clean.call(*options(state, log), "create", "--bundle", bundle, "c1")
        contents.append((bundle / "config.json").read_bytes())
    assert contents[1:] == contents[:-1]


def test_a_gpu_that_is_not_there(clean: Machine, state: Path, log: Path) -> None:
    """B36: nothing is written, and the sentence is where an engine looks for it."""
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=0,7")
    before = (bundle / "config.json").read_bytes()
    done = clean.call(*options(state, log), "create", "--bundle", bundle, "c2")
    assert done.returncode == 1
    assert clean.reached() is None
    assert (bundle / "config.json").read_bytes() == before
    assert files(bundle) == ["config.json", "rootfs"]
    assert not Path(clean.installed.places.containers, "c2").exists()
    assert "'7'" in message(log)
    assert clean.host.gpu(0).uuid in message(log)
    assert done.stderr == message(log) + "\n"
    entry = own_log(clean)[-1]
    assert (entry["level"], entry["id"]) == ("error", "c2")


def test_a_record_that_cannot_be_kept(clean: Machine, state: Path, log: Path) -> None:
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=0")
    before = (bundle / "config.json").read_bytes()
    name = "x" * 300
    done = clean.call(*options(state, log), "create", "--bundle", bundle, name)
    assert done.returncode == 1
    assert "cannot be kept" in message(log)
    assert (bundle / "config.json").read_bytes() == before
    assert files(bundle) == ["config.json", "rootfs"]


def test_a_name_that_is_taken(clean: Machine, state: Path, log: Path) -> None:
    """A create that must fail does not replace the record of the container that lives."""
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=0")
    assert clean.call(*options(state, log), "create", "--bundle", bundle, "c3").returncode == 0
    (state / "c3").mkdir()
    before = [path.read_text() for path in Path(clean.installed.places.containers, "c3").iterdir()
              if path.suffix == ".json"]  # fmt: skip
    spec = (bundle / "config.json").read_bytes()
    done = clean.call(*options(state, log), "create", "--bundle", bundle, "c3")
    assert done.returncode == 1
    assert "c3 exists already" in message(log)
    after = [path.read_text() for path in Path(clean.installed.places.containers, "c3").iterdir()
             if path.suffix == ".json"]  # fmt: skip
    assert after == before
    assert (bundle / "config.json").read_bytes() == spec


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ""])
def test_names_that_lead_elsewhere(clean: Machine, state: Path, log: Path, name: str) -> None:
    """The low-level runtime refuses them in its own words; nothing is written before."""
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=0")
    before = (bundle / "config.json").read_bytes()
    assert clean.call(*options(state, log), "create", "--bundle", bundle, name).returncode == 0
    assert clean.reached()
    assert (bundle / "config.json").read_bytes() == before
    assert files(bundle) == ["config.json", "rootfs"]


def test_a_spec_that_is_broken(clean: Machine, state: Path, log: Path) -> None:
    bundle = clean.bundle()
    text = '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"process":{}}'
    (bundle / "config.json").write_text(text)
    done = clean.call(*options(state, log), "create", "--bundle", bundle, "c4")
    assert (done.returncode, clean.reached()) == (1, None)
    assert "process is there twice" in message(log)


@pytest.mark.parametrize(
    ("before", "after"),
    [('"process"', '"Process"'), ('"env"', '"ENV"'), ('"process"', '"proce\u017f\u017f"')],
)
def test_a_spec_that_only_some_readers_understand(
    clean: Machine, state: Path, log: Path, before: str, after: str
) -> None:
    """For runc a member's name may be in upper case, so the request counts for it."""
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=0")
    config = bundle / "config.json"
    config.write_text(config.read_text().replace(before, after))
    done = clean.call(*options(state, log), "create", "--bundle", bundle, "c1")
    assert (done.returncode, clean.reached()) == (1, None)
    assert "counts for some readers of JSON" in message(log)
    config.write_text(config.read_text().replace("NVIDIA_VISIBLE_DEVICES", "OTHER"))
    assert clean.call("--root", state, "create", "--bundle", bundle, "c1").returncode == 0


def test_a_spec_that_is_too_large(clean: Machine, state: Path, log: Path) -> None:
    """What gpushim does not read may still ask for a GPU."""
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=0")
    config = bundle / "config.json"
    config.write_text(config.read_text() + " " * (64 << 20))
    done = clean.call(*options(state, log), "create", "--bundle", bundle, "c1")
    assert (done.returncode, clean.reached()) == (1, None)
    assert "larger than 64 MiB" in message(log)


def test_a_spec_that_is_broken_and_asks_for_nothing(clean: Machine, state: Path, log: Path) -> None:
    """A word that only looks like a request made the launcher ask: it is not gpushim's to judge."""
    bundle = clean.bundle()
    (bundle / "config.json").write_text('{"a":"nvidia-container-toolkit"","b":1,"b":2}')
    assert clean.call(*options(state, log), "create", "--bundle", bundle, "c5").returncode == 0
    assert clean.reached()


def test_the_low_level_runtime_cannot_be_executed(
    clean: Machine, state: Path, log: Path, tmp_path: Path
) -> None:
    """Between the launcher's look and the exec it may go away, or be no program at all."""
    entry = f"{CODE}/gpushim/entry.py"
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    bundle = clean.bundle("NVIDIA_VISIBLE_DEVICES=void")
    for low_level in ("/nowhere/runc", tmp_path / "text"):
        log.unlink(missing_ok=True)
        words = [str(clean.installed.root), str(low_level), "runc", "", "", *options(state, log)]
        words.insert(0, "create")
        done = subprocess.run(
            [clean.python, "-I", "-S", entry, *words, "create", "-b", bundle, "c1"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert f"{low_level} cannot be executed" in message(log)
        assert "no such file" not in message(log).lower()
        assert done.stderr == message(log) + "\n"


_FAILING = """
import sys
sys.path.insert(0, {code!r})
import gpushim.main as main
def fail(call):
    {statement}
main._prepare = fail
words = ["", "/bin/true", "runc", "", ""]
main.main([*words, "--log", {log!r}, "--log-format", "json", "create", "c"])
"""


def failing(statement: str, log: Path) -> subprocess.CompletedProcess[str]:
    program = _FAILING.format(code=str(CODE), statement=statement, log=str(log))
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True
    )


def test_a_fault_of_its_own_is_one_line(log: Path) -> None:
    done = failing("{}['key']", log)
    assert done.returncode == 1
    assert "KeyError: 'key'" in message(log)
    assert "report" in message(log)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_recursion_is_a_fault_like_others(log: Path) -> None:
    done = failing("fail(call)", log)
    assert done.returncode == 1
    assert "RecursionError" in message(log)


def test_an_interrupt_ends_it_without_a_traceback(log: Path) -> None:
    done = failing("import signal; signal.raise_signal(2)", log)
    assert done.returncode == -2
    assert done.stderr == ""
