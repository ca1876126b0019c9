"""A container with GPUs and one without, on a machine that something is wrong with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.harness.bundle import Bundle
from tests.harness.machine import Machine
from tests.harness.runtime import Result, Runtime
from tests.harness.seen import NODES, devices, probe

# In these Docker reads a meaning of its own, and shows another exit status.
MISLEADING = ("no such file or directory", "executable file not found", "permission denied")


def traces(machine: Machine, bundle: Bundle) -> tuple[object, ...]:
    """Everything that a create writes, as it is now."""
    files = {
        str(path): path.read_bytes() if path.name.startswith("config.json") else b""
        for path in bundle.path.iterdir()
    }
    etc = bundle.rootfs / "etc"
    return files, sorted(os.listdir(etc)) if etc.is_dir() else [], machine.records()


def refusal(machine: Machine, runtime: Runtime, bundle: Bundle) -> str:
    """The text with which a create fails, after a check that nothing was written.

    It stands as one line of JSON in the engine's log, and on stderr.
    """
    log = runtime.directory / "log.json"
    log.unlink(missing_ok=True)
    before = traces(machine, bundle)
    others = runtime.call("list", "-q").stdout
    options = ["--log", str(log), "--log-format", "json"]
    result = runtime.create(bundle, options=options)
    assert result.status == 1, result
    assert traces(machine, bundle) == before
    assert runtime.call("list", "-q").stdout == others
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 1, lines
    line: Mapping[str, str] = lines[0]
    assert set(line) == {"level", "msg", "time"}
    assert line["level"] == "error"
    text = line["msg"]
    assert text.startswith("gpushim: ")
    assert result.stderr == text + "\n"
    assert not [words for words in MISLEADING if words in text.lower()]
    return text


class Attempts:
    """What containers get on one machine."""

    def __init__(
        self, machine: Machine, runtime: Runtime, make_bundle: Callable[..., Bundle]
    ) -> None:
        self.machine, self.runtime, self._make = machine, runtime, make_bundle

    def bundle(self, gpus: str | None = "1,3", image: str = "busybox", *env: str) -> Bundle:
        asked = [f"NVIDIA_VISIBLE_DEVICES={gpus}"] if gpus is not None else []
        return self._make(image, probe(["open", *NODES]), env=[*asked, *env])

    def granted(self, gpus: str = "1,3") -> bool:
        """Whether a container gets these GPUs; if not, that is a failure of the create."""
        result = self.runtime.run(self.bundle(gpus)).check()
        wanted = {self.machine.node(int(index)) for index in gpus.split(",")}
        return wanted <= set(devices(result.stdout))

    def refused(self, gpus: str = "1,3", *env: str) -> str:
        """The text with which GPUs are refused."""
        return refusal(self.machine, self.runtime, self.bundle(gpus, "debian", *env))

    def others_start(self, *more: str) -> bool:
        """Whether containers that ask for nothing start, and keep their spec."""
        results: list[Result] = []
        for gpus in (None, *more):
            bundle = self.bundle(gpus)
            before = traces(self.machine, bundle)
            results.append(self.runtime.run(bundle))
            assert results[-1].status == 0, results[-1]
            assert devices(results[-1].stdout) == {}
            assert traces(self.machine, bundle) == before
        return True


def set_launcher(machine: Machine, **values: Path | str) -> None:
    """Changes what install wrote into the launcher: python, code, refresh_python."""
    path = Path(machine.launcher)
    lines = path.read_text().splitlines(keepends=True)
    for name, value in values.items():
        start = f"_{name}="
        number = next(i for i, line in enumerate(lines) if line.startswith(start))
        lines[number] = f"{start}'{value}'\n"
    path.write_text("".join(lines))
