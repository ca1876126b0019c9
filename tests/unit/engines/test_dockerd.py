"""Which dockerd is told to reload: never another program, never one with another file."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from gpushim.engines import dockerd
from gpushim.engines.dockerd import Daemon
from gpushim.errors import GpushimError


def process(proc: Path, pid: int, name: str, *command: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(name + "\n")
    (proc / str(pid) / "cmdline").write_bytes(b"".join(w.encode() + b"\0" for w in command))


def find(tmp_path: Path, pid: str) -> Daemon | None:
    path = tmp_path / "docker.pid"
    path.write_text(pid)
    return dockerd.find(str(path), str(tmp_path / "proc"))


def test_found_by_its_pid_file(tmp_path: Path) -> None:
    process(tmp_path / "proc", 77, "dockerd", "/usr/bin/dockerd", "-H", "fd://", "--debug")
    daemon = find(tmp_path, "77\n")
    assert daemon is not None
    assert (daemon.pid, daemon.arguments) == (77, ["-H", "fd://", "--debug"])


@pytest.mark.parametrize("pid", ["78", "", "x", "-1", "0", "1", "99999999999999999999"])
def test_not_found(tmp_path: Path, pid: str) -> None:
    process(tmp_path / "proc", 78, "bash", "bash")
    process(tmp_path / "proc", 1, "dockerd", "dockerd")
    assert find(tmp_path, pid) is None
    assert dockerd.find(str(tmp_path / "none"), str(tmp_path / "proc")) is None


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ([], "/etc/docker/daemon.json"),
        (["--config-file", "/x/d.json"], "/x/d.json"),
        (["--config-file=/x/d.json", "--debug"], "/x/d.json"),
        (["--config-file=/x", "--config-file=/y"], "/y"),
        (["--config-file"], "/etc/docker/daemon.json"),
    ],
)
def test_its_configuration_file(arguments: list[str], config: str) -> None:
    assert Daemon(2, arguments).config_file == config


def test_a_linked_file_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    daemon = Daemon(2, [f"--config-file={tmp_path}/link.json"])
    assert daemon.uses(str(tmp_path / "real.json"))
    assert not daemon.uses(str(tmp_path / "other.json"))


@pytest.mark.parametrize(
    ("arguments", "conflicts"),
    [
        ([], []),
        (["--add-runtime", "foo=/x"], ["--add-runtime"]),
        (["--add-runtime=foo=/x", "--default-runtime=foo"], ["--add-runtime", "--default-runtime"]),
        (["--default-runtime", "foo"], ["--default-runtime"]),
    ],
)
def test_options_that_say_the_same(arguments: list[str], conflicts: list[str]) -> None:
    """B61: dockerd refuses a directive that is both a flag and in the file."""
    members = ["runtimes", "default-runtime"]
    assert Daemon(2, arguments).conflicts(members) == conflicts
    assert Daemon(2, ["--default-runtime=x"]).conflicts(["runtimes"]) == []


def test_reload_sends_the_signal() -> None:
    child = subprocess.Popen(["sleep", "60"])
    Daemon(child.pid, []).reload()
    assert child.wait(10) == -signal.SIGHUP
    with pytest.raises(GpushimError, match="could not be told"):
        Daemon(child.pid, []).reload()
