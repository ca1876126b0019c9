"""The calls of a container's life, each measured."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from .bundle import PROBE, Bundle
from .measure import Caller, reap
from .statistics import Sample

LIFE = "whole life"


class Runtime:
    """A runtime, called as Docker's shim calls it."""

    def __init__(self, program: str, state: Path, caller: Caller) -> None:
        self.program = program
        self.state = state
        self.caller = caller

    def command(self, bundle: Bundle, *words: str) -> list[str]:
        """Return the command line of one call for a bundle's container."""
        log = ["--log", str(bundle.path / "log.json"), "--log-format", "json"]
        return [self.program, "--root", str(self.state), *log, *words]

    def create_command(self, bundle: Bundle, container: str) -> list[str]:
        path = str(bundle.path)
        pid_file = f"{path}/init.pid"
        return self.command(bundle, "create", "--bundle", path, "--pid-file", pid_file, container)

    def create(self, bundle: Bundle, container: str) -> Sample:
        return self.caller.call(self.create_command(bundle, container))

    def call(self, bundle: Bundle, *words: str) -> Sample:
        return self.caller.call(self.command(bundle, *words))

    def life(self, bundle: Bundle) -> dict[str, Sample]:
        """Run a container from create to delete; samples by call, and of all calls together."""
        container = new_id()
        bundle.renew(container)
        samples = {"create": self.create(bundle, container)}
        init = pid_of(bundle)
        samples["state"] = self.call(bundle, "state", container)
        samples["start"] = self.call(bundle, "start", container)
        again = self.call(bundle, "state", container)
        samples["kill"] = self.call(bundle, "kill", container, "KILL")
        later = reap(init)
        samples["delete"] = self.call(bundle, "delete", container)
        total = sum(samples.values(), again)
        made = samples["create"]
        samples["create"] = Sample(made.wall, made.cpu, later)
        samples[LIFE] = Sample(total.wall, total.cpu + later, later)
        return samples


class Running:
    """A running container, made by one runtime, into which either may exec.

    It is deleted with all others when the rig is closed.
    """

    def __init__(self, runtime: Runtime, bundle: Bundle) -> None:
        self.bundle = bundle
        self.id = new_id()
        bundle.renew(self.id)
        runtime.create(bundle, self.id)
        runtime.call(bundle, "start", self.id)

    def exec(self, runtime: Runtime) -> Sample:
        """Start a process in it that ends at once, as `docker exec` does."""
        process = self.bundle.path / "process.json"
        process.write_text(json.dumps(self._process()))
        pid_file = self.bundle.path / "exec.pid"
        words = ["--process", str(process), "--detach", "--pid-file", str(pid_file)]
        sample = runtime.call(self.bundle, "exec", *words, self.id)
        later = reap(int(pid_file.read_text()))
        process.unlink()
        return Sample(sample.wall, sample.cpu, later)

    def _process(self) -> dict[str, Any]:
        """The process as the engine has it, whose variables know nothing of gpushim's."""
        return {**self.bundle.spec["process"], "args": [PROBE, "exit", "0"]}


def new_id() -> str:
    """An id as Docker makes them."""
    return secrets.token_hex(32)


def pid_of(bundle: Bundle) -> int:
    """The pid of the init that a create has just made."""
    return int((bundle.path / "init.pid").read_text())
