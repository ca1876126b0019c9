"""gpushimctl install and uninstall, on private roots and on a real dockerd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.admin import interpreters

from tests.harness import PrivateDockerd
from tests.harness.privateroot import Root

pytestmark = pytest.mark.e2e

Completed = subprocess.CompletedProcess[str]


def test_what_is_installed(root: Root) -> None:
    out = root.well("install")
    assert "is installed" in out
    launcher = Path(root.places.launcher)
    assert launcher.stat().st_mode & 0o7777 == 0o755
    assert not launcher.is_symlink()
    assert "@" not in "".join(launcher.read_text().splitlines(keepends=True)[6:20])
    for directory in ("etc", "run", "containers", "lib", "log"):
        path = Path(getattr(root.places, directory))
        assert path.stat().st_mode & 0o7777 == 0o755
    assert f'd "{root.places.run}" 0755' in (root.path / "etc/tmpfiles.d/gpushim.conf").read_text()
    assert Path(root.places.launcher_settings).stat().st_mtime_ns == (
        Path(root.places.config).stat().st_mtime_ns
    )
    record = root.record
    assert record["format"] == 1
    assert record["refresh_interpreter"] == sys.executable
    assert Path(record["code"], "gpushim/launcher.sh").is_file()
    assert record["docker"] == []


def test_the_launcher_runs_without_any_environment(root: Root) -> None:
    """B67: dockerd has not the PATH of who installs, nor a home, nor a locale."""
    root.well("install")
    runc = subprocess.run(["runc", "--version"], capture_output=True, check=True).stdout
    done = subprocess.run([root.places.launcher, "--version"], capture_output=True, env={}, cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, runc, b"")


def test_gpushimctl_of_a_private_root_knows_it(root: Root) -> None:
    root.well("install")
    done = subprocess.run(
        [root.places.bin + "/gpushimctl", "config", "check"],
        capture_output=True,
        text=True,
        env={},
        cwd="/",
    )
    assert done.returncode == 0
    assert root.places.config in done.stdout


def test_a_second_install_changes_nothing(root: Root) -> None:
    daemon = root.path / "etc/docker/daemon.json"
    daemon.parent.mkdir(parents=True)
    daemon.write_text('{"mtu": 1400}')
    root.well("install", "--default")
    before = root.tree()
    out = root.well("install", "--default")
    assert "Wrote" not in out
    assert root.tree() == before
    root.well("install")
    assert root.tree() == before


def test_a_dry_run_shows_the_diff_and_changes_nothing(root: Root) -> None:
    daemon = root.path / "etc/docker/daemon.json"
    daemon.parent.mkdir(parents=True)
    daemon.write_text('{\n  "mtu": 1400\n}\n')
    before = root.tree()
    out = root.well("install", "--default", "--dry-run")
    assert root.tree() == before
    assert f"--- {daemon}\n+++ {daemon}\n" in out
    assert '+  "mtu": 1400,\n' in out
    assert '+  "default-runtime": "gpushim"\n' in out
    real = root.well("install", "--default")
    assert "gpushim is Docker's default runtime" in real
    made = set(root.tree()) - set(before)
    state = (root.places.driver_trees, *(str(path) for path in daemon.parent.glob("*.bak*")))
    # The outermost directories come with what is in them, and a copy has a time in its name.
    for path in made:
        assert path.startswith(state) or path in out, path
    root.well("install")
    before = root.tree()
    out = root.well("uninstall", "--dry-run")
    assert f"Would remove {root.places.launcher}" in out
    assert f"--- {daemon}\n" in out
    assert root.tree() == before


@pytest.mark.parametrize(
    "content", [None, b'{"runtimes":{"x":{"path":"/x"}},"default-runtime":"x"}']
)
def test_uninstall_leaves_all_as_it_was(root: Root, content: bytes | None) -> None:
    daemon = root.path / "etc/docker/daemon.json"
    if content is not None:
        daemon.parent.mkdir(parents=True)
        daemon.write_bytes(content)
    before = set(root.tree())
    root.well("install", "--default", "--config", daemon)
    assert json.loads(daemon.read_text())["default-runtime"] == "gpushim"
    backups = {str(path) for path in daemon.parent.glob("*.bak-gpushim-*")}
    assert len(backups) == (content is not None)
    root.well("uninstall")
    assert set(root.tree()) == before | backups
    assert (daemon.read_bytes() if daemon.exists() else None) == content


def test_uninstall_where_nothing_is(root: Root) -> None:
    """B64"""
    out = root.well("uninstall")
    assert "nothing to do" in out
    assert root.tree() == {}


def test_uninstall_without_a_record(root: Root) -> None:
    """B65: what names the launcher in daemon.json goes even then, and before the launcher."""
    daemon = root.path / "etc/docker/daemon.json"
    daemon.parent.mkdir(parents=True)
    daemon.write_text("{}")
    root.well("install", "--default")
    os.unlink(root.places.installation)
    root.well("uninstall")
    assert json.loads(daemon.read_text()) in ({}, {"runtimes": {}})
    assert not os.path.exists(root.places.launcher)


def test_uninstall_is_about_every_daemon(root: Root) -> None:
    one, two = root.path / "one.json", root.path / "two.json"
    for path in (one, two):
        path.write_text('{"mtu": 1}')
        root.well("install", "--config", path)
    root.well("uninstall")
    assert one.read_text() == two.read_text() == '{"mtu": 1}'


def test_configuration_is_kept_or_not(root: Root) -> None:
    config = Path(root.places.config)
    root.well("install")
    root.well("uninstall", "--keep-config")
    assert config.exists()
    root.well("install")
    root.well("uninstall")
    # Not ours by this record: it was there when the second install came.
    assert config.exists()
    config.unlink()
    root.well("install")
    config.write_text(config.read_text() + "# mine\n")
    root.well("uninstall")
    assert config.exists()
    root.well("install")
    root.well("uninstall", "--purge")
    assert not config.exists()
    assert not os.path.exists(root.places.log)


def test_configuration_from_a_file(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "mine.toml"
    source.write_text('[runtime]\nlow-level-runtimes = ["crun"]\n')
    root.well("install", "--config-from", source)
    assert Path(root.places.config).read_bytes() == source.read_bytes()
    done = subprocess.run([root.places.launcher, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("crun")
    source.write_text("[runtime\n")
    refused = root.ctl("install", "--config-from", source)
    assert refused.returncode == 1
    assert "not valid TOML" in refused.stderr
    # An existing configuration stays as it is.
    root.well("install")
    assert "crun" in Path(root.places.config).read_text()


def test_an_edited_configuration_is_kept_as_a_copy(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "c.toml"
    source.write_text('[runtime]\nlog-level = "error"\n')
    root.well("install")
    copies = Path(root.places.etc)
    assert "is kept as" not in root.well("install", "--config-from", source)
    edited = '[runtime]\nlog-level = "debug"\n'
    Path(root.places.config).write_text(edited)
    before = root.tree()
    out = root.well("install", "--dry-run", "--config-from", source)
    assert root.tree() == before
    assert "copy of the edited" in out
    assert '-log-level = "debug"\n+log-level = "error"\n' in out
    out = root.well("install", "--config-from", source)
    (copy,) = copies.glob("config.toml.bak-gpushim-*")
    assert str(copy) in out
    assert copy.read_text() == edited
    assert Path(root.places.config).read_text() == source.read_text()
    root.well("install", "--config-from", source)
    assert len(list(copies.glob("*.bak-gpushim-*"))) == 1


def test_a_broken_configuration_is_told_and_does_not_stop(root: Root) -> None:
    Path(root.places.etc).mkdir(parents=True)
    Path(root.places.config).write_text("[runtime\n")
    done = root.ctl("install")
    assert done.returncode == 0
    assert "not valid TOML" in done.stderr
    assert subprocess.run([root.places.launcher, "--version"]).returncode == 0


@pytest.mark.parametrize("content", [b"{,}", b"\xff\xfe{\0}\0", b'{"runtimes": 1}'])
def test_a_broken_daemon_json_stops_before_anything_is_done(root: Root, content: bytes) -> None:
    """B59, B60"""
    daemon = root.path / "daemon.json"
    daemon.write_bytes(content)
    before = root.tree()
    done = root.ctl("install", "--config", daemon)
    assert done.returncode == 1
    assert str(daemon) in done.stderr
    assert "Traceback" not in done.stderr
    assert root.tree() == before


def test_a_daemon_that_was_told_by_flags(root: Root) -> None:
    """B61"""
    daemon, pid_file = root.path / "daemon.json", root.path / "docker.pid"
    daemon.write_text("{}")
    program = root.path / "dockerd"
    program.write_text("#!/bin/sh\nread x\n")
    program.chmod(0o755)
    flags = [f"--config-file={daemon}", "--add-runtime", "foo=/x"]
    with subprocess.Popen([str(program), *flags], stdin=subprocess.PIPE) as process:
        pid_file.write_text(str(process.pid))
        deadline = time.monotonic() + 10
        while Path(f"/proc/{process.pid}/comm").read_text() != "dockerd\n":
            assert time.monotonic() < deadline
        before = root.tree()
        done = root.ctl("install", "--config", daemon, "--pidfile", pid_file)
        assert root.tree() == before
        assert process.stdin is not None
        process.stdin.close()
    assert done.returncode == 1
    assert "--add-runtime" in done.stderr
    assert "--no-docker" in done.stderr


def test_an_install_that_fails_half_way_says_so_and_can_be_undone(root: Root) -> None:
    before = root.tree()
    root.path.joinpath("usr/local").mkdir(parents=True)
    root.path.joinpath("usr/local/bin").write_text("a file in its place")
    done = root.ctl("install")
    assert done.returncode == 1
    assert "not complete" in done.stderr
    assert "Traceback" not in done.stderr
    assert root.record["directories"]
    root.well("uninstall")
    shutil.rmtree(root.path / "usr")
    assert root.tree() == before


def test_no_low_level_runtime(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "c.toml"
    source.write_text('[runtime]\nlow-level-runtimes = ["no-such-runtime"]\n')
    done = root.ctl("install", "--config-from", source)
    assert done.returncode == 1
    assert "No usable low-level runtime" in done.stderr
    assert root.tree() == {}


def test_somebody_elses_files_stay(root: Root) -> None:
    other = Path(root.places.bin, "gpushimctl")
    other.parent.mkdir(parents=True)
    other.write_text("something else")
    done = root.ctl("install")
    assert done.returncode == 0
    assert "another program" in done.stderr
    launcher = Path(root.places.launcher)
    launcher.write_text("edited")
    done = root.ctl("uninstall")
    assert done.returncode == 0
    assert "changed by somebody else" in done.stderr
    assert other.read_text() == "something else"
    assert launcher.read_text() == "edited"


def test_a_newer_record_is_refused(root: Root) -> None:
    root.well("install")
    path = Path(root.places.installation)
    path.write_text(json.dumps({**root.record, "format": 99, "version": "9.0"}))
    for verb in ("install", "uninstall"):
        done = root.ctl(verb)
        assert done.returncode == 1
        assert "newer gpushim (9.0)" in done.stderr
    path.write_text("{")
    assert "damaged" in root.ctl("uninstall").stderr


def test_what_to_do_without_the_virtual_environment(root: Root, tmp_path: Path) -> None:
    """gpushimctl has gone with it, so the way back begins with a new one."""
    root.well("install")
    launcher = Path(root.places.launcher)
    text = launcher.read_text().replace(
        f"_refresh_python='{sys.executable}'", "_refresh_python='/v e/bin/python3'"
    )
    launcher.write_text(text.replace("_code='", "_code='/gone"))
    (tmp_path / "config.json").write_text('{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}}')
    done = subprocess.run(
        [launcher, "create", "--bundle", tmp_path, "x"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "virtual environment (/v e) is gone, make it anew" in done.stderr
    assert "run /v e/bin/gpushimctl install." in done.stderr


def test_bytecode_is_compiled_for_the_create_path(tmp_path: Path) -> None:
    python = interpreters.for_create()
    source = Path(interpreters.code_directory(), "gpushim")
    shutil.copytree(source, tmp_path / "gpushim", ignore=shutil.ignore_patterns("__pycache__"))
    assert interpreters.compile_package(python, str(tmp_path)) == ""
    assert list(tmp_path.glob("gpushim/__pycache__/config.*.pyc"))
    assert list(tmp_path.glob("gpushim/oci/__pycache__/*.pyc"))


def test_bytecode_in_a_read_only_directory_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "gpushim").mkdir()
    (tmp_path / "gpushim/module.py").write_text("x = 1\n")
    bind = ["mount", "-n", "--bind", str(tmp_path), str(tmp_path)]
    subprocess.run(bind, check=True)
    try:
        subprocess.run(["mount", "-n", "-o", "remount,ro,bind", str(tmp_path)], check=True)
        assert interpreters.compile_package(interpreters.for_create(), str(tmp_path)) != ""
    finally:
        subprocess.run(["umount", "-n", str(tmp_path)], check=True)


def test_doctor_on_an_installation(root: Root) -> None:
    assert root.ctl("doctor", "--only", "launcher.present").returncode == 2
    root.well("install")
    chosen = ["--skip=driver", "--skip=device", "--skip=gpu", "--json"]
    report = json.loads(root.well("doctor", *chosen))
    assert {name: entry["status"] for name, entry in report.items()} == {
        "python.interpreter": "ok",
        "launcher.present": "ok",
        "lowlevel.version": "ok",
        "config.valid": "ok",
        "state.writable": "ok",
        "log.writable": "ok",
        "docker.runtime-registered": "skip",
    }
    Path(root.places.launcher).write_text("#!/bin/sh\n")
    Path(root.places.config).write_text("x = 1\n")
    done = root.ctl("doctor", *chosen)
    assert done.returncode == 2
    report = json.loads(done.stdout)
    assert report["launcher.present"]["status"] == "warn"
    assert report["config.valid"]["status"] == "fail"
    assert "install" in report["launcher.present"]["advice"]


def test_no_dockerd_is_found(root: Root) -> None:
    """It may run nevertheless, so it is not said that none does."""
    daemon = root.path / "daemon.json"
    daemon.write_text("{}")
    out = root.well("install", "--config", daemon, "--pidfile", root.path / "none.pid")
    assert f"No dockerd was found by the pid file {root.path}/none.pid" in out
    assert "--pidfile" in out
    assert "read when dockerd starts" in out


@pytest.fixture
def engine(dockerd: PrivateDockerd) -> Iterator[PrivateDockerd]:
    content = dockerd.config_path.read_bytes()
    yield dockerd
    if dockerd.config_path.read_bytes() != content:
        dockerd.config_path.write_bytes(content)
        dockerd.reload()


def info(engine: PrivateDockerd, field: str) -> Any:
    shown = engine.docker("info", "--format", f"{{{{json .{field}}}}}", check=True).stdout
    return json.loads(shown)


@pytest.mark.docker
def test_docker_learns_of_the_runtime_without_a_restart(engine: PrivateDockerd, root: Root) -> None:
    before = engine.config_path.read_bytes()
    pid = engine.pid
    image = engine.import_image("busybox")
    where = ["--config", str(engine.config_path), "--pidfile", str(engine.run / "docker.pid")]

    out = root.well("install", *where)
    assert f"dockerd (pid {pid}) has read it" in out
    assert info(engine, "Runtimes")["gpushim"]["path"] == root.places.launcher
    command = ["run", "--rm", "--network=none"]
    done = engine.docker(*command, "--runtime", "gpushim", image, "sh", "-c", "echo in; exit 7")
    assert (done.returncode, done.stdout) == (7, "in\n"), done.stderr

    root.well("install", "--default", *where)
    assert info(engine, "DefaultRuntime") == "gpushim"
    done = engine.docker("run", "-d", "--network=none", image, "sleep", "60", check=True)
    container = done.stdout.strip()
    shown = engine.docker("inspect", "--format", "{{.HostConfig.Runtime}}", container)
    assert shown.stdout.strip() == "gpushim"
    assert engine.docker("exec", container, "echo", "x", check=True).stdout == "x\n"
    engine.docker("rm", "--force", container, check=True)

    # A dockerd keeps what it has of a setting that has gone from its file: it must forget these.
    out = root.well("uninstall")
    assert f"dockerd (pid {pid}) has read it" in out
    assert engine.config_path.read_bytes() == before
    assert "gpushim" not in info(engine, "Runtimes")
    assert info(engine, "DefaultRuntime") == "runc"
    done = engine.docker(*command, image, "echo", "runc")
    assert done.stdout == "runc\n", done.stderr
    assert engine.pid == pid
    for backup in engine.config_path.parent.glob("*.bak-gpushim-*"):
        backup.unlink()


@pytest.mark.docker
def test_a_dockerd_with_another_pid_file_is_found(engine: PrivateDockerd, root: Root) -> None:
    out = root.well("install", "--config", str(engine.config_path))
    assert f"dockerd (pid {engine.pid}) has read it" in out
    assert "gpushim" in info(engine, "Runtimes")
    check = ["doctor", "--only", "docker.runtime-registered"]
    assert f"dockerd (pid {engine.pid}) knows it" in root.well(*check)
    image = engine.import_image("busybox")
    engine.docker("create", "--name", "idle", "--runtime", "gpushim", image, "true", check=True)
    try:
        done = root.ctl("uninstall")
        assert done.returncode == 1
        assert "runtime gpushim: idle." in done.stderr
        assert os.path.exists(root.places.launcher)
    finally:
        engine.docker("rm", "idle", check=True)
    assert f"dockerd (pid {engine.pid}) has read it" in root.well("uninstall")
    for backup in engine.config_path.parent.glob("*.bak-gpushim-*"):
        backup.unlink()


@pytest.mark.docker
def test_a_file_that_dockerd_refuses(engine: PrivateDockerd, root: Root) -> None:
    """It would not start with it either, so a restart is no advice; all else is in place."""
    content = engine.config_path.read_bytes()
    data = json.loads(content)
    engine.config_path.write_text(json.dumps({**data, "no-such-key": 1}))
    done = root.ctl("install", "--config", str(engine.config_path))
    assert done.returncode == 1
    assert "no-such-key" in done.stderr or f"refused {engine.config_path}" in done.stderr
    assert "restart" not in done.stderr
    if "Registered" in done.stdout:  # an older dockerd, which can't be asked beforehand
        assert os.path.exists(root.places.launcher)
        done = root.ctl("doctor", "--only", "docker.runtime-registered")
        assert done.returncode == 2
        assert "does not know the runtime" in done.stdout
        done = root.ctl("uninstall")
        assert done.returncode == 0
        assert "has read it" not in done.stdout
    for backup in engine.config_path.parent.glob("*.bak-gpushim-*"):
        backup.unlink()
