"""Docker Compose in a rig: one project whose services are started one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tests.harness.bundle import PROBE
from tests.rigs.ran import Ran
from tests.rigs.rig import Completed, Rig

Service = Mapping[str, Any]


class Project:
    """A compose file with these services, and what became of them.

    Each has an image of the tests, gpushim as its runtime, sleeps, and has no network, unless it
    says otherwise. The project is taken down at the end of ``with``.
    """

    def __init__(self, rig: Rig, services: Mapping[str, Service], image: str = "debian") -> None:
        self.rig = rig
        self.directory = "/root/project"
        common = {
            "image": rig.image(image),
            "runtime": "gpushim",
            "network_mode": "none",
            "command": [PROBE, "sleep", "600"],
            "stop_grace_period": "0s",
        }
        complete = {name: {**common, **service} for name, service in services.items()}
        # What is JSON is YAML, too.
        text = json.dumps({"services": complete}, indent=2)
        rig.write(f"{self.directory}/compose.yaml", text)

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.compose("down", "--remove-orphans", "--timeout=0")

    def compose(self, *words: str) -> Completed:
        """Run docker compose on this project."""
        return self.rig.docker(
            "compose",
            "--ansi=never",
            f"--project-directory={self.directory}",
            "--project-name=project",
            *words,
        )

    def up(self, service: str) -> Completed:
        """Start one service, and those that it needs."""
        return self.compose("up", "--detach", service)

    def container(self, service: str) -> Ran:
        """A service's container, which may be one that could not be started."""
        listed = self.compose("ps", "--all", "--quiet", "--no-trunc", service)
        return Ran(self.rig, listed.stdout.strip())

    def containers(self, service: str) -> list[Ran]:
        """All containers of a service."""
        listed = self.compose("ps", "--all", "--quiet", "--no-trunc", service)
        return [Ran(self.rig, each) for each in listed.stdout.split()]

    @property
    def version(self) -> tuple[int, ...]:
        """Compose's own version: (2, 40, 3)."""
        text = self.compose("version", "--short").stdout.strip().removeprefix("v")
        return tuple(int(part) for part in text.split("-")[0].split("+")[0].split("."))
