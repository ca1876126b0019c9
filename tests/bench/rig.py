"""What is measured on: fake hosts, private installations and programs, in a tmpfs of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpushim.allocate.book import open_book
from gpushim.allocate.lease import SHARED, Booking, Lease
from gpushim.host.fingerprint import boot_id
from gpushim.places import Places
from gpushim.records import start_time

from tests import images
from tests.fakehost import Description, FakeHost, build
from tests.harness import workspace

from .measure import BenchError, Caller

ROOT = Path(__file__).resolve().parent.parent.parent
_SOURCES = ("noop", "peak", "procdriver")


class Installation:
    """A private installation of gpushim on a fake host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.launcher = str(path / "usr/local/bin/gpushim")
        self.log = path / "var/log/gpushim/gpushim.log"
        record = json.loads((path / "var/lib/gpushim/installation.json").read_text())
        self.python: str = record["python"]
        self.code: str = record["code"]


class Rig:
    """Everything that the bench needs to be there; `close` takes all of it away.

    work: a tmpfs; docker: a data root of Docker's in it; state: the low-level runtime's state root,
    with the same name and place as the test harness's, which clears up after a killed one.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise BenchError("make bench runs containers, which takes root.")
        self.runc = _program("runc")
        self.control = _interpreter()
        self._hosts: dict[str, FakeHost] = {}
        self._installations: dict[str, Installation] = {}
        self.directory = workspace.make("bench", Path("/var/tmp"))
        try:
            self.work, self.state = self.directory / "work", self.directory / "root"
            self.docker = self.work / "docker"
            for path in (self.work, self.state):
                path.mkdir()
                run("mount", "-n", "-t", "tmpfs", "-o", "mode=755", "gpushim-bench", path)
            self.programs = {name: self._compile(name) for name in _SOURCES}
            self.image = images.image("debian")
            self.caller = Caller(self.work)
        except BaseException:
            workspace.remove(self.directory)
            raise

    def close(self) -> None:
        workspace.delete_containers(self.state)
        self.caller.close()
        workspace.remove(self.directory)

    def _compile(self, name: str) -> str:
        program = self.work / name
        run("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o", program,
            Path(__file__).with_name(f"{name}.c"))  # fmt: skip
        return str(program)

    def host(self, gpus: int, cdi_specs: int = 0) -> FakeHost:
        """The fake host with so many GPUs, and CDI specs of other devices lying about on it."""
        name = f"host-{gpus}-{cdi_specs}"
        if name not in self._hosts:
            self._hosts[name] = build(self.work / name, Description(gpus=gpus))
            directory = self._hosts[name].root / "etc/cdi"
            directory.mkdir(parents=True, exist_ok=True)
            for number in range(cdi_specs):
                spec = cdi_spec(number)
                (directory / f"vendor{number}.json").write_text(json.dumps(spec))
        return self._hosts[name]

    def installation(
        self,
        gpus: int,
        cdi_specs: int = 0,
        alone: bool = False,
        leases: int = 0,
        real_use: str = "never",
    ) -> Installation:
        """gpushim on the host with so many GPUs.

        alone: with a program that does nothing below; leases: of containers that live, on the
        second half of the GPUs; real_use: allocate.real-use.
        """
        host = self.host(gpus, cdi_specs)
        name = f"{host.root.name}-{leases}-{real_use}{'-alone' if alone else ''}"
        if name not in self._installations:
            self._installations[name] = self._install(host, name, alone, real_use)
            self._book(self._installations[name], host, leases)
        return self._installations[name]

    def _book(self, installation: Installation, host: FakeHost, leases: int) -> None:
        """Leases of parts of GPUs, whose creator is this process."""
        pid = os.getpid()
        gpus = host.gpus[len(host.gpus) // 2 :]
        with open_book(Places(str(installation.path))) as book:
            for number in range(leases):
                booking = Booking(gpus[number % len(gpus)].uuid, SHARED, 1 << 26)
                lease = Lease(f"{number:064x}", "/run/bench", (pid, start_time(pid)), [booking])
                lease.boot = boot_id()
                lease.since = int(time.time())
                book.put(lease)

    def _install(self, host: FakeHost, name: str, alone: bool, real_use: str) -> Installation:
        root = self.work / f"{name}.root"
        root.mkdir()
        low_level = self.programs["noop"] if alone else self.runc
        (root / "etc/docker").mkdir(parents=True)
        settings = {"data-root": str(self.docker)}
        (root / "etc/docker/daemon.json").write_text(json.dumps(settings))
        config = root / "wanted.toml"
        config.write_text(
            f'[runtime]\nlow-level-runtimes = ["{low_level}"]\n\n'
            f'[allocate]\nreal-use = "{real_use}"\n\n{host.toml()}'
        )
        self.gpushimctl(root, "install", "--no-docker", "--config-from", str(config))
        self.gpushimctl(root, "refresh")
        return Installation(root)

    def gpushimctl(self, root: Path, *words: str) -> None:
        """Run gpushimctl on a private installation."""
        run(self.control, "-I", "-m", "gpushim.admin.cli", "--root", root, *words)


def cdi_spec(number: int) -> dict[str, Any]:
    """A CDI spec of some other vendor, as large as a small real one."""
    return {
        "cdiVersion": "0.5.0",
        "kind": f"vendor{number}.example/device",
        "devices": [
            {
                "name": str(device),
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/vendor{number}-{device}"}],
                    "mounts": [
                        {
                            "hostPath": f"/usr/lib/vendor{number}/lib{library}.so",
                            "containerPath": f"/usr/lib/vendor{number}/lib{library}.so",
                            "options": ["ro", "nosuid", "nodev", "bind"],
                        }
                        for library in range(16)
                    ],
                },
            }
            for device in range(8)
        ],
    }


def run(*command: str | Path) -> str:
    """Run a tool of the set-up. Raises BenchError with what it said if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd="/", capture_output=True, text=True)
    except FileNotFoundError:
        raise BenchError(f"{words[0]} is not installed.") from None
    if done.returncode != 0:
        raise BenchError(f"{' '.join(words)} failed: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def _program(name: str) -> str:
    found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        raise BenchError(f"{name} is not installed.")
    return found


def _interpreter() -> str:
    """A Python that has gpushim and its requirements: this one, or the project's environment's."""
    for path in (sys.executable, str(ROOT / ".venv/bin/python")):
        command = [path, "-I", "-c", "import gpushim.admin.cli"]
        try:
            if subprocess.run(command, capture_output=True, cwd="/").returncode == 0:
                return path
        except OSError:
            continue
    raise BenchError("No Python here has gpushim installed. Run `make setup`.")
