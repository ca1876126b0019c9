"""A machine made of namespaces: another distribution's engines, and gpushim installed for them."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tests import images
from tests.fakehost import FakeHost, build, preset
from tests.harness import processes, workspace
from tests.rigs import roots, wheels
from tests.rigs.cgroups import UnifiedPart

Completed = subprocess.CompletedProcess[str]
Cgroups = Literal["host", "v2", "systemd"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VENV = "/opt/gpushim"
# Docker offers --gpus if a program of this name is on dockerd's PATH.
VENDOR_HOOK = "/usr/local/bin/nvidia-container-runtime-hook"
DAEMON = "/etc/docker/daemon.json"
# Docker 26 has CDI as a feature, and 28 without a word.
SETTINGS = {
    "iptables": False,
    "ip6tables": False,
    "bridge": "none",
    "features": {"cdi": True},
}
_INSIDE = Path(__file__).with_name("inside.sh")
_SECONDS = 60


class Rig:
    """One machine. ``start`` it, use it, ``stop`` it.

    ``suite`` is one of ``roots.PACKAGES``. ``host`` is its fake host, a DGX A100 whose minors are
    not its indices, and ``shared`` a directory that has the same path inside and outside.
    """

    def __init__(self, suite: str, cgroups: Cgroups = "host") -> None:
        self.suite = suite
        self.work = workspace.make("rig", Path("/var/tmp"))
        self.shared = self.work / "shared"
        for name in ("layers", "root", "shared"):
            (self.work / name).mkdir()
        self._cgroups = cgroups
        self._part = UnifiedPart() if cgroups != "host" else None
        self._machine: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self._images: dict[str, str] = {}
        self.host: FakeHost

    def start(self) -> None:
        """Start the machine and its dockerd, and install gpushim.

        Raises ImageUnavailable if this machine can't have such a rig.
        """
        lower = roots.root(self.suite)
        if self._part is not None:
            self._part.make()
        self._boot(lower)
        self.host = build(self.shared / "host", preset("dgx_a100", modify_device_files=0))
        self.write(VENDOR_HOOK, "#!/bin/sh\nexit 0\n", 0o755)
        self.write(DAEMON, json.dumps(SETTINGS))
        if self.systemd:
            self._wait_for_systemd()
            self._link_nodes()
        self.start_docker()
        self._install()

    @property
    def systemd(self) -> bool:
        """Whether systemd is the first process, and Docker a unit of it."""
        return self._cgroups == "systemd"

    def _wait_for_systemd(self) -> None:
        # Only a group without children may have processes where controllers are on.
        if self._part is not None:
            self._part.use("entered")
        deadline = time.monotonic() + _SECONDS
        while True:
            done = self.run("systemctl", "is-active", "rig.target", check=False)
            if done.stdout.strip() == "active":
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"systemd did not start: {done.stdout}{done.stderr}")
            time.sleep(0.1)

    def _link_nodes(self) -> None:
        """What refresh does where the nodes are in /dev: runc 1.1.5 leaves rules without it out."""
        links = self.host.dev_root / "char"
        for link in links.iterdir():
            self.run("mkdir", "-p", "/dev/char")
            self.run("ln", "-s", link.resolve(), f"/dev/char/{link.name}")

    def _boot(self, lower: Path) -> None:
        command = [
            *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--ipc"),
            *("--uts", "--net", "--kill-child", "--propagation", "private"),
            *(("--cgroup",) if self._part is not None else ()),
            *("/bin/sh", str(_INSIDE), str(lower), str(self.work), self._cgroups),
        ]
        with (self.work / "machine.log").open("wb") as log:
            self._machine = subprocess.Popen(
                self._placed(command),
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._machine.stdout is not None
        readable = select.select([self._machine.stdout], [], [], _SECONDS)[0]
        if not readable or self._machine.stdout.readline() != b"ready\n":
            text = (self.work / "machine.log").read_text()
            raise images.ImageUnavailable(f"this kernel can't be made a rig of: {text.strip()}")
        children = Path(f"/proc/{self._machine.pid}/task/{self._machine.pid}/children")
        self.pid = int(children.read_text())

    def _placed(self, command: list[str]) -> list[str]:
        """The command, begun in the rig's own part of the unified hierarchy if it has one."""
        if self._part is None:
            return command
        return ["/bin/sh", "-c", f'echo $$ >{self._part.procs}; exec "$@"', "sh", *command]

    def _entered(self, words: tuple[str | Path, ...]) -> list[str]:
        kinds = ["--mount", "--pid", "--ipc", "--uts", "--net", "--root", "--wd"]
        if self._part is not None:
            kinds.append("--cgroup")
        enter = ["nsenter", f"--target={self.pid}", *kinds, *(str(word) for word in words)]
        return self._placed(enter)

    def run(
        self,
        *words: str | Path,
        input: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
    ) -> Completed:
        """Run a program in the rig as root; with ``check`` the test fails if it does."""
        done = subprocess.run(
            self._entered(words),
            env={"PATH": PATH, "HOME": "/root", **(environment or {})},
            input=input if input is not None else "",
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, f"{done.args}: {done.stdout}{done.stderr}"
        return done

    def docker(self, *words: str | Path, check: bool = False, **how: Any) -> Completed:
        return self.run("docker", *words, check=check, **how)

    def ctl(self, *words: str | Path, check: bool = True, **how: Any) -> Completed:
        """Run gpushimctl as it was installed."""
        return self.run("/usr/local/bin/gpushimctl", *words, check=check, **how)

    def write(self, path: str | Path, text: str, mode: int = 0o644) -> None:
        """Write a file in the rig, with its directories."""
        script = 'mkdir -p "${1%/*}" && cat >"$1" && chmod "$2" "$1"'
        self.run("sh", "-c", script, "sh", path, f"{mode:o}", input=text)

    def read(self, path: str | Path) -> str:
        return self.run("cat", path).stdout

    def image(self, name: str) -> str:
        """The tag in Docker of a test image, which is imported at first."""
        return self._imported(name, "docker")

    def podman_image(self, name: str) -> str:
        """The same for Podman."""
        return self._imported(name, "podman")

    def _imported(self, name: str, engine: str) -> str:
        tag = f"localhost/test-{name}:1"
        if f"{engine} {name}" not in self._images:
            tar = subprocess.Popen(
                ["tar", "-C", str(images.image(name)), "--numeric-owner", "-c", "."],
                stdout=subprocess.PIPE,
            )
            done = subprocess.run(
                self._entered((engine, "import", "-", tag)),
                env={"PATH": PATH, "HOME": "/root"},
                stdin=tar.stdout,
                capture_output=True,
                text=True,
            )
            assert tar.wait() == 0 and done.returncode == 0, done.stderr
            self._images[f"{engine} {name}"] = tag
        return tag

    def forget_images(self) -> None:
        """Have images imported anew: each remapping of users has its own."""
        self._images.clear()

    def node(self, index: int) -> str:
        """The name of a GPU's node."""
        return f"nvidia{self.host.gpus[index].minor}"

    def _install(self) -> None:
        version = "import sys; print('%d.%d' % sys.version_info[:2])"
        python = self.run("/usr/bin/python3", "-c", version).stdout.strip()
        wheels.house(python, self.shared / "wheels")
        self.run("/usr/bin/python3", "-m", "venv", VENV)
        pip = [f"{VENV}/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        self.run(*pip, "--no-index", f"--find-links={self.shared}/wheels", "gpushim", timeout=300)
        self.write("/root/fake.toml", self.host.toml())
        self.run(f"{VENV}/bin/gpushimctl", "install", "--config-from", "/root/fake.toml")

    @property
    def docker_log(self) -> str:
        """All that dockerd has logged so far."""
        if self.systemd:
            return self.run("journalctl", "--no-pager", "--unit=docker", check=False).stdout
        return (self.work / "dockerd.log").read_text(errors="replace")

    def restart_docker(self) -> None:
        """Restart dockerd, as `systemctl restart docker` does."""
        if self.systemd:
            # Tests restart it more often than a unit may be.
            self.run("systemctl", "reset-failed", "docker")
            self.run("systemctl", "restart", "docker")
            return
        assert self._dockerd is not None
        pid = int(self.read("/run/docker.pid"))
        self.run("kill", str(pid))
        self._dockerd.wait(60)
        self.start_docker()

    def start_docker(self) -> None:
        """Start dockerd and wait until it answers."""
        if self.systemd:
            self.run("systemctl", "start", "docker")
            return
        with (self.work / "dockerd.log").open("ab") as log:
            self._dockerd = subprocess.Popen(
                self._entered(("dockerd",)),
                env={"PATH": PATH, "HOME": "/root"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            if self._dockerd.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd did not start:\n{self.docker_log[-4000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(5)
                s.connect(f"/proc/{self.pid}/root/run/docker.sock")
                s.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
                return b" 200 " in s.recv(100)
        except OSError:
            return False

    def _remove_containers(self) -> None:
        """Remove all containers, so that their control groups go with them."""
        if not self.pid or not self._answers():
            return
        ids = self.docker("ps", "--all", "--quiet", "--no-trunc").stdout.split()
        if ids:
            self.docker("rm", "--force", "--volumes", *ids)

    def stop(self) -> None:
        """End the rig and remove all of it; its root stays for the next."""
        try:
            self._remove_containers()
        finally:
            if self._machine is not None:
                # With the first process all others of the PID namespace end, and their mounts go.
                self._machine.kill()
                self._machine.wait()
                deadline = time.monotonic() + 10
                while processes.start_time(self.pid) and time.monotonic() < deadline:
                    time.sleep(0.02)
            if self._dockerd is not None:
                self._dockerd.wait(10)
            if self._part is not None:
                self._part.remove()
            workspace.remove(self.work)
