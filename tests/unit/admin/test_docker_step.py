"""Which daemon.json install works on, and where it leaves Docker alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.admin import docker_step
from gpushim.admin.installation import DockerPart, Installation
from gpushim.engines import dockerapi, dockerd
from gpushim.engines.docker import Former
from gpushim.errors import GpushimError
from gpushim.places import Places

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("snap", "words"), [(False, "there is none here"), (True, "snap")])
def test_no_docker_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, snap: bool, words: str
) -> None:
    """B62: no file is made that nobody reads."""
    monkeypatch.setattr(docker_step, "_has_docker", lambda: False)
    monkeypatch.setattr(docker_step, "_SNAP", str(tmp_path if snap else tmp_path / "none"))
    assert docker_step.target(Places(), "", "") is None
    assert words in capsys.readouterr().err


def test_a_private_root_never_means_the_machines_docker(tmp_path: Path) -> None:
    places = Places(str(tmp_path))
    assert docker_step.target(places, "", "") is None
    path = tmp_path / "etc/docker/daemon.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    found = docker_step.target(places, "", "")
    assert found is not None
    assert found.config == str(path)


@pytest.mark.parametrize(
    ("named", "given", "expected"),
    [
        (None, "", dockerd.DEFAULT_PID_FILE),
        ("/run/x.pid", "", "/run/x.pid"),
        ("/run/x.pid", "/run/y.pid", "/run/y.pid"),
        (3, "", dockerd.DEFAULT_PID_FILE),
    ],
)
def test_the_pid_file(tmp_path: Path, named: object, given: str, expected: str) -> None:
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps({"pidfile": named}))
    found = docker_step.target(Places(str(tmp_path)), str(path), given)
    assert found is not None
    assert found.pid_file == expected


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept in the record, and uninstall may run elsewhere."""
    monkeypatch.chdir(tmp_path)
    found = docker_step.target(Places(str(tmp_path)), "daemon.json", "")
    assert found is not None
    assert found.config == str(tmp_path / "daemon.json")


@pytest.mark.parametrize("there", [True, False])
def test_another_installation_that_has_gone_does_not_come_back(tmp_path: Path, there: bool) -> None:
    """B65: nothing may be left, least of all as the default, that names a missing program."""
    other, ours, path = (str(tmp_path / name) for name in ("other", "ours", "daemon.json"))
    if there:
        Path(other).touch()
    text = {"runtimes": {"gpushim": {"path": ours}}, "default-runtime": "gpushim"}
    Path(path).write_text(json.dumps(text))
    former = Former(True, True, {"path": other}, False, None)
    part = DockerPart(path, path, dockerd.DEFAULT_PID_FILE, [], former)
    after = json.loads(docker_step.plan_unregister(part, ours).change.after or b"")
    restored = {"runtimes": {"gpushim": {"path": other}}, "default-runtime": "gpushim"}
    assert after == (restored if there else {"runtimes": {}})
    assert part.former.entry == {"path": other}


class Asked(dockerd.Daemon):
    """A dockerd that goes by what a test says, one answer a reload."""

    def __init__(self, *answers: dockerapi.Runtimes | None, flags: tuple[str, ...] = ()) -> None:
        super().__init__(77, list(flags))
        self.answers = list(answers)
        self.reloads = 0

    def reload(self) -> None:
        self.reloads += 1
        if len(self.answers) > 1:
            del self.answers[0]


LAUNCHER = "/l/gpushim"
KNOWS = dockerapi.Runtimes({"runc": "runc", "gpushim": LAUNCHER}, "runc")
OTHER = dockerapi.Runtimes({"runc": "runc"}, "runc")


class Step:
    """install's and uninstall's work on one daemon.json and one dockerd."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, daemon: Asked) -> None:
        self.file = path / "daemon.json"
        self.file.write_text("{}")
        self.where = docker_step.Target(str(self.file), "/run/x.pid")
        self.record = Installation("1", "/p", "/p", "/c")
        monkeypatch.setattr(docker_step, "daemons", lambda where: [daemon])
        monkeypatch.setattr(dockerapi, "now", lambda daemon, settings: daemon.answers[0])
        monkeypatch.setattr(dockerapi, "wait_until", self.wait)

    @staticmethod
    def wait(
        daemon: Asked, settings: dict[str, object], holds: Callable[[dockerapi.Runtimes], bool]
    ) -> bool | None:
        return None if daemon.answers[0] is None else holds(daemon.answers[0])

    def register(self) -> None:
        plan = docker_step.plan_register(self.where, LAUNCHER, False, self.record)
        docker_step.register(self.where, plan, LAUNCHER, self.record)

    def unregister(self) -> bool:
        (part,) = self.record.docker
        plan = docker_step.plan_unregister(part, LAUNCHER)
        return docker_step.unregister(part, plan, LAUNCHER)


def test_a_dockerd_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    daemon = Asked(OTHER, KNOWS, OTHER)
    step = Step(tmp_path, monkeypatch, daemon)
    step.register()
    assert "has read it" in capsys.readouterr().out
    step.register()
    assert "already" in capsys.readouterr().out
    assert daemon.reloads == 1
    assert step.unregister()
    assert "has read it" in capsys.readouterr().out
    assert json.loads(step.file.read_text()) == {}


def test_a_dockerd_that_was_never_told_is_told_by_the_next_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Asked(OTHER, KNOWS)
    step = Step(tmp_path, monkeypatch, daemon)
    step.file.write_text(json.dumps({"runtimes": {"gpushim": {"path": LAUNCHER}}}))
    step.register()
    assert daemon.reloads == 1


def test_a_dockerd_that_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A restart would be the worst advice."""
    step = Step(tmp_path, monkeypatch, Asked(OTHER))
    with pytest.raises(GpushimError, match="refused") as caught:
        step.register()
    assert "restart" not in str(caught.value)
    assert step.record.docker
    assert step.unregister()
    assert "has read it" not in capsys.readouterr().out


def test_a_dockerd_that_does_not_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    step = Step(tmp_path, monkeypatch, Asked(OTHER, KNOWS))
    step.register()
    assert not step.unregister()
    told = capsys.readouterr()
    assert f"refused {step.file}" in told.err
    assert "restart" not in told.err


def test_a_dockerd_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    step = Step(tmp_path, monkeypatch, Asked(None))
    step.register()
    assert step.unregister()
    assert capsys.readouterr().out.count("`docker info` shows") == 2


def test_a_runtime_that_is_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    daemon = Asked(KNOWS, flags=("--add-runtime", f"gpushim={LAUNCHER}"))
    step = Step(tmp_path, monkeypatch, daemon)
    step.register()
    assert step.file.read_text() == "{}"
    assert "on its command line" in capsys.readouterr().out
    assert step.unregister()
    assert f"--add-runtime gpushim={LAUNCHER}" in capsys.readouterr().err
    assert daemon.reloads == 0
    daemon.arguments = ["--add-runtime", "x=/y"]
    with pytest.raises(GpushimError, match="--no-docker"):
        step.register()


def test_a_file_that_dockerd_finds_wrong_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(tmp_path, monkeypatch, Asked(OTHER))
    monkeypatch.setattr(dockerd, "complaint", lambda program, content, path: f"{path}: no key x")
    monkeypatch.setattr(shutil, "which", lambda name, path: "/usr/sbin/dockerd")
    with pytest.raises(GpushimError, match="no key x"):
        step.register()
    assert step.file.read_text() == "{}"
