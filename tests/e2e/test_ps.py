"""gpushimctl ps and release: who has which GPUs, told to everybody, and taken away by some."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakehost import preset
from tests.harness import Bundle, PrivateDockerd, Runtime
from tests.harness.bundle import PROBE
from tests.harness.dockered import Detached
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
A100 = "NVIDIA A100-SXM4-80GB"
GIB = 1 << 30


class Ctl:
    """gpushimctl on a machine, wide enough for a row to be a line."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def run(self, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli"]
        command += ["--root", self.machine.places.root, *words]
        who: dict[str, Any] = {}
        if user is not None:
            who = {"user": user, "group": user, "extra_groups": []}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60,
            env={**os.environ, "COLUMNS": "300"}, **who,
        )  # fmt: skip

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done
        return done.stdout

    def fails(self, *words: str, user: int | None = None) -> str:
        done = self.run(*words, user=user)
        assert (done.returncode, done.stdout) == (1, ""), done
        return done.stderr

    def leases(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ok("ps", "--json", *words))["leases"]
        return found

    def rows(self, *words: str) -> list[str]:
        """Rows of the table, blanks made single."""
        lines = self.ok("ps", *words).splitlines()
        return [" ".join(line.split()) for line in lines]


@pytest.fixture
def machine(make_machine: Callable[..., Machine]) -> Machine:
    return make_machine()


@pytest.fixture
def ctl(machine: Machine) -> Ctl:
    return Ctl(machine)


@pytest.fixture
def start(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> Callable[..., Bundle]:
    """Starts a container with these variables."""
    runtime = runtime_of(machine)

    def make(*env: str, **options: Any) -> Bundle:
        bundle = make_bundle("busybox", [PROBE, "sleep", "100"], env=list(env), **options)
        runtime.create(bundle).check()
        runtime.start(bundle.id).check()
        return bundle

    make.runtime = runtime  # type: ignore[attr-defined]
    return make


def end(start: Callable[..., Bundle], bundle: Bundle) -> None:
    """Ends a container's init; its state stays behind, as an engine that crashed leaves it."""
    runtime: Runtime = start.runtime  # type: ignore[attr-defined]
    runtime.kill(bundle.id).check()
    runtime.wait(bundle.id)


def test_nobody_has_anything(ctl: Ctl) -> None:
    assert ctl.ok("ps") == "No container has a lease on a GPU.\n"
    empty: dict[str, Any] = {"leases": [], "kept_out": [], "waiting": []}
    assert json.loads(ctl.ok("ps", "--json")) == empty


def test_the_table(ctl: Ctl, start: Callable[..., Bundle]) -> None:
    whole = start("GPUSHIM_GPUS=3")
    part = start("GPUSHIM_GPUS=2", "GPUSHIM_MEMORY=20g", "GPUSHIM_COMPUTE=25")
    named = start("NVIDIA_VISIBLE_DEVICES=7")
    heading, *rows = ctl.rows()
    assert heading.startswith("container GPUs mode memory booked state since engine user CPUs")
    assert len(rows) == 3
    by_id = {row.split()[0]: row for row in rows}
    assert f"0 to 2 ({A100}) exclusive - live" in by_id[whole.id[:12]]
    shared = by_id[part.id[:12]]
    assert f"3, 4 ({A100}) shared, 25% 20 GiB each (not enforced) live" in shared
    assert f" 7 ({A100}) open - live" in by_id[named.id[:12]]
    assert all(" root " in row for row in rows)


def test_as_data(ctl: Ctl, machine: Machine, start: Callable[..., Bundle]) -> None:
    before = int(time.time())
    mine = start("GPUSHIM_GPUS=1", "GPUSHIM_MEMORY=20g")
    (lease,) = ctl.leases()
    assert (lease["id"], lease["state"], lease["uid"], lease["user"]) == (
        mine.id,
        "live",
        0,
        "root",
    )
    assert before <= lease["since"] <= time.time()
    assert lease["memory_enforcement"] == "none"
    assert lease["devices"] == [
        {
            "uuid": machine.host.gpus[0].uuid,
            "name": "0",
            "model": A100,
            "mode": "shared",
            "memory": 20 * GIB,
            "compute": 0,
        }
    ]
    assert lease["cgroup"]["pids"] == 1
    assert lease["cgroup"]["memory"] > 0
    start("GPUSHIM_GPUS=1")
    assert [lease["memory_enforcement"] for lease in ctl.leases()].count(None) == 1


def test_limits_of_the_containers_cgroup(
    ctl: Ctl, machine: Machine, start: Callable[..., Bundle]
) -> None:
    machine.configure('[limits]\nmemory-per-gpu = "512m"\ncpus-per-gpu = "1.5"\n')
    start("GPUSHIM_GPUS=2")
    (lease,) = ctl.leases()
    assert lease["cgroup"]["memory_limit"] == GIB
    assert lease["cgroup"]["processors"] == 3.0
    assert "MiB of 1 GiB" in ctl.rows()[1]


def test_mig_devices(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    machine = make_machine(preset("mig_host", modify_device_files=0))
    bundle = make_bundle("busybox", [PROBE, "sleep", "100"], env=["GPUSHIM_MIG=1g.10gb"])
    runtime_of(machine).create(bundle).check()
    row = Ctl(machine).rows()[1]
    assert f"(1g.10gb of {A100}) exclusive" in row
    assert row.split()[1].startswith(("0:", "1:"))


def test_a_container_that_is_gone(ctl: Ctl, machine: Machine, start: Callable[..., Bundle]) -> None:
    """It shows with --all, until the next look drops its lease; nothing else has to happen."""
    bundle = start("GPUSHIM_GPUS=1")
    end(start, bundle)
    assert [lease["state"] for lease in ctl.leases("--all")] == ["gone"]
    assert len(os.listdir(machine.places.leases)) == 1
    assert ctl.leases() == []
    assert os.listdir(machine.places.leases) == []
    assert ctl.leases("--all") == []


def test_old_leases_are_marked(ctl: Ctl, machine: Machine, start: Callable[..., Bundle]) -> None:
    machine.configure('[allocate]\nmax-age = "1s"\n')
    start("GPUSHIM_GPUS=1")
    time.sleep(2.1)
    assert [lease["older_than_max_age"] for lease in ctl.leases()] == [True]
    assert " s (too old) " in ctl.rows()[1]


def test_everybody_may_look(ctl: Ctl, machine: Machine, start: Callable[..., Bundle]) -> None:
    """Another user sees whose containers there are, and that they live where the cgroup tells."""
    bundle = start("GPUSHIM_GPUS=1")
    for path in (Path(machine.places.root), *Path(machine.places.root).parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    done = ctl.run("ps", "--json", user=1000)
    assert done.returncode == 0, done.stderr
    (lease,) = json.loads(done.stdout)["leases"]
    assert (lease["id"], lease["user"], lease["state"]) == (bundle.id, "root", "live")
    # What is gone is told, and not dropped: it isn't theirs.
    end(start, bundle)
    done = ctl.run("ps", "--json", "--all", user=1000)
    assert [each["state"] for each in json.loads(done.stdout)["leases"]] in (["gone"], ["unknown"])
    assert len(os.listdir(machine.places.leases)) == 1


def test_release(ctl: Ctl, machine: Machine, start: Callable[..., Bundle]) -> None:
    bundle = start("GPUSHIM_GPUS=8")
    text = ctl.fails("release", bundle.id[:10])
    assert f"{bundle.id[:12]} lives and has GPUs 0 to 7" in text
    assert "--force" in text
    assert len(ctl.leases()) == 1
    said = ctl.ok("release", bundle.id, "--force")
    assert said == f"Released the lease of {bundle.id[:12]} on GPUs 0 to 7 ({A100}).\n"
    assert ctl.leases() == []
    line = machine.log_lines()[-1]
    assert (line["msg"], line["id"], line["alive"]) == ("released", bundle.id, True)
    assert line["by"].startswith("root")
    assert len(line["gpus"]) == 8
    other = start("GPUSHIM_GPUS=1")
    assert [lease["id"] for lease in ctl.leases()] == [other.id]


def test_release_of_what_is_gone(ctl: Ctl, start: Callable[..., Bundle]) -> None:
    bundle = start("GPUSHIM_GPUS=1")
    end(start, bundle)
    assert "whose container was gone" in ctl.ok("release", bundle.id)


def test_release_by_somebody_else(ctl: Ctl, machine: Machine, start: Callable[..., Bundle]) -> None:
    bundle = start("GPUSHIM_GPUS=1")
    for path in (Path(machine.places.root), *Path(machine.places.root).parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    text = ctl.fails("release", bundle.id, "--force", user=1000)
    assert "that of root" in text
    assert len(ctl.leases()) == 1


@pytest.mark.parametrize("name", ["nobody", "", "-"])
def test_release_of_nothing(ctl: Ctl, start: Callable[..., Bundle], name: str) -> None:
    bundle = start("GPUSHIM_GPUS=1")
    text = ctl.fails("release", "--force", "--", name)
    assert f"No container '{name}' has a lease." in text
    assert bundle.id[:12] in text


def test_a_ticket_is_no_container(ctl: Ctl) -> None:
    said = ctl.ok("reserve", "--gpus", "2")
    (lease,) = ctl.leases()
    assert lease["state"] == "reserved"
    assert lease["ticket"] in said
    assert f"ticket {lease['ticket']} 0, 1 ({A100}) exclusive - reserved" in ctl.rows()[1]
    assert "queue cancel" in ctl.fails("release", lease["id"], "--force")


@pytest.mark.docker
def test_containers_of_docker(dgx: Machine, engine: PrivateDockerd) -> None:
    ctl = Ctl(dgx)
    with Detached(engine, "--name", "train", "--gpus", "2", "--memory", "64m") as container:
        (lease,) = [each for each in ctl.leases() if each["id"] == container.id]
        assert (lease["name"], lease["engine"], lease["state"]) == ("train", "docker", "live")
        assert lease["cgroup"]["memory_limit"] == 64 << 20
        row = next(row for row in ctl.rows() if row.startswith("train "))
        assert row.startswith(f"train ({container.id[:12]}) ")
        assert " exclusive - live " in row
        assert "train" in ctl.fails("release", "train")
    assert [each for each in ctl.leases() if each["id"] == container.id] == []
