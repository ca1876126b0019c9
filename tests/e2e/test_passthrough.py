"""Whatever works with the low-level runtime works through gpushim in the same way.

Each test plays one scene twice, once with the low-level runtime and once with gpushim before it,
and compares everything that a caller can see: exit statuses, texts, files, and config.json byte
for byte. It does so with a spec that the launcher hands on itself, and with one that Python has to
look at first and in which it finds no request.
"""

from __future__ import annotations

import array
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cannot
from tests.harness import Bundle, Result, Runtime
from tests.harness.installed import Installed

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
# crun 1.8 does not start where version 1 and 2 of control groups are mixed, so it sees only one.
_ONE_CGROUP_VERSION = (
    *("unshare", "-m", "sh", "-c"),
    'if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi; exec "$0" "$@"',
)

# What an image with CUDA has in it, and Swarm's resources of another kind: Python has to look.
_NO_REQUEST = [
    "CUDA_VERSION=12.4.1",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471",
    "DOCKER_RESOURCE_SSD=1,2",
    "NVIDIA_VISIBLE_DEVICES=void",
]


class Scene:
    """One runtime, with or without gpushim, and the bundles that a scene makes for it."""

    def __init__(self, runtime: Runtime, name: str, looked_at: bool, make: MakeBundle) -> None:
        self.runtime = runtime
        self.name = name
        self.program = runtime.command
        self._looked_at = looked_at
        self._make = make
        self._made: list[tuple[Bundle, bytes, set[str]]] = []
        self._seen: list[Any] = []

    def bundle(self, *args: str, **options: Any) -> Bundle:
        change = options.pop("change", None)
        environment = list(options.pop("env", ()))
        if self._looked_at:
            environment += _NO_REQUEST
        cgroups = self.name == "runc"
        made = self._make("busybox", args, env=environment, cgroups=cgroups, **options)
        if change is not None:
            change(made.config)
            made.write()
        files = {path.name for path in made.path.iterdir()}
        self._made.append((made, made.config_path.read_bytes(), files))
        return made

    def see(self, what: Any) -> None:
        """Note something that has to be the same with and without gpushim."""
        self._seen.append(what)

    def result(self, result: Result) -> None:
        self.see((result.status, result.stdout, result.stderr))

    def outcome(self) -> list[str]:
        """All that was seen, without what differs between any two runs."""
        text = [repr(what) for what in self._seen]
        for made, before, files in self._made:
            assert made.config_path.read_bytes() == before
            assert {path.name for path in made.path.iterdir()} == files
            text = [t.replace(str(made.path), "BUNDLE").replace(made.id, "ID") for t in text]
        text = [t.replace(str(self.runtime.directory), "RUNTIME") for t in text]
        return [re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", "TIME", t) for t in text]


Play = Callable[[Callable[[Scene], None]], None]


def program(name: str) -> str:
    """A low-level runtime's whole path, as gpushim calls it: some texts have it in them."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        cannot(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def installations(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installed]:
    made: dict[str, Installed] = {}

    def get(name: str) -> Installed:
        if name not in made:
            made[name] = Installed(
                tmp_path_factory.mktemp(name) / "a root",
                f'[runtime]\nlow-level-runtimes = ["{program(name)}"]\n',
            )
        return made[name]

    return get


@pytest.fixture(params=["runc", "crun"])
def low_level(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[False, True], ids=["launcher", "python"])
def play(
    request: pytest.FixtureRequest,
    low_level: str,
    installations: Callable[[str], Installed],
    make_bundle: MakeBundle,
) -> Iterator[Play]:
    installed = installations(low_level)
    runtimes: list[Runtime] = []

    def command(path: str | Path) -> list[str | Path]:
        if low_level == "crun":
            return [*_ONE_CGROUP_VERSION, path, "--cgroup-manager=disabled"]
        return [path]

    def run(scene: Callable[[Scene], None]) -> None:
        outcomes = []
        for path in (program(low_level), installed.launcher):
            runtimes.append(Runtime(*command(path)))
            stage = Scene(runtimes[-1], low_level, request.param, make_bundle)
            scene(stage)
            outcomes.append(stage.outcome())
        assert outcomes[1] == outcomes[0]
        assert installed.log == ""

    yield run
    for runtime in runtimes:
        runtime.close()


def sh(text: str) -> tuple[str, str, str]:
    return ("sh", "-c", text)


def test_life(play: Play) -> None:
    def scene(stage: Scene) -> None:
        runtime, bundle = stage.runtime, stage.bundle(*sh("echo out; echo err >&2; exit 3"))
        created = runtime.create(bundle, "--pid-file", str(runtime.directory / "pid"))
        state = runtime.state(bundle.id)
        assert state["pid"] == int((runtime.directory / "pid").read_text())
        stage.see((created.status, state["status"], state["bundle"], sorted(state)))
        stage.result(runtime.start(bundle.id))
        runtime.wait(bundle.id)
        stage.result(created)
        stage.result(runtime.start(bundle.id))
        stage.result(runtime.delete(bundle.id))
        stage.result(runtime.delete(bundle.id))
        stage.result(runtime.call("state", bundle.id))

    play(scene)


@pytest.mark.parametrize("status", [0, 1, 7, 125, 126, 127, 137, 255])
def test_exit_status(play: Play, status: int) -> None:
    play(lambda stage: stage.result(stage.runtime.run(stage.bundle(*sh(f"exit {status}")))))


def test_signals(play: Play) -> None:
    def scene(stage: Scene) -> None:
        runtime = stage.runtime
        program = sh("trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done")
        bundle = stage.bundle(*program)
        created = runtime.create(bundle)
        runtime.start(bundle.id)
        _until(lambda: "ready" in created.stdout)
        stage.result(runtime.kill(bundle.id, "NONSENSE"))
        stage.result(runtime.kill(bundle.id, "USR1"))
        runtime.wait(bundle.id)
        stage.see(created.stdout)
        stage.see(runtime.kill(bundle.id, "KILL").status)

    play(scene)


def test_a_signal_to_the_runtime_itself(play: Play) -> None:
    """In the foreground it hands the signal on to the container."""

    def scene(stage: Scene) -> None:
        program = sh("trap 'exit 9' TERM; touch /ready; while :; do sleep 0.05; done")
        bundle = stage.bundle(*program)
        command = [*stage.program, f"--root={stage.runtime.root}"]
        words = ["run", "--bundle", str(bundle.path), bundle.id]
        process = subprocess.Popen([*command, *words], stdin=subprocess.DEVNULL)
        _until(lambda: (bundle.rootfs / "ready").exists())
        process.send_signal(signal.SIGTERM)
        stage.see(process.wait(timeout=30))

    play(scene)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_terminal(play: Play) -> None:
    def scene(stage: Scene) -> None:
        runtime = stage.runtime
        bundle = stage.bundle(
            *sh("tty; stty size; read x; echo got $x"),
            change=lambda config: config["process"].update(
                terminal=True, consoleSize={"height": 31, "width": 77}
            ),
        )
        path = runtime.directory / "console"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            stage.result(runtime.create(bundle, "--console-socket", str(path)))
            terminal = _receive(server)
        runtime.start(bundle.id)
        os.write(terminal, b"word\n")
        runtime.wait(bundle.id)
        stage.see(_drain(terminal))
        os.close(terminal)

    play(scene)


def _receive(server: socket.socket) -> int:
    server.settimeout(20)
    connection, _ = server.accept()
    with connection:
        _, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(4))
    numbers = array.array("i")
    numbers.frombytes(ancillary[0][2][:4])
    return numbers[0]


def _drain(terminal: int) -> list[str]:
    text = b""
    try:
        while piece := os.read(terminal, 4096):
            text += piece
    except OSError:
        pass  # EIO: the other end has gone
    return sorted(text.decode().split())


def _with_descriptors(stage: Scene, export: str = "") -> Runtime:
    """The runtime, started with descriptors 3 and 4."""
    directory = stage.runtime.directory
    for number in (3, 4):
        (directory / f"fd{number}").write_text(f"content {number}\n")
    start = f'{export}exec "$0" "$@" 3<{directory}/fd3 4<{directory}/fd4'
    command = ["sh", "-c", start, *stage.program]
    other = Runtime(*command)
    other.directory, other.root = directory, stage.runtime.root
    other._calls = 100
    return other


def test_preserved_descriptors(play: Play) -> None:
    def scene(stage: Scene) -> None:
        for count in ("0", "1", "2"):
            bundle = stage.bundle(*sh("cat <&3; cat <&4; echo $LISTEN_FDS"))
            other = _with_descriptors(stage)
            stage.result(other.run(bundle, "--preserve-fds", count))

    play(scene)


def test_listen_fds(play: Play) -> None:
    """B26."""

    def scene(stage: Scene) -> None:
        bundle = stage.bundle(*sh("echo $LISTEN_FDS $LISTEN_PID $LISTEN_FDNAMES $$; cat <&3"))
        export = "export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_FDNAMES=x; "
        stage.result(_with_descriptors(stage, export).run(bundle))

    play(scene)


def test_notify_socket(play: Play, low_level: str) -> None:
    """runc makes a socket of its own for the container and hands on what is said there."""

    def scene(stage: Scene) -> None:
        runtime = stage.runtime
        path = runtime.directory / "notify"
        environment = {**runtime.environment, "NOTIFY_SOCKET": str(path)}
        bundle = stage.bundle(*sh("echo $NOTIFY_SOCKET; ls -l $NOTIFY_SOCKET | cut -c1"))
        said = []

        def container() -> None:
            """What the container would say, through its socket as the host sees it."""
            inside = runtime.root / bundle.id / "notify" / "notify.sock"
            _until(inside.exists)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                client.sendto(b"READY=1\nSTATUS=fine\n", str(inside))
            said.append(server.recv(4096))

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.settimeout(20)
            server.bind(str(path))
            speaker = threading.Thread(target=container)
            if low_level == "runc":
                speaker.start()
            stage.result(runtime.run(bundle, environment=environment))
            if low_level == "runc":
                speaker.join()
        stage.see([re.sub(rb"MAINPID=\d+", b"MAINPID", text) for text in said])

    play(scene)


def test_hooks(play: Play) -> None:
    stages = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart"]

    def scene(stage: Scene) -> None:
        log = stage.runtime.directory / "hooks"
        log.mkdir()

        def change(config: dict[str, Any]) -> None:
            config["hooks"] = {
                name: [
                    {
                        "path": "/bin/sh",
                        "args": ["sh", "-c", f"cat >{log}/{name}; env >{log}/{name}.env"],
                        "env": ["FROM=hook"],
                    }
                ]
                for name in [*stages[:3], "poststart", "poststop"]
            }
            config["annotations"] = {"some.key": "value"}

        stage.result(stage.runtime.run(stage.bundle(*sh("echo hi"), change=change)))
        for path in sorted(log.iterdir()):
            if path.suffix == ".env":
                stage.see((path.name, sorted(path.read_text().split())))
            else:
                state = json.loads(path.read_text())
                stage.see((path.name, state["status"], state.get("annotations"), sorted(state)))

    play(scene)


def test_a_failing_hook(play: Play) -> None:
    def scene(stage: Scene) -> None:
        def change(config: dict[str, Any]) -> None:
            hook = {"path": "/bin/sh", "args": ["sh", "-c", "echo no >&2; exit 4"]}
            config["hooks"] = {"createRuntime": [hook]}

        stage.see(stage.runtime.run(stage.bundle(*sh("echo hi"), change=change)).status)

    play(scene)


def test_other_commands(play: Play, low_level: str) -> None:
    def scene(stage: Scene) -> None:
        runtime, bundle = stage.runtime, stage.bundle(*sh("sleep 100"))
        runtime.create(bundle)
        runtime.start(bundle.id)
        stage.see(runtime.call("list", "--quiet").stdout)
        listed = json.loads(runtime.call("list", "--format", "json").stdout)
        stage.see([(c["id"], c["status"], c["bundle"], sorted(c)) for c in listed])
        ps = runtime.call("ps", "--format", "json", bundle.id)
        stage.see((ps.status, len(json.loads(ps.stdout)) if ps.status == 0 else ps.stderr))
        if low_level == "runc":
            stage.see(runtime.call("update", "--pids-limit", "50", bundle.id).status)
            given = b'{"pids":{"limit":60}}'
            stage.see(runtime.call("update", "--resources", "-", bundle.id, input=given).status)
            stats = runtime.call("events", "--stats", bundle.id)
            stage.see((stats.status, json.loads(stats.stdout)["type"]))
            stage.result(runtime.call("pause", bundle.id))
            stage.see(runtime.state(bundle.id)["status"])
            stage.result(runtime.call("resume", bundle.id))
        stage.result(runtime.delete(bundle.id))
        stage.result(runtime.delete(bundle.id, "--force"))
        stage.see(runtime.call("list", "--quiet").stdout)

    play(scene)


def test_exec(play: Play) -> None:
    """B19: also a program whose arguments look like the runtime's."""

    def scene(stage: Scene) -> None:
        runtime, bundle = stage.runtime, stage.bundle(*sh("sleep 100"))
        runtime.create(bundle)
        runtime.start(bundle.id)
        for words in (
            sh("echo out; echo err >&2; exit 5"),
            ("echo", "create", "--bundle", "/x", "run"),
            ("/no/such/program",),
        ):
            stage.result(runtime.exec(bundle.id, *words))
        environment = ("-e", "A=b", "--cwd", "/tmp", "-u", "5:6", bundle.id)
        stage.result(runtime.call("exec", *environment, *sh("echo $A; pwd; id -u; id -g")))
        process = {**bundle.config["process"], "args": list(sh("echo $B")), "env": ["B=c"]}
        file = runtime.directory / "process.json"
        file.write_text(json.dumps(process))
        before = file.read_bytes()
        stage.result(runtime.call("exec", "--process", file, bundle.id))
        assert file.read_bytes() == before
        stage.result(runtime.exec("unknown", "sh"))

    play(scene)


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_runtimes_own_errors(play: Play, log_format: str) -> None:
    """B24: nothing in gpushim's way is in the way of what the runtime says."""

    def scene(stage: Scene) -> None:
        runtime = stage.runtime
        log = runtime.directory / "log"
        options = ["--log", str(log), "--log-format", log_format]
        bundle = stage.bundle("/no/such/program")
        (runtime.directory / "empty").mkdir()
        for words in (
            ["create", "--bundle", bundle.path, bundle.id],
            ["create", "--bundle", runtime.directory / "empty", "c1"],
            ["create", "--bundle", runtime.directory / "missing", "c1"],
            ["create", "--bundle", bundle.path, "../c1"],
            ["create", "--bundle", bundle.path, "a/b"],
            ["create", "--bundle", bundle.path, ""],
            ["create", "--bundle", bundle.path],
            ["create", "--nonsense", "--bundle", bundle.path, "c1"],
            ["create", "--bundle"],
            ["nonsense"],
            ["start", "unknown"],
        ):
            log.unlink(missing_ok=True)
            stage.result(runtime.call(*words, options=options))
            stage.see(log.read_text() if log.exists() else None)

    play(scene)


def test_the_same_id_twice(play: Play) -> None:
    def scene(stage: Scene) -> None:
        bundle = stage.bundle(*sh("sleep 100"))
        stage.runtime.create(bundle).check()
        stage.result(stage.runtime.create(bundle))
        stage.see(stage.runtime.state(bundle.id)["status"])

    play(scene)


def test_the_current_directory_is_the_bundle(play: Play) -> None:
    def scene(stage: Scene) -> None:
        bundle = stage.bundle(*sh("echo hi"))
        for words in ([], ["-b", "."], ["--bundle", "./"], ["--bundle=../" + bundle.path.name]):
            stage.result(stage.runtime.call("run", *words, bundle.id, cwd=bundle.path))

    play(scene)


@pytest.mark.parametrize(
    "words", [["--version"], ["-v"], ["--help"], ["features"], ["create", "--help"], ["help"], []]
)
def test_what_a_runtime_says_about_itself(
    low_level: str, installations: Callable[[str], Installed], words: list[str]
) -> None:
    """B27."""
    seen = []
    for path in (program(low_level), str(installations(low_level).launcher)):
        done = subprocess.run([path, *words], capture_output=True, stdin=subprocess.DEVNULL)
        seen.append((done.returncode, done.stdout, done.stderr))
    assert seen[1] == seen[0]
