"""Which daemon.json install works on, and where it leaves Docker alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpushim.admin import docker_step
from gpushim.admin.installation import DockerPart
from gpushim.engines import dockerd
from gpushim.engines.docker import Former
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
