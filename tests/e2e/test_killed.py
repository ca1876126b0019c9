"""gpushim is killed at each step of a create: the same create works afterwards, nothing is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import cannot
from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, outcomes, probe

pytestmark = pytest.mark.e2e

# The calls by which a create changes anything. A call during which the kill comes is not done.
STEPS = (
    *("write", "rename", "renameat", "link", "symlink", "mkdir", "unlink", "rmdir"),
    *("chmod", "fchmod", "fchown", "utimensat", "ftruncate"),
)
# What a kill may leave: in a container's own root, and among merged caches until they are
# collected, what was being written.
_BEING_WRITTEN = re.compile(
    r"\.(ld\.so\.cache|00-gpushim\.conf)\.gpushim-[0-9a-f]{12}$|/loader-cache/[0-9a-f]{64}(\.tmp\d+)?$"
)


class Killing:
    """One bundle whose create is begun again and again."""

    def __init__(self, machine: Machine, runtime: Runtime, bundle: Bundle) -> None:
        self.machine, self.runtime, self.bundle = machine, runtime, bundle
        self.etc = bundle.rootfs / "etc"
        self.original = bundle.config_path.read_bytes()
        self.cache = (self.etc / "ld.so.cache").read_bytes()
        self.trace = runtime.directory / "trace"
        self.clean = self.files()

    def command(self) -> list[str]:
        words = [f"--root={self.runtime.root}", "create", "--bundle", self.bundle.path]
        return [str(self.machine.launcher), *map(str, words), self.bundle.id]

    def files(self) -> set[str]:
        """Names of all files that a create could leave anywhere."""
        places = self.machine.places
        tops = (self.bundle.path, self.etc, self.etc / "ld.so.conf.d", Path(places.run))
        names = {str(path) for top in tops for path in top.glob("*")}
        return names | {str(path) for path in Path(places.run).glob("*/**/*")}

    def reset(self) -> None:
        """The bundle and the root as before the first create, but not gpushim's own state."""
        for path in self.bundle.path.glob("config.json*"):
            path.unlink()
        self.bundle.config_path.write_bytes(self.original)
        (self.etc / "ld.so.cache").write_bytes(self.cache)
        (self.etc / "ld.so.conf.d/00-gpushim.conf").unlink(missing_ok=True)
        shutil.rmtree(self.machine.places.loader_caches, ignore_errors=True)

    def create(self, *strace: str) -> int:
        """Exit status of a create under strace, which follows no other process."""
        command = ["strace", "-qq", "-o", str(self.trace), *strace, *self.command()]
        out = self.runtime.directory / "create.out"
        with out.open("wb") as file:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=60
            ).returncode

    def steps(self) -> list[tuple[str, int]]:
        """Each call that changes something until the low-level runtime takes over."""
        self.reset()
        assert self.create("-e", f"trace=execve,{','.join(STEPS)}") == 0
        self.runtime.delete(self.bundle.id, "--force").check()
        counts: dict[str, int] = {}
        found = []
        for line in self.trace.read_text().splitlines():
            call = line.partition("(")[0]
            if call == "execve":
                if "/runc" in line.partition("[")[0]:
                    break
            elif call in STEPS:
                counts[call] = counts.get(call, 0) + 1
                found.append((call, counts[call]))
        return found

    def kill_at(self, call: str, number: int) -> None:
        status = self.create(
            "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"
        )
        assert status in (-signal.SIGKILL, 128 + signal.SIGKILL), (call, number, status)
        assert self.runtime.state(self.bundle.id) == {}

    def check(self, step: tuple[str, int]) -> None:
        """The same create works, and its container has what it asked for."""
        now = self.bundle.config_path.read_bytes()
        if now != self.original:
            assert self.machine.uuids(1, 3).encode() in now, step
            json.loads(now)
            kept = self.bundle.path / "config.json.gpushim-orig"
            assert kept.read_bytes() == self.original, step
        result = self.runtime.create(self.bundle).check()
        self.runtime.start(self.bundle.id).check()
        self.runtime.wait(self.bundle.id)
        wanted = {*CONTROL, self.machine.node(1), self.machine.node(3)}
        assert devices(result.stdout).keys() == wanted, step
        assert outcomes(result.stdout)["libcuda.so.1"].startswith("/usr/local/nvidia/"), step
        self.runtime.delete(self.bundle.id).check()
        assert (self.bundle.path / "config.json.gpushim-orig").read_bytes() == self.original, step

    def left(self) -> set[str]:
        """What is there now and was not before, without what a whole create leaves, too."""
        expected = {
            *(str(self.bundle.config_path) + ending for ending in (".gpushim", ".gpushim-orig")),
            str(self.etc / "ld.so.conf.d/00-gpushim.conf"),
        }
        names = {os.path.relpath(name, self.etc) for name in self.files() - self.clean - expected}
        return {name for name in names if not _BEING_WRITTEN.search(name)}


def test_killed_at_each_step(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> None:
    """B31."""
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    machine = make_machine()
    args = probe(["open", *NODES], ["dlopen", "libcuda.so.1"])
    bundle = make_bundle("debian", args, env=["NVIDIA_VISIBLE_DEVICES=1,3"])
    killing = Killing(machine, runtime_of(machine), bundle)
    steps = killing.steps()
    assert len(steps) > 15
    whole = killing.left()
    for step in steps:
        killing.reset()
        killing.kill_at(*step)
        killing.check(step)
        # Records go when the next create looks, so there may be the one of the last create.
        left = {re.sub(r"-\d+-\d+\.(json|state)$", r".\1", name) for name in killing.left()}
        expected = {re.sub(r"-\d+-\d+\.(json|state)$", r".\1", name) for name in whole}
        assert left == expected, step


def test_killed_while_the_inventory_is_found_out(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> None:
    """The refresh goes on without whoever began it, and serves the next create."""
    machine = make_machine()
    runtime = runtime_of(machine)
    bundle = make_bundle("busybox", probe(["open", *NODES]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    for delay in (0.02, 0.06, 0.1, 0.2, 0.3):
        machine.forget()
        command = [str(machine.launcher), f"--root={runtime.root}", "create"]
        begun = subprocess.Popen(
            [*command, "--bundle", str(bundle.path), bundle.id], start_new_session=True
        )
        try:
            begun.wait(delay)
        except subprocess.TimeoutExpired:
            begun.kill()
            begun.wait()
        runtime.delete(bundle.id, "--force")
        seen = runtime.run(bundle).check().stdout
        assert devices(seen).keys() == {*CONTROL, machine.node(1)}
        assert not list(Path(machine.places.run).glob("*.tmp*"))
