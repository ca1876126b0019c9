"""Containers of a private dockerd, and what of them lies on the disk."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.harness.engine import PrivateDockerd


def bundle(engine: PrivateDockerd, container: str) -> Path:
    """The bundle directory of a container that is running; ``container`` is its whole id."""
    found = list(engine.exec_root.glob(f"**/{container}/config.json"))
    assert len(found) == 1, found
    return found[0].parent


def run(
    engine: PrivateDockerd, *words: str | Path, image: str = "debian", gpus: str | None = None
) -> subprocess.CompletedProcess[str]:
    """`docker run --rm` of a test image: options, then a word of two dashes, then the command."""
    place = words.index("--") if "--" in words else len(words)
    options, command = words[:place], words[place + 1 :]
    asked = ["-e", f"NVIDIA_VISIBLE_DEVICES={gpus}"] if gpus is not None else []
    network = [] if any("--network" in str(word) for word in options) else ["--network=none"]
    tag = engine.import_image(image)
    return engine.docker("run", "--rm", *network, *asked, *options, tag, *command)


class Detached:
    """A container that runs in the background until the end of ``with``."""

    def __init__(
        self,
        engine: PrivateDockerd,
        *options: str,
        image: str = "debian",
        gpus: str | None = None,
        command: Sequence[str] = ("/usr/local/bin/probe", "sleep", "300"),
    ) -> None:
        self.engine = engine
        asked = ["-e", f"NVIDIA_VISIBLE_DEVICES={gpus}"] if gpus is not None else []
        tag = engine.import_image(image)
        words = ["run", "-d", "--network=none", "--stop-timeout=1", *asked, *options, tag, *command]
        self.id = engine.docker(*words, check=True).stdout.strip()

    def __enter__(self) -> Detached:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.engine.docker("rm", "--force", "--volumes", self.id)

    @property
    def bundle(self) -> Path:
        return bundle(self.engine, self.id)

    @property
    def spec(self) -> dict[str, Any]:
        """Its config.json as it is now."""
        spec: dict[str, Any] = json.loads((self.bundle / "config.json").read_bytes())
        return spec

    def exec(self, *words: str) -> str:
        """What a program in it prints; options of `docker exec` go before it."""
        place = next(i for i, word in enumerate(words) if not word.startswith("-"))
        done = self.engine.docker("exec", *words[:place], self.id, *words[place:])
        return done.stdout + done.stderr

    def docker(self, verb: str, *words: str) -> None:
        """A command of docker on this container, which has to succeed."""
        self.engine.docker(verb, *words, self.id, check=True)
