"""Calling a low-level runtime, or gpushim in its place, on bundles."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness import workspace
from tests.harness.bundle import Bundle

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Result:
    """What a call left: exit status and both texts, in which any byte survives."""

    def __init__(self, command: Sequence[str], status: int, stdout: Path, stderr: Path) -> None:
        self.command, self.status = list(command), status
        self._stdout, self._stderr = stdout, stderr

    @property
    def stdout(self) -> str:
        """Return what was printed until now; a detached container goes on printing."""
        return self._stdout.read_text(errors="surrogateescape")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="surrogateescape")

    def __repr__(self) -> str:
        return f"{' '.join(self.command)}: {self.status}\n{self.stdout}{self.stderr}"

    def check(self) -> Result:
        """Fail the test, with all that was printed, unless the call succeeded."""
        assert self.status == 0, repr(self)
        return self


class Runtime:
    """One runtime with a state root of its own; leaving ``with`` deletes its containers.

    ``command`` is the program and perhaps options, ``environment`` what it is given in
    addition to PATH.  Output goes to files, since a container that outlives ``create``
    would keep a pipe open for ever.
    """

    def __init__(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        self.directory = workspace.make("runtime", Path("/run"))
        self.root = self.directory / "root"
        self.command = [str(word) for word in command] or ["runc"]
        self.environment = {"PATH": SYSTEM_PATH, **(environment or {})}
        self._ids: list[str] = []
        self._calls = 0

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def call(
        self,
        *arguments: str | Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        input: bytes = b"",
        timeout: float = 60,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> Result:
        """Run one command of the runtime; ``options`` are global ones."""
        words = [str(a) for a in arguments]
        command = [*self.command, f"--root={self.root}", *options, *words]
        self._calls += 1
        out, err, given = (
            self.directory / f"{self._calls}.{kind}" for kind in ("out", "err", "in")
        )
        given.write_bytes(input)
        with given.open("rb") as i, out.open("wb") as o, err.open("wb") as e:
            done = subprocess.run(
                command,
                env=self.environment if environment is None else dict(environment),
                stdin=i,
                stdout=o,
                stderr=e,
                timeout=timeout,
                pass_fds=pass_fds,
                cwd=cwd,
            )
        return Result(command, done.returncode, out, err)

    def _made(self, bundle: Bundle, id: str | None) -> str:
        name = id or bundle.id
        self._ids.append(name)
        return name

    def run(self, bundle: Bundle, *words: str, id: str | None = None, **how: Any) -> Result:
        """Run a container in the foreground; ``words`` are more options of ``run``."""
        return self.call("run", "--bundle", bundle.path, *words, self._made(bundle, id), **how)

    def create(self, bundle: Bundle, *words: str, id: str | None = None, **how: Any) -> Result:
        """Create a container; its output appears in this result once it is started."""
        return self.call("create", "--bundle", bundle.path, *words, self._made(bundle, id), **how)

    def start(self, id: str, **how: Any) -> Result:
        return self.call("start", id, **how)

    def state(self, id: str, **how: Any) -> dict[str, Any]:
        """Return the container's state; an empty one if the runtime doesn't know it."""
        result = self.call("state", id, **how)
        state: dict[str, Any] = json.loads(result.stdout) if result.status == 0 else {}
        return state

    def exec(self, id: str, *words: str, **how: Any) -> Result:
        """Run a program in a container that is running."""
        return self.call("exec", id, *words, **how)

    def kill(self, id: str, signal: str = "KILL", **how: Any) -> Result:
        return self.call("kill", id, signal, **how)

    def delete(self, id: str, *words: str, **how: Any) -> Result:
        return self.call("delete", *words, id, **how)

    def wait(self, id: str, status: str = "stopped", seconds: float = 20) -> dict[str, Any]:
        """Wait until a container has this status, and return its state."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state(id)
            if state.get("status") == status:
                return state
            assert time.monotonic() < deadline, f"{id} is {state.get('status')}, not {status}"
            time.sleep(0.02)

    def close(self) -> None:
        """Delete every container that was made here, then the state root."""
        for name in dict.fromkeys(self._ids):
            try:
                self.call("delete", "--force", name)
            except (OSError, subprocess.TimeoutExpired):
                pass  # the runtime under test may be what is broken
        workspace.delete_containers(self.root)
        workspace.remove(self.directory)
