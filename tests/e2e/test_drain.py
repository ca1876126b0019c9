"""gpushimctl drain and undrain: no new containers for a GPU, and those that have it stopped."""

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
from gpushim.allocate.lease import Lease
from gpushim.allocate.leasefiles import write
from gpushim.allocate.liveness import Roots
from gpushim.records import start_time

from tests.fakehost import preset
from tests.harness import Bundle, PrivateDockerd, Runtime
from tests.harness.bundle import PROBE
from tests.harness.dockered import Detached
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
A100 = "NVIDIA A100 80GB PCIe"
# Ends by itself when it is asked to, and one that takes no notice.
POLITE = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
DEAF = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]


class Place:
    """A machine with four GPUs, and containers on it."""

    def __init__(self, machine: Machine, runtime: Runtime, make_bundle: MakeBundle) -> None:
        self.machine, self.runtime, self._make = machine, runtime, make_bundle

    def start(self, *env: str, args: list[str] = POLITE, **options: Any) -> Bundle:
        bundle = self._make("busybox", args, env=list(env), **options)
        self.runtime.create(bundle).check()
        self.runtime.start(bundle.id).check()
        return bundle

    def refused(self, *env: str) -> str:
        result = self.runtime.create(self._make("busybox", [PROBE], env=list(env)))
        assert result.status == 1, result
        return result.stderr

    def ctl(self, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
        return ctl(self.machine, *words, user=user)

    def ok(self, *words: str) -> str:
        done = self.ctl(*words)
        assert done.returncode == 0, done
        return done.stdout

    def gpus(self, bundle: Bundle) -> str:
        for lease in json.loads(self.ok("ps", "--json"))["leases"]:
            if lease["id"] == bundle.id:
                return ",".join(device["name"] for device in lease["devices"])
        return ""

    def is_running(self, bundle: Bundle) -> bool:
        return self.runtime.state(bundle.id).get("status") == "running"


def ctl(machine: Machine, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", machine.places.root]
    who: dict[str, Any] = {}
    if user is not None:
        who = {"user": user, "group": user, "extra_groups": []}
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=90, **who)


@pytest.fixture
def place(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> Place:
    machine = make_machine(preset("a100_pcie4", modify_device_files=0))
    return Place(machine, runtime_of(machine), make_bundle)


def test_no_new_containers(place: Place) -> None:
    """By a count, by name and by `all`; what runs goes on."""
    before = place.start("GPUSHIM_GPUS=1")
    said = place.ok("drain", "0", "2")
    assert said.splitlines() == [
        f"GPUs 0, 2 ({A100}) are given to no more containers.",
        f"{before.id[:12]} has GPU 0 ({A100}) and goes on.",
    ]
    assert place.is_running(before)
    assert place.gpus(place.start("GPUSHIM_GPUS=1")) == "1"
    assert place.gpus(place.start("NVIDIA_VISIBLE_DEVICES=all")) == "3"
    assert "is drained" in place.refused("NVIDIA_VISIBLE_DEVICES=2")
    assert "drained" in place.refused("GPUSHIM_GPUS=3")
    shown = place.ok("ps")
    assert f"GPU 2 ({A100}) is drained (by root" in shown
    place.ok("undrain", "0", "2")
    assert place.gpus(place.start("NVIDIA_VISIBLE_DEVICES=2")) == "2"


def test_it_outlives_a_boot(place: Place) -> None:
    """/run is empty then, and /var/lib is not."""
    place.ok("drain", "--all")
    run = Path(place.machine.places.run)
    run.rename(run.with_name("before"))
    assert "drained" in place.refused("GPUSHIM_GPUS=1")
    said = place.ok("undrain", "--all")
    assert said == f"GPUs 0 to 3 ({A100}) are given to containers again.\n"
    assert place.gpus(place.start("GPUSHIM_GPUS=1")) == "0"
    assert place.ok("undrain", "--all") == "None of these was drained or in quarantine.\n"


def test_by_uuid_and_as_data(place: Place) -> None:
    gpu = place.machine.host.gpus[1]
    mine = place.start("NVIDIA_VISIBLE_DEVICES=1")
    found = json.loads(place.ok("drain", gpu.uuid[:12], "--json"))
    assert found["drained"] == [{"uuid": gpu.uuid, "name": "1"}]
    (container,) = found["containers"]
    assert (container["id"], container["gpus"]) == (mine.id, [gpu.uuid])
    assert json.loads(place.ok("ps", "--json"))["kept_out"][0]["uuid"] == gpu.uuid
    # A GPU that was taken out of the machine can be forgotten all the same.
    place.machine.host.unplug(1)
    place.ok("refresh")
    assert gpu.uuid in place.ok("undrain", gpu.uuid, "--json")


def test_mig_devices(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """One alone, and all of a GPU."""
    machine = make_machine(preset("mig_host", modify_device_files=0))
    place = Place(machine, runtime_of(machine), make_bundle)
    mine = place.start("NVIDIA_VISIBLE_DEVICES=0:2")
    assert "MIG device 0:2 (1g.10gb of " in place.ok("drain", "0:2")
    assert "is drained" in place.refused("NVIDIA_VISIBLE_DEVICES=0:2")
    place.start("NVIDIA_VISIBLE_DEVICES=0:3")
    said = place.ok("drain", "0", "--stop", "--grace", "5s")
    assert f"{mine.id[:12]} on MIG device 0:2" in said
    assert said.count("ended by itself") == 2
    assert "is drained" in place.refused("NVIDIA_VISIBLE_DEVICES=0:1")


def test_stop(place: Place) -> None:
    """Asked to end, given time, and killed; all at once, whichever way they got the GPU."""
    polite = place.start("GPUSHIM_GPUS=1")
    deaf = place.start("NVIDIA_VISIBLE_DEVICES=1", args=DEAF)
    sees_all = place.start("NVIDIA_VISIBLE_DEVICES=all")
    other = place.start("NVIDIA_VISIBLE_DEVICES=3")
    began = time.monotonic()
    done = place.ctl("drain", "0", "1", "--stop", "--grace", "3s")
    assert time.monotonic() - began < 12
    assert done.returncode == 0, done
    rows = dict(line.split(" on ") for line in done.stdout.splitlines()[1:])
    assert rows == {
        polite.id[:12]: f"GPU 0 ({A100}) ended by itself.",
        deaf.id[:12]: f"GPU 1 ({A100}) was killed.",
        sees_all.id[:12]: f"GPUs 1 to 3 ({A100}) ended by itself.",
    }
    assert [place.is_running(each) for each in (polite, deaf, sees_all, other)] == [
        False, False, False, True,
    ]  # fmt: skip
    lines = [line for line in place.machine.log_lines() if line["msg"].startswith("stopped")]
    assert {each["outcome"] for each in lines[-1]["containers"]} == {"ended", "killed"}


def test_stop_without_anybody(place: Place) -> None:
    assert place.ok("drain", "--all", "--stop") == (
        f"GPUs 0 to 3 ({A100}) are given to no more containers.\n"
    )


def test_a_container_in_the_hosts_pid_namespace(place: Place) -> None:
    """Its processes outlive its init, and are killed, too."""
    bundle = place._make(
        "busybox", ["/bin/sh", "-c", "trap '' TERM; sleep 100 & wait"], env=["GPUSHIM_GPUS=1"]
    )
    namespaces = bundle.config["linux"]["namespaces"]
    bundle.config["linux"]["namespaces"] = [each for each in namespaces if each["type"] != "pid"]
    bundle.config["mounts"] = [
        {"destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"]}
        if mount["destination"] == "/proc" else mount
        for mount in bundle.config["mounts"]
    ]  # fmt: skip
    bundle.write()
    place.runtime.create(bundle).check()
    place.runtime.start(bundle.id).check()
    assert "was killed" in place.ok("drain", "0", "--stop", "--grace", "300ms")
    assert place.gpus(bundle) == ""


def test_a_runtime_that_can_not_be_used(place: Place, tmp_path: Path) -> None:
    """Whoever lives nevertheless is told of, and the GPU stays drained."""
    process = subprocess.Popen(["sleep", "1000"])
    try:
        lease = Lease("stubborn", str(tmp_path), (process.pid, start_time(process.pid)), [])
        lease.boot, lease.family = Roots().boot, "runc"
        lease.runtime = str(tmp_path / "no-runtime")
        place.ok("refresh")
        booked(place, lease)
        done = place.ctl("drain", "0", "--stop", "--grace", "100ms")
        assert done.returncode == 1
        assert "stubborn on GPU 0" in done.stderr
        assert "could not be stopped" in done.stderr
    finally:
        process.kill()
        process.wait()
    assert "drained" in place.refused("NVIDIA_VISIBLE_DEVICES=0")


def booked(place: Place, lease: Lease) -> None:
    from gpushim.allocate.lease import EXCLUSIVE, Booking

    lease.bookings = [Booking(place.machine.host.gpus[0].uuid, EXCLUSIVE)]
    write(place.machine.places, lease)


def test_a_users_lease_names_no_program_for_root(place: Place, tmp_path: Path) -> None:
    """What it calls its runtime is run as that user."""
    program = tmp_path / "runtime"
    program.write_text(f"#!/bin/sh\nid -u >> {tmp_path}/ran; id -G >> {tmp_path}/ran\n")
    program.chmod(0o755)
    (tmp_path / "ran").touch()
    (tmp_path / "ran").chmod(0o666)
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    who = pwd_of_nobody()
    process = subprocess.Popen(["sleep", "1000"], user=who, group=who, extra_groups=[])
    try:
        lease = Lease("theirs", str(tmp_path), (process.pid, start_time(process.pid)), [])
        lease.boot, lease.family, lease.runtime = Roots().boot, "runc", str(program)
        place.ok("refresh")
        booked(place, lease)
        os.chown(lease.path, who, who)
        assert place.ctl("drain", "0", "--stop", "--grace", "100ms").returncode == 1
    finally:
        process.kill()
        process.wait()
    assert set((tmp_path / "ran").read_text().split()) == {str(who)}


def pwd_of_nobody() -> int:
    import pwd

    return pwd.getpwnam("nobody").pw_uid


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["drain"], "Name the GPUs to drain, or all of them with --all."),
        (["drain", "0", "--all"], "Name the GPUs to drain"),
        (["drain", "9"], "'9' is no GPU of this machine"),
        (["drain", "GPU-"], "'GPU-' is no GPU of this machine"),
        (["drain", "0", "--grace", "5s"], "--grace is for --stop"),
        (["undrain"], "Name the GPUs to undrain"),
        (["undrain", "9"], "'9' is no GPU of this machine"),
    ],
)
def test_wrong_command_lines(place: Place, words: list[str], text: str) -> None:
    done = place.ctl(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert not Path(place.machine.places.drained).exists()


def test_a_time_that_is_none(place: Place) -> None:
    done = place.ctl("drain", "0", "--stop", "--grace", "soon")
    assert done.returncode == 2
    assert "'soon' is not a duration" in done.stderr


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_only_root(place: Place, verb: str) -> None:
    for path in (Path(place.machine.places.root), *Path(place.machine.places.root).parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    done = place.ctl(verb, "0", user=1000)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Only root can {verb} GPUs." in done.stderr


def test_draining_while_containers_start(place: Place) -> None:
    """Whoever got a GPU before is told of; whoever comes later gets none of them."""
    place.ok("refresh")
    bundles = [place._make("busybox", POLITE, env=["GPUSHIM_GPUS=1"]) for _ in range(4)]
    command = [*place.runtime.command, f"--root={place.runtime.root}", "run", "--detach"]
    with (place.runtime.directory / "many").open("wb") as out:
        started = [
            subprocess.Popen(
                [*command, "--bundle", str(bundle.path), place.runtime._made(bundle, None)],
                env=place.runtime.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )
            for bundle in bundles
        ]  # fmt: skip
        found = json.loads(place.ok("drain", "--all", "--json"))
        for process in started:
            process.wait()
    there = {each["id"] for each in found["containers"]}
    assert {bundle.id for bundle in bundles if place.is_running(bundle)} <= there


@pytest.mark.docker
def test_containers_of_docker(dgx: Machine, engine: PrivateDockerd) -> None:
    """Docker stops them by their own signal, and its restart policy keeps still."""
    shell = ["sh", "-c", "trap 'exit 0' USR1; while :; do sleep 0.05; done"]
    options = ["--restart=always", "--stop-signal=USR1", "--gpus=1"]
    try:
        with Detached(engine, *options, command=shell) as container:
            said = ctl(dgx, "drain", "--all", "--stop", "--grace", "10s")
            assert said.returncode == 0, said
            row = next(line for line in said.stdout.splitlines() if container.id[:12] in line)
            assert row.endswith(" ended by itself.")
            time.sleep(1)
            state = json.loads(engine.docker("inspect", container.id).stdout)[0]
            assert (state["State"]["Status"], state["RestartCount"]) == ("exited", 0)
            refused = engine.docker("start", container.id)
            assert "drained" in refused.stderr
            assert ctl(dgx, "undrain", "--all").returncode == 0
            engine.docker("start", container.id, check=True)
    finally:
        ctl(dgx, "undrain", "--all")
