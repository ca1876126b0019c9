"""One cell of the matrix: a machine, and a way in which containers ask for GPUs there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.harness.bundle import PROBE
from tests.rigs import Rig
from tests.rigs.ran import Ran
from tests.rigs.rig import DAEMON, Completed
from tests.rigs.shared import Kind

# How a machine has to be set up, and what a container that asks for GPUs is run with.
RUNTIME, DEFAULT, GPUS, HOOK = "runtime", "default", "gpus", "hook"


@dataclass(frozen=True)
class Way:
    """title: as the table has it; install: options of `gpushimctl install`."""

    name: str
    title: str
    install: tuple[str, ...]

    def options(self, count: int) -> list[str]:
        """What `docker run` is given for so many GPUs."""
        if self.name == HOOK:
            return ["--runtime=runc", f"--gpus={count}"]
        if self.name == GPUS:
            return [f"--gpus={count}"]
        label = f"--label=gpushim.gpus={count}"
        return ["--runtime=gpushim", label] if self.name == RUNTIME else [label]


WAYS = {
    RUNTIME: Way(RUNTIME, "`--runtime gpushim`", ()),
    DEFAULT: Way(DEFAULT, "default-runtime", ("--default",)),
    GPUS: Way(GPUS, "`--gpus`, gpushim the default", ("--default",)),
}


@dataclass(frozen=True)
class Place:
    """A kind of machine."""

    suite: str
    cgroups: Kind

    @property
    def title(self) -> str:
        return {
            "host": "cgroup of the machine, cgroupfs",
            "v2": "cgroup v2, cgroupfs",
            "systemd": "cgroup v2, systemd",
            "guest": "cgroup v2, systemd, a kernel of its own",
        }[self.cgroups]


PLACES = [
    Place(suite, cgroups)
    for suite in ("bookworm", "trixie", "forky")
    for cgroups in ("host", "v2", "systemd")
] + [Place("forky", "guest")]


class Cell:
    """A machine that was set up for a way."""

    def __init__(self, rig: Rig, place: Place, way: Way) -> None:
        self.rig, self.place, self.way = rig, place, way

    def facts(self) -> dict[str, str]:
        """The versions of what was run, by name."""
        info = json.loads(self.rig.docker("info", "--format={{json .}}", check=True).stdout)
        return {
            "docker": info["ServerVersion"],
            "containerd": _version(self.rig, "containerd", "--version"),
            "runc": _version(self.rig, "runc", "--version"),
            "systemd": _version(self.rig, "systemctl", "--version"),
            "python": _version(self.rig, "/usr/bin/python3", "--version"),
            "kernel": info["KernelVersion"],
            "cgroups": f"v{info['CgroupVersion']}, {info['CgroupDriver']}",
        }

    def run(
        self, *options: str, count: int = 2, command: tuple[str, ...] = (PROBE, "sleep", "600")
    ) -> Completed:
        """`docker run` of a container that asks for so many GPUs; 0 for one that wants none."""
        asked = self.way.options(count) if count else self.plain()
        network = () if any(each.startswith("--network") for each in options) else ("none",)
        words = [*(f"--network={each}" for each in network), *asked, *options]
        return self.rig.docker("run", *words, self.rig.image("debian"), *command)

    def plain(self) -> list[str]:
        """The options of a container that asks for no GPU."""
        runtimes = {RUNTIME: ["--runtime=gpushim"], HOOK: ["--runtime=runc"]}
        return runtimes.get(self.way.name, [])

    @contextmanager
    def started(self, *options: str, count: int = 2) -> Iterator[Ran]:
        """One that sleeps, to be looked into; it is removed in the end."""
        done = self.run("--detach", "--stop-timeout=0", *options, count=count)
        assert done.returncode == 0, done.stderr
        with Ran(self.rig, done.stdout.strip()) as ran:
            yield ran

    def configure(self, **settings: object) -> None:
        """Set keys of daemon.json, and have dockerd read it."""
        data = {**json.loads(self.rig.read(DAEMON)), **settings}
        self.rig.write(DAEMON, json.dumps(data))
        self.rig.run("sh", "-c", "kill -HUP $(cat /run/docker.pid)")


def _version(rig: Rig, *command: str) -> str:
    words = rig.run(*command, check=False).stdout.split("\n")[0].split()
    numbers = [word for word in words if word[:1].isdigit()]
    return numbers[0] if numbers else ""
