"""A container in a rig, as Docker and gpushim tell of it."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from tests.harness.bundle import PROBE
from tests.rigs.look import LOOK, Seen
from tests.rigs.rig import Completed, Rig

_RECORDS = "/var/lib/docker/containers"
_LOG = "/var/log/gpushim/gpushim.log"


class Ran:
    """One container of Docker's, started or not; it is removed at the end of ``with``."""

    def __init__(self, rig: Rig, id: str) -> None:
        self.rig, self.id = rig, id
        assert id

    def __enter__(self) -> Ran:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.rig.docker("rm", "--force", "--volumes", self.id, check=True)

    def _record(self, name: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.rig.read(f"{_RECORDS}/{self.id}/{name}"))
        return data

    @property
    def device_requests(self) -> list[dict[str, Any]]:
        """What is in Docker's record of it: Driver, Count, DeviceIDs, Capabilities, Options."""
        found: list[dict[str, Any]] = self._record("hostconfig.json").get("DeviceRequests") or []
        return found

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self._record("hostconfig.json").get("Annotations") or {}
        return found

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self._record("config.v2.json")["Config"]["Labels"]
        return found

    def exec(self, *words: str) -> Completed:
        """Run a program in it."""
        return self.rig.docker("exec", self.id, *words)

    def look(self) -> Seen:
        """The GPUs that a program in it has."""
        return Seen(self.rig, self.exec(*LOOK).stdout)

    def explained(self) -> dict[str, Any]:
        """What `gpushimctl explain --json` prints of it; empty if it got nothing from gpushim."""
        done = self.rig.ctl("explain", "--json", "--no-diff", self.id, check=False)
        if done.returncode:
            assert "There is no live container" in done.stderr, done
            return {}
        data: dict[str, Any] = json.loads(done.stdout)
        return data

    def logged(self) -> list[dict[str, Any]]:
        """The lines about it in gpushim's own log."""
        return [json.loads(line) for line in self.rig.read(_LOG).splitlines() if self.id in line]


def run(rig: Rig, *options: str, image: str = "debian", runtime: str = "gpushim") -> Completed:
    """`docker run` of a container that sleeps in the background; a Ran of its id tells more."""
    command = [rig.image(image), PROBE, "sleep", "600"]
    words = ["--detach", "--stop-timeout=0", f"--runtime={runtime}"]
    if not any(option.startswith("--network") for option in options):
        words.append("--network=none")
    return rig.docker("run", *words, *options, *command)


def started(rig: Rig, *options: str, image: str = "debian", runtime: str = "gpushim") -> Ran:
    """The same for one that is started for sure."""
    done = run(rig, *options, image=image, runtime=runtime)
    assert done.returncode == 0, done.stderr
    return Ran(rig, done.stdout.strip())
