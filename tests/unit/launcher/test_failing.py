"""What the launcher says when it can't hand on, and what goes on working without its parts."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.launcher.rendered import Launcher

TRIGGER = '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}}'


def _missing(launcher: Launcher) -> None:
    launcher.low_level.unlink()


def _not_executable(launcher: Launcher) -> None:
    launcher.low_level.chmod(0o644)


def _directory(launcher: Launcher) -> None:
    launcher.low_level.unlink()
    launcher.low_level.mkdir()


def _hard_link(launcher: Launcher) -> None:
    launcher.low_level.unlink()
    os.link(launcher.program, launcher.low_level)


def _symbolic_link(launcher: Launcher) -> None:
    launcher.low_level.unlink()
    launcher.low_level.symlink_to(launcher.program)


def _copy(launcher: Launcher) -> None:
    launcher.low_level.unlink()
    shutil.copy(launcher.program, launcher.low_level)


BROKEN = [_missing, _not_executable, _directory, _hard_link, _symbolic_link, _copy]
COMMANDS = [["state", "c1"], ["create", "-b", "/nowhere", "c1"], ["--version"], []]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_an_unusable_low_level_runtime_is_said(
    launcher: Launcher, tmp_path: Path, broken: Callable[[Launcher], None], command: list[str]
) -> None:
    """B67: one clear line where the engine looks for it, and never a loop."""
    launcher.install()
    broken(launcher)
    for log_format in ("json", "text", ""):
        log = tmp_path / f"log {log_format}"
        options = ["--log", str(log), *(["--log-format", log_format] if log_format else [])]
        words = command if command == ["--version"] else [*options, *command]
        done = launcher.call(*words)
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "low-level runtime" in done.stderr
        if words is command:
            continue
        _check_log(log, log_format, "low-level runtime")


def _check_log(log: Path, log_format: str, sentence: str) -> None:
    lines = log.read_text().splitlines()
    assert len(lines) == 1
    if log_format == "json":
        entry = json.loads(lines[0])
        assert entry.keys() == {"level", "msg", "time"}
        assert entry["level"] == "error"
        assert sentence in entry["msg"]
    else:
        pattern = r'time="[^"]*Z" level=error msg="(?:[^"\\]|\\.)*"'
        assert re.fullmatch(pattern, lines[0])
        assert sentence in lines[0]


def test_quotes_in_a_path_do_not_break_the_log(launcher: Launcher, tmp_path: Path) -> None:
    launcher.low_level = Path('/nowhere/a"b\\c')
    launcher.install()
    log = tmp_path / "log"
    launcher.call("--log", log, "--log-format", "json", "state", "c1")
    assert '/nowhere/a"b\\c' in json.loads(log.read_text())["msg"]


@pytest.mark.parametrize("path", [None, "", "/nowhere"])
def test_no_search_path(launcher: Launcher, tmp_path: Path, path: str | None) -> None:
    """An engine may give no PATH; neither grep nor the words in the log may hang on it."""
    launcher.python = "/nowhere/python"
    launcher.install()
    environment = {} if path is None else {"PATH": path}
    (tmp_path / "config.json").write_text("{}")
    assert launcher.call("create", "-b", tmp_path, "c1", environment=environment).returncode == 0
    assert launcher.reached()
    (tmp_path / "config.json").write_text(TRIGGER)
    log = tmp_path / "log"
    words = ["--log", str(log), "--log-format", "json", "create", "-b", str(tmp_path), "c1"]
    assert launcher.call(*words, environment=environment).returncode == 1
    assert not launcher.reached()
    _check_log(log, "json", "asks for GPUs")


def _no_python(launcher: Launcher) -> None:
    launcher.python = "/nowhere/python3"


def _no_code(launcher: Launcher) -> None:
    launcher.code = "/nowhere"


@pytest.mark.parametrize("part", [_no_python, _no_code])
def test_containers_without_a_request_need_no_python(
    launcher: Launcher, tmp_path: Path, part: Callable[[Launcher], None]
) -> None:
    part(launcher)
    launcher.install()
    (tmp_path / "config.json").write_text('{"process":{"env":["A=b"]}}')
    for words in (["create", "-b", str(tmp_path), "c1"], ["exec", "c1", "sh"], ["state", "c1"]):
        assert launcher.call(*words).returncode == 0
        assert launcher.reached()
    log = tmp_path / "log"
    for spec in (TRIGGER.replace("=", "\\u003d"), TRIGGER):
        launcher.forget()
        log.unlink(missing_ok=True)
        (tmp_path / "config.json").write_text(spec)
        done = launcher.call("--log", log, "--log-format=json", "create", "-b", tmp_path, "c1")
        assert (done.returncode, launcher.reached()) == (1, None)
        assert "asks for GPUs" in done.stderr
    _check_log(log, "json", "gpushimctl install")


@pytest.mark.parametrize(
    "settings",
    [
        b"",
        b"\0" * 400,
        b"low_level='/usr/bin/ru",
        b"low_level='crun'\nlow_level_family='crun'\n",
        b"low_level=''\nother_low_level=''\nlow_level_family=''\n",
        b"$(exit 3)\n`(\n<<<\n((\n",
        b"\xff\xfe)('\"" * 99,
    ],
)
def test_damaged_settings_stop_nothing(launcher: Launcher, settings: bytes) -> None:
    """What was written into the launcher itself holds then, if they can't be written anew."""
    launcher.template = launcher.template.replace("@REFRESH_PYTHON@", "/bin/false")
    launcher.install()
    path = launcher.directory / "var/lib/gpushim/launcher.conf"
    path.parent.mkdir(parents=True)
    path.write_bytes(settings)
    done = launcher.call("state", "c1")
    assert (done.returncode, done.stderr) == (0, "")
    assert launcher.reached()


def test_a_missing_spec_is_the_low_level_runtimes_to_tell(
    launcher: Launcher, tmp_path: Path
) -> None:
    """B24."""
    launcher.install()
    for bundle in (tmp_path, tmp_path / "missing", Path("/dev/null")):
        assert launcher.call("create", "-b", bundle, "c1").returncode == 0
        assert launcher.reached()


def test_a_log_that_cannot_be_written(launcher: Launcher, tmp_path: Path) -> None:
    _missing(launcher)
    launcher.install()
    done = launcher.call("--log", tmp_path / "no" / "log", "state", "c1")
    assert done.returncode == 1
    assert "low-level runtime" in done.stderr


class TestTwoRuntimes:
    """A container belongs to the low-level runtime that created it."""

    @pytest.fixture
    def both(self, launcher: Launcher) -> Launcher:
        other = launcher.program.parent / "crun"
        shutil.copy(launcher.low_level, other)
        launcher.other_low_level = str(other)
        return launcher

    @pytest.mark.parametrize("family", ["runc", "crun"])
    def test_by_its_state(self, both: Launcher, tmp_path: Path, family: str) -> None:
        both.family = family
        both.install()
        own, other = ("state.json", "status") if family == "runc" else ("status", "state.json")
        for name, file in (("mine", own), ("theirs", other)):
            (tmp_path / name).mkdir()
            (tmp_path / name / file).touch()
        other_program = Path(both.other_low_level)
        root = ["--root", str(tmp_path)]
        docker = [*root, "--log", str(tmp_path / "log.json"), "--log-format", "json"]
        commands = (["state"], ["kill"], ["delete", "--force"], ["exec", "-t"], ["start"])
        for options, command in itertools.product((root, docker), commands):
            for name in ("mine", "theirs", "unknown"):
                other_program.with_name("crun.cmdline").unlink(missing_ok=True)
                both.call(*options, *command, name, "x")
                assert (both.reached(other_program) is not None) == (name == "theirs")
                assert (both.reached() is None) == (name == "theirs")

    def test_a_new_container_is_the_first_ones(self, both: Launcher, tmp_path: Path) -> None:
        both.install()
        (tmp_path / "c1").mkdir()
        (tmp_path / "c1" / "status").touch()
        (tmp_path / "config.json").write_text("{}")
        both.call("--root", tmp_path, "create", "-b", tmp_path, "c1")
        assert both.reached()

    def test_python_is_told_whose_it_is(self, both: Launcher, tmp_path: Path) -> None:
        both.stub_python().install()
        (both.containers / "c1").mkdir(parents=True)
        (tmp_path / "c1").mkdir()
        (tmp_path / "c1" / "status").touch()
        both.call("--root", tmp_path, "exec", "-p", "/x", "c1")
        python = both.python_started()
        assert python
        assert [os.fsencode(both.other_low_level), b"crun"] == python.arguments[6:8]
