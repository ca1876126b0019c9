"""A real dockerd of the test's own; the machine's Docker, if any, is never touched.

It has its own socket, data root, exec root, pid file and configuration, starts its own
containerd as a child, and lives in a network namespace of its own, where it may switch
forwarding on (else it warns at every run).  ``stop`` ends what it started, by process
id, and removes what it made.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import images
from tests.harness import processes, workspace

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_START_SECONDS = 60


# Marks dockerd and all that it starts, so that stop can tell them from other people's.
_MARK = "PRIVATE_DOCKERD"


class EngineUnavailable(Exception):
    """A program that the engine needs is not installed here."""


def tool(name: str) -> str:
    """Find a program, the distribution's own first: it belongs to the dockerd beside it."""
    found = shutil.which(name, path="/usr/bin:/usr/sbin:" + SYSTEM_PATH)
    if found is None:
        raise EngineUnavailable(f"{name} is not installed")
    return found


def storage_driver(directory: Path) -> str:
    """Return overlay2 if the file system below a data root can carry it, else vfs.

    An overlay can't lie on an overlay, which is what a test that itself runs in a
    container has.  Asking the kernel is the only answer that is always right.
    """
    work = Path(tempfile.mkdtemp(dir=directory))
    for name in ("lower", "upper", "work", "merged"):
        (work / name).mkdir()
    options = f"lowerdir={work}/lower,upperdir={work}/upper,workdir={work}/work"
    command = ["mount", "-n", "-t", "overlay", "-o", options, "overlay", str(work / "merged")]
    worked = subprocess.run(command, capture_output=True).returncode == 0
    processes.unmount_below(work)
    shutil.rmtree(work, ignore_errors=True)
    return "overlay2" if worked else "vfs"


class PrivateDockerd:
    """One dockerd.  ``start`` it, use ``docker``, ``stop`` it; or use it in ``with``.

    ``config`` is added to the daemon.json that is written; ``path`` holds directories
    that come first in dockerd's PATH.  ``config_path`` is the file that a test (or
    ``gpushimctl install --config``) may edit before ``reload`` or ``restart``.
    """

    def __init__(
        self,
        base: Path | None = None,
        *,
        runtimes: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        path: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Two directories: images need a disk, and the paths of sockets must be short.
        self.base = workspace.make("docker", base or Path("/var/tmp"))
        self.run = workspace.make("docker", Path("/run"))
        self.data_root = self.base / "data"
        self.exec_root = self.run / "exec"
        self.socket = self.run / "docker.sock"
        self.config_path = self.base / "daemon.json"
        self.log_path = self.base / "dockerd.log"
        self.data_root.mkdir()
        (self.base / "client").mkdir()
        settings: dict[str, Any] = {
            "iptables": False,
            "ip6tables": False,
            "bridge": "none",
            "storage-driver": storage_driver(self.data_root),
        }
        if runtimes:
            settings["runtimes"] = dict(runtimes)
        settings.update(config or {})
        self.config_path.write_text(json.dumps(settings, indent=4) + "\n")
        self.environment = {
            "PATH": ":".join([*map(str, path), SYSTEM_PATH]),
            "HOME": "/root",
            _MARK: str(self.run),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._imported: dict[tuple[str, tuple[str, ...]], str] = {}

    def __enter__(self) -> PrivateDockerd:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None, "dockerd is not running"
        return self._process.pid

    def log(self) -> str:
        """Return all that dockerd and its containerd have logged so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start dockerd, perhaps again after `kill`, and wait until it answers."""
        self._forget_containerd()
        command = [
            tool("dockerd"),
            f"--config-file={self.config_path}",
            f"--host=unix://{self.socket}",
            f"--data-root={self.data_root}",
            f"--exec-root={self.exec_root}",
            f"--pidfile={self.run / 'docker.pid'}",
        ]
        # Each of these executes the next, so the process stays the same one. The signal
        # ends dockerd even when the test's own process is killed.
        up = 'ip link set lo up; exec "$@"'
        command = [tool("setpriv"), "--pdeathsig", "TERM", "sh", "-c", up, "sh", *command]
        command = [tool("unshare"), "--net", *command]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                text = self.log()[-4000:]
                self.stop()
                raise RuntimeError(f"dockerd did not start (status {status}):\n{text}")
            time.sleep(0.05)

    def _forget_containerd(self) -> None:
        """Let a new dockerd start containerd, which ends with the dockerd that started it.

        Where nothing reaps orphans, it stays as a zombie, which dockerd takes for a living one.
        """
        file = self.exec_root / "containerd" / "containerd.pid"
        if not file.exists():
            return
        pid = int(file.read_text())
        deadline = time.monotonic() + 10
        while processes.start_time(pid) is not None:
            assert time.monotonic() < deadline, f"containerd ({pid}) goes on without dockerd"
            time.sleep(0.02)
        file.unlink()

    def _answers(self) -> bool:
        """Ask the socket itself: the client is slow to start, and this is asked often."""
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(5)
                s.connect(str(self.socket))
                s.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
                return b" 200 " in s.recv(100)
        except OSError:
            return False

    def docker(
        self,
        *arguments: str | Path,
        input: str | None = None,
        timeout: float = 120,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run the docker client against this daemon, with nothing of the user's settings."""
        command = [tool("docker"), *map(str, arguments)]
        result = subprocess.run(
            command,
            env=self.client_environment(),
            input=input if input is not None else "",
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout,
        )
        if check:
            assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
        return result

    def client_environment(self) -> dict[str, str]:
        """Return the environment for a docker client (or an SDK) of this daemon."""
        return {
            "PATH": SYSTEM_PATH,
            "HOME": str(self.base / "client"),
            "DOCKER_CONFIG": str(self.base / "client"),
            "DOCKER_HOST": f"unix://{self.socket}",
        }

    def import_image(self, name: str, changes: Sequence[str] = (), tag: str | None = None) -> str:
        """Import a test image, once, and return its tag; ``changes`` are as in ``--change``."""
        key = (name, tuple(changes))
        if key not in self._imported:
            root = images.image(name)
            tag = tag or f"test-{name}:{len(self._imported)}"
            options = [word for change in changes for word in ("--change", change)]
            tar = subprocess.Popen(
                [tool("tar"), "-C", str(root), "--numeric-owner", "-c", "."],
                stdout=subprocess.PIPE,
            )
            done = subprocess.run(
                [tool("docker"), "import", *options, "-", tag],
                env=self.client_environment(),
                stdin=tar.stdout,
                capture_output=True,
                text=True,
            )
            assert tar.wait() == 0 and done.returncode == 0, done.stderr
            self._imported[key] = tag
        return self._imported[key]

    def reload(self) -> None:
        """Let dockerd read its configuration again, and wait until it has."""
        word = "Reloaded configuration:"
        before = self.log().count(word)
        os.kill(self.pid, signal.SIGHUP)
        deadline = time.monotonic() + 20
        while self.log().count(word) == before:
            # A broken file is only complained about, and the old settings stay.
            if time.monotonic() > deadline or self._process is None or self._process.poll():
                raise AssertionError(f"dockerd did not reload:\n{self.log()[-2000:]}")
            time.sleep(0.02)

    def restart(self) -> None:
        """Stop dockerd and start it again on the same data."""
        self._end()
        self.start()

    def kill(self) -> None:
        """Kill dockerd, as a crash would; its containerd ends with it, and shims stay."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def processes(self) -> set[int]:
        """Return all living processes that this dockerd has started, containers too."""
        started: set[int] = set()
        for pid in processes.marked(_MARK, str(self.run)):
            started |= processes.family(pid)
        return started

    def _end(self) -> None:
        """End dockerd and, where it can't do so itself any more, all that it has started."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None
        processes.end(self.processes(), patience=1)

    def stop(self, keep_log: Path | None = None) -> None:
        """Remove all containers, end everything, and remove every file of this daemon."""
        if self._process is not None and self._process.poll() is None and self._answers():
            ids = self.docker("ps", "--all", "--quiet", "--no-trunc").stdout.split()
            if ids:
                self.docker("rm", "--force", "--volumes", *ids)
        self._end()
        if keep_log is not None and self.log_path.exists():
            shutil.copyfile(self.log_path, keep_log)
        for directory in (self.run, self.base):
            workspace.remove(directory)
