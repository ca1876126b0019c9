"""Containers that ask for something on one machine, and what became of each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.attempt import refusal
from tests.harness.bundle import Bundle
from tests.harness.machine import Machine
from tests.harness.runtime import Runtime
from tests.harness.seen import devices, outcomes, probe, variables

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
ADMINISTRATOR = "CAP_SYS_ADMIN"


class Outcome:
    """A container that ran: its bundle as it is now, what it printed, what the log has of it."""

    def __init__(
        self, machine: Machine, bundle: Bundle, text: str, log: list[dict[str, Any]]
    ) -> None:
        self.machine = machine
        self.bundle = bundle
        self.text = text
        self.log = log

    @property
    def nodes(self) -> dict[str, str]:
        """What opening the driver's nodes gave, without those that are not there."""
        return devices(self.text)

    @property
    def gpus(self) -> list[int]:
        """The indices of the GPUs that the container can use, by their nodes and by its own.

        Its rules allow those whose nodes it has and no others: this is tried with nodes that it
        makes itself, which is what the rules are for.
        """
        found = {}
        for gpu in self.machine.host.gpus:
            there = self.nodes.get(self.machine.node(gpu.index)) == "ENXIO"
            made = outcomes(self.text)[f"/dev/made{gpu.index}"]
            assert made == ("ENXIO" if there else "EPERM"), (gpu.index, made, self.text)
            found[gpu.index] = there
        return [index for index, there in found.items() if there]

    @property
    def env(self) -> dict[str, str]:
        return variables(self.text)

    @property
    def visible(self) -> str | None:
        return self.env.get(VISIBLE)

    @property
    def spec(self) -> dict[str, Any]:
        return self.bundle.read()

    @property
    def untouched(self) -> bool:
        """Whether the spec is byte for byte as the engine wrote it, and nothing lies beside it."""
        beside = list(self.bundle.path.glob("config.json?*"))
        return not beside and self.bundle.config_path.read_text() == json.dumps(self.bundle.config)

    @property
    def warnings(self) -> str:
        """What the log says of it by way of warning."""
        return " ".join(word for line in self.log for word in line.get("warnings", []))

    @property
    def recorded(self) -> bool:
        """Whether a decision was put on record."""
        return self.bundle.id in self.machine.records()

    @property
    def granted(self) -> dict[str, Any]:
        """The log's line on what it was given."""
        (line,) = self.log
        return line

    @property
    def spec_nodes(self) -> set[str]:
        """The device nodes in the spec, by name beneath /dev, each of which a rule allows."""
        linux = self.spec["linux"]
        nodes = linux.get("devices") or []
        allowed = {(r.get("major"), r.get("minor")) for r in linux["resources"]["devices"]}
        assert {(node["major"], node["minor"]) for node in nodes} <= allowed
        return {node["path"].removeprefix("/dev/") for node in nodes}


class Ask:
    """Runs containers, or sees them refused, on one machine by way of its gpushim."""

    def __init__(
        self, machine: Machine, runtime: Runtime, make_bundle: Callable[..., Bundle]
    ) -> None:
        self.machine = machine
        self.runtime = runtime
        self._make = make_bundle

    def look(self, *more: Sequence[str]) -> list[str]:
        """The command that `Outcome` understands, and further commands of the probe."""
        gpus = self.machine.host.gpus
        control = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
        names = [*control, *(self.machine.node(gpu.index) for gpu in gpus)]
        made = [f"/dev/made{gpu.index}" for gpu in gpus]
        makes = [
            ["mknod", path, "195", str(gpu.minor)] for path, gpu in zip(made, gpus, strict=True)
        ]
        return probe(["open", *(f"/dev/{name}" for name in names)], *makes, ["open", *made],
                     ["env"], *more)  # fmt: skip

    def bundle(
        self,
        *env: str,
        args: Sequence[str] | None = None,
        image: str = "busybox",
        administrator: bool = False,
        more: Sequence[Sequence[str]] = (),
        mounts: Sequence[Mapping[str, Any]] = (),
        nodes: Sequence[Mapping[str, Any]] = (),
        hooks: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Bundle:
        """A bundle with these variables; ``nodes`` are of linux.devices, each with its rule."""
        args = args if args is not None else self.look(*more)
        made = self._make(image, args, env=env, mounts=mounts, **options)
        if administrator:
            for kind in ("bounding", "effective", "permitted"):
                made.config["process"]["capabilities"][kind].append(ADMINISTRATOR)
        if hooks:
            made.config["hooks"] = dict(hooks)
        for node in nodes:
            made.config["linux"].setdefault("devices", []).append(dict(node))
            rule = {name: node[name] for name in ("type", "major", "minor")}
            rules = made.config["linux"]["resources"]["devices"]
            rules.append({"allow": True, "access": "rwm", **rule})
        made.write()
        return made

    def run(self, *env: str, check: bool = True, **options: Any) -> Outcome:
        """A container that runs to its end, a good one if ``check``; options as of ``bundle``."""
        return self.started(self.bundle(*env, **options), check)

    def started(self, bundle: Bundle, check: bool = True) -> Outcome:
        """The same with a bundle that there is already."""
        before = len(self.machine.log_lines())
        result = self.runtime.run(bundle)
        if check:
            result.check()
        lines = self.machine.log_lines()[before:]
        mine = [line for line in lines if line.get("id") == bundle.id]
        return Outcome(self.machine, bundle, result.stdout, mine)

    def left(self, *env: str, **options: Any) -> Outcome:
        """A container that gets nothing: its spec stays as it is, and nothing is on record."""
        outcome = self.run(*env, **options)
        assert outcome.nodes == {}
        assert outcome.untouched
        assert not outcome.recorded
        return outcome

    def refused(self, *env: str, **options: Any) -> str:
        """The text with which a container is refused; nothing is written for it."""
        self.last = self.bundle(*env, **options)
        return refusal(self.machine, self.runtime, self.last)

    def explain(self, name: str | None = None) -> str:
        """What gpushimctl says of a container, by default of the one that was refused last."""
        return self.machine.installed.ctl("explain", "--no-diff", name or self.last.id)

    def created(self, *env: str, **options: Any) -> Bundle:
        """A container that is there, and not started, until its runtime is closed."""
        made = self.bundle(*env, args=probe(["sleep", "300"]), **options)
        self.runtime.create(made).check()
        return made

    def delete(self, bundle: Bundle) -> None:
        self.runtime.delete(bundle.id, "--force").check()

    def running(self, *env: str, **options: Any) -> Bundle:
        """The same, started."""
        made = self.created(*env, **options)
        self.runtime.start(made.id).check()
        return made

    def exec(self, bundle: Bundle, *env: str) -> dict[str, str]:
        """The environment of a later process, which has these variables by the engine."""
        content = {**bundle.config["process"], "args": probe(["env"]), "env": list(env)}
        file = self.runtime.directory / "process.json"
        file.write_text(json.dumps(content))
        done = self.runtime.call("exec", "--process", file, bundle.id)
        return variables(done.check().stdout)


def ctl(machine: Machine, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A verb of gpushimctl on a machine, whatever its exit status."""
    command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", str(machine.places.root)]
    return subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=120)
