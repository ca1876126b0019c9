"""Which dockerd is told to reload: never another program, never one with another file."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from gpushim.engines import dockerapi, dockerd
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


def test_found_by_the_file_that_its_command_line_leads_to(tmp_path: Path) -> None:
    """One in a container, whose files are others under the same names, is none of them."""
    proc, config = tmp_path / "proc", tmp_path / "daemon.json"
    config.write_text("{}")
    link = tmp_path / "link.json"
    link.symlink_to(config)
    process(proc, 5, "dockerd", "dockerd", "--config-file", str(link))
    process(proc, 6, "dockerd", "dockerd", f"--config-file={config}")
    process(proc, 7, "dockerd", "dockerd", "--config-file", str(tmp_path / "other.json"))
    process(proc, 8, "bash", "bash", f"--config-file={config}")
    process(proc, 9, "dockerd", "dockerd", "--config-file=daemon.json")
    process(proc, 10, "dockerd", "dockerd", f"--config-file={config}")
    for pid in (5, 6, 7, 8):
        (proc / str(pid) / "root").symlink_to("/")
    (proc / "9" / "cwd").symlink_to(tmp_path)
    (proc / "10" / "root").symlink_to(tmp_path)
    assert [daemon.pid for daemon in dockerd.using(str(config), str(proc))] == [5, 6, 9]
    assert dockerd.using(str(config), str(tmp_path / "none")) == []


def test_a_runtime_on_the_command_line() -> None:
    daemon = Daemon(2, ["--add-runtime", "x=/y", "--add-runtime=gpushim=/l"])
    assert daemon.adds_runtime("gpushim", "/l")
    assert not daemon.adds_runtime("gpushim", "/other")
    assert not daemon.adds_runtime("x", "/l")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo configuration OK >&2", ""),
        ('echo "unknown flag: --validate" >&2; exit 125', ""),
        ('echo "daemon with file $3: no such directive: x." >&2; exit 1', "daemon with file /d: "),
        ('grep -q new "$3" || exit 0; echo "$3 is new"; exit 1', "/d is new"),
        ("exit 1", ""),
    ],
)
def test_what_dockerd_says_of_a_file(tmp_path: Path, script: str, expected: str) -> None:
    program = tmp_path / "dockerd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    told = dockerd.complaint(str(program), b'{"new": 1}', "/d")
    assert told.startswith(expected)
    assert bool(told) == bool(expected)
    assert not told.endswith(".")
    assert dockerd.complaint(str(tmp_path / "none"), b"{}", "/d") == ""


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


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ([], {}, ["/var/run/docker.sock"]),
        (["-H", "fd://"], {}, ["/var/run/docker.sock"]),
        (["-H", "unix:///a", "--host=tcp://0.0.0.0:1", "--host=unix:///b"], {}, ["/b", "/a"]),
        ([], {"hosts": ["unix:///c", "tcp://x", 3]}, ["/c"]),
        ([], {"hosts": "unix:///c"}, ["/var/run/docker.sock"]),
    ],
)
def test_where_it_answers(
    arguments: list[str], settings: dict[str, object], expected: list[str]
) -> None:
    assert dockerapi.sockets(Daemon(2, arguments), settings) == expected


class Answer:
    """A socket at which each question gets the same bytes."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()
        self.content = content
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(self.content)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"Runtimes": {"runc": {"path": "runc"}, "x": {}}, "DefaultRuntime": "runc"}',
            ({"runc": "runc", "x": ""}, "runc"),
        ),
        (b'{"message": "no"}', None),
        (b"[]", None),
        (b"{", None),
    ],
)
def test_what_it_answers(body: bytes, expected: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "s")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        server = Answer(path, head + body)
        answer = dockerapi.ask(str(path))
        assert (answer and (answer.paths, answer.default)) == expected
        daemon = Daemon(2, ["-H", f"unix://{path}"])
        told = dockerapi.wait_until(daemon, {}, lambda now: now.default == "runc")
        assert told is (True if expected else None)
        server.socket.close()


def test_containers_of_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped ones too; one that goes while it is looked at is left out."""

    def get(path: str, target: str) -> object:
        if path == "/silent":
            raise OSError
        if target == "/containers/json?all=1":
            return [{"Id": "1"}, {"Id": "2"}, {"Id": "3"}]
        number = target.split("/")[2]
        runtime = {"1": "gpushim", "2": "runc"}.get(number)
        return {"Name": f"/c{number}", "HostConfig": {"Runtime": runtime}} if runtime else {}

    monkeypatch.setattr(dockerapi, "_get", get)
    daemon = Daemon(2, ["-H", "unix:///silent", "-H", "unix:///x"])
    assert dockerapi.containers(daemon, {}, "gpushim") == ["c1"]
    assert dockerapi.containers(Daemon(2, ["-H", "unix:///silent"]), {}, "gpushim") is None


def test_a_daemon_that_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerapi, "_PATIENCE", 0.1)
    monkeypatch.setattr(dockerapi, "ask", lambda path: dockerapi.Runtimes({}, "runc"))
    assert dockerapi.wait_until(Daemon(2, []), {}, lambda now: now.default == "x") is False


def test_reload_sends_the_signal() -> None:
    child = subprocess.Popen(["sleep", "60"])
    Daemon(child.pid, []).reload()
    assert child.wait(10) == -signal.SIGHUP
    with pytest.raises(GpushimError, match="could not be told"):
        Daemon(child.pid, []).reload()
