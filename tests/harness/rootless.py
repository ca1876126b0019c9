"""Containers of other users: rootless runc, in a user namespace of theirs alone."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import images
from tests.harness import workspace
from tests.harness.bundle import base_config
from tests.harness.machine import Machine
from tests.harness.runtime import SYSTEM_PATH

Done = subprocess.CompletedProcess[str]


class Rootless:
    """One user's gpushim, with a state root and a runtime directory that nobody else may enter.

    ``program`` is what is called, by default the machine's launcher.
    """

    def __init__(self, machine: Machine, uid: int, program: str | Path = "") -> None:
        self.machine, self.uid = machine, uid
        self.program = str(program or machine.launcher)
        self.directory = workspace.make(f"user{uid}", Path("/var/tmp"))
        self.runtime_directory = self.directory / "run"
        self.environment = {
            "PATH": SYSTEM_PATH,
            "HOME": str(self.directory),
            "XDG_RUNTIME_DIR": str(self.runtime_directory),
        }
        self.runtime_directory.mkdir(mode=0o700)
        self.directory.chmod(0o755)
        os.chown(self.runtime_directory, uid, uid)
        self._ids: list[str] = []

    def bundle(self, args: Sequence[str], *env: str) -> Path:
        """A bundle of this user's; its name is the container's id."""
        path = self.directory / f"user{self.uid}-{secrets.token_hex(4)}"
        path.mkdir()
        shutil.copytree(images.image("busybox"), path / "rootfs", symlinks=True)
        (path / "config.json").write_text(json.dumps(self._config(args, env)))
        for directory, _, files in os.walk(path):
            for name in (directory, *(f"{directory}/{file}" for file in files)):
                os.chown(name, self.uid, self.uid, follow_symlinks=False)
        self._ids.append(path.name)
        return path

    def _config(self, args: Sequence[str], env: Sequence[str]) -> dict[str, Any]:
        """What `runc spec --rootless` would write: no network of its own, and no groups."""
        config = base_config(args, env=env)
        linux = config["linux"]
        kinds = ("pid", "ipc", "uts", "mount", "user")
        linux["namespaces"] = [{"type": kind} for kind in kinds]
        linux["uidMappings"] = [{"containerID": 0, "hostID": self.uid, "size": 1}]
        linux["gidMappings"] = linux["uidMappings"]
        for mount in config["mounts"]:
            if mount["destination"] == "/sys":
                mount.update(type="none", source="/sys")
                mount["options"].append("rbind")
        return config

    def call(self, *words: str | Path, timeout: float = 60) -> Done:
        """A command of the runtime; what it and its containers print goes through files."""
        out = self.directory / f"out-{secrets.token_hex(4)}"
        command = [self.program, f"--root={self.runtime_directory}/root", *map(str, words)]
        with out.open("wb") as file:
            status = self.process(command, stdout=file, stderr=file).wait(timeout)
        return Done(command, status, out.read_text(errors="replace"), "")

    def process(self, command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        """A program that this user runs."""
        return subprocess.Popen(
            command, user=self.uid, group=self.uid, extra_groups=[], env=self.environment,
            cwd="/", stdin=subprocess.DEVNULL, **how,
        )  # fmt: skip

    def create(self, bundle: Path) -> Done:
        return self.call("create", "--bundle", bundle, bundle.name)

    def created(self, args: Sequence[str], *env: str) -> Path:
        """A container that is there; the test fails if it is refused."""
        bundle = self.bundle(args, *env)
        done = self.create(bundle)
        assert done.returncode == 0, done
        return bundle

    def init(self, bundle: Path) -> int:
        """The pid of a container's first process."""
        state: dict[str, Any] = json.loads(self.call("state", bundle.name).stdout)
        return int(state["pid"])

    def delete(self, bundle: Path) -> None:
        done = self.call("delete", "--force", bundle.name)
        assert done.returncode == 0, done

    def close(self) -> None:
        for name in self._ids:
            self.call("delete", "--force", name)
        workspace.remove(self.directory)
