"""Whether a lease's container lives, told of real containers and of what runtimes leave behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate.lease import Lease
from gpushim.allocate.liveness import Roots, lives
from gpushim.records import start_time

from tests.conftest import cannot
from tests.harness import Bundle, Runtime

pytestmark = pytest.mark.e2e

SLEEP = ["/bin/sleep", "60"]
# On a machine with both versions of cgroups crun starts nothing; it sees the first alone here.
CRUN = (
    "if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi\n"
    'exec crun --cgroup-manager=disabled "$@"'
)


def lease_of(runtime: Runtime, bundle: Bundle, family: str, creator: int = 0) -> Lease:
    """A lease as it is when its creator has become the runtime, and that has ended."""
    creator = creator or ended()
    lease = Lease(bundle.id, str(runtime.root), (creator, start_time(creator) or 1), [])
    lease.boot, lease.family = Roots().boot, family
    lease.cgroup = bundle.config["linux"].get("cgroupsPath", "")
    return lease


def ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def init_of(runtime: Runtime, bundle: Bundle) -> int:
    pid: int = runtime.state(bundle.id)["pid"]
    return pid


def kill(pid: int) -> None:
    """Ends a process, and waits until it has ended, reaped or not."""
    os.kill(pid, signal.SIGKILL)
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(200):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} goes on")


def ends(lease: Lease) -> bool:
    """Whether it comes to be dead; what else was in its cgroup may take a moment longer."""
    for _ in range(200):
        if not lives(lease, Roots()):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def runc() -> Iterator[Runtime]:
    with Runtime("runc") as runtime:
        yield runtime


@pytest.fixture
def crun() -> Iterator[Runtime]:
    if shutil.which("crun") is None:
        cannot("crun is not installed")
    with Runtime("unshare", "-m", "sh", "-c", CRUN, "crun") as runtime:
        yield runtime


@pytest.fixture(params=["runc", "crun"])
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def runtime(family: str, request: pytest.FixtureRequest) -> Runtime:
    runtime: Runtime = request.getfixturevalue(family)
    return runtime


def test_a_container_from_create_to_delete(
    runtime: Runtime, family: str, make_bundle: Callable[..., Bundle]
) -> None:
    bundle = make_bundle("busybox", SLEEP, cgroups=family == "runc")
    lease = lease_of(runtime, bundle, family)
    assert not lives(lease, Roots())
    runtime.create(bundle).check()
    assert lives(lease, Roots()), "created"
    runtime.start(bundle.id).check()
    assert lives(lease, Roots()), "running"
    kill(init_of(runtime, bundle))
    state = runtime.root / bundle.id
    assert state.is_dir()
    assert ends(lease), "stopped, and not deleted: as podman rm -f leaves it"
    runtime.delete(bundle.id).check()
    assert not lives(lease, Roots())


def test_a_paused_container(runc: Runtime, make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle("busybox", SLEEP)
    runc.create(bundle).check()
    runc.start(bundle.id).check()
    runc.call("pause", bundle.id).check()
    assert lives(lease_of(runc, bundle, "runc"), Roots())
    runc.call("resume", bundle.id).check()


def test_the_creator_while_it_is_at_work(
    runtime: Runtime, family: str, make_bundle: Callable[..., Bundle]
) -> None:
    """There is no moment without a sign of life: asked all the time from create's start."""
    bundle = make_bundle("busybox", SLEEP, cgroups=family == "runc")
    # Held until its pid is known, as the shim's is, which becomes the runtime's by exec.
    words = [*runtime.command, f"--root={runtime.root}", "create", "--bundle", str(bundle.path)]
    runtime._made(bundle, None)
    with (runtime.directory / "out").open("wb") as out:
        process = subprocess.Popen(
            ["sh", "-c", 'read go; exec "$@"', "sh", *words, bundle.id],
            stdin=subprocess.PIPE, stdout=out, stderr=out, env=runtime.environment,
        )  # fmt: skip
    assert process.stdin is not None
    lease = lease_of(runtime, bundle, family, process.pid)
    process.stdin.write(b"\n")
    process.stdin.close()
    asked = 0
    while True:
        has_ended = process.poll() is not None
        assert lives(lease, Roots()), asked
        asked += 1
        if has_ended:
            break
    assert process.returncode == 0
    assert asked > 10
    kill(init_of(runtime, bundle))
    assert ends(lease)


@pytest.mark.parametrize("spoil", ["program", "hook"])
def test_a_create_that_fails(
    runtime: Runtime, family: str, make_bundle: Callable[..., Bundle], spoil: str
) -> None:
    bundle = make_bundle("busybox", SLEEP, cgroups=family == "runc")
    if spoil == "hook":
        bundle.config["hooks"] = {"createRuntime": [{"path": "/bin/false"}]}
    else:
        bundle.config["process"]["args"] = ["/bin/is-not-there"]
    bundle.write()
    assert runtime.create(bundle).status != 0
    assert not lives(lease_of(runtime, bundle, family), Roots())


def test_a_create_that_is_killed_half_way(
    runc: Runtime, make_bundle: Callable[..., Bundle]
) -> None:
    """A directory with a FIFO stays, for which engines call no delete (and dockerd's end, too)."""
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    bundle = make_bundle("busybox", SLEEP)
    words = [*runc.command, f"--root={runc.root}", "create", "--bundle", str(bundle.path)]
    runc._made(bundle, None)
    # runc renames its state into place, and nothing before that.
    rename = "renameat,renameat2,rename"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={rename}"]
    command += ["-e", f"inject={rename}:signal=KILL", *words, bundle.id]
    with (runc.directory / "out").open("wb") as out:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=60)
    assert (runc.root / bundle.id).is_dir()
    assert not (runc.root / bundle.id / "state.json").exists()
    for _ in range(200):  # its child ends by itself, a moment later
        if not lives(lease_of(runc, bundle, "runc"), Roots()):
            break
        time.sleep(0.01)
    assert not lives(lease_of(runc, bundle, "runc"), Roots())


def test_run_in_the_foreground_is_killed(runc: Runtime, make_bundle: Callable[..., Bundle]) -> None:
    """The container goes on without it."""
    bundle = make_bundle("busybox", SLEEP)
    words = [*runc.command, f"--root={runc.root}", "run", "--bundle", str(bundle.path), bundle.id]
    runc._made(bundle, None)
    with (runc.directory / "out").open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    lease = lease_of(runc, bundle, "runc", process.pid)
    runc.wait(bundle.id, "running")
    process.kill()
    process.wait()
    assert lives(lease, Roots())
    kill(init_of(runc, bundle))
    assert (runc.root / bundle.id / "state.json").exists()
    assert ends(lease)


def without_pid_namespace(bundle: Bundle) -> None:
    namespaces: list[dict[str, Any]] = bundle.config["linux"]["namespaces"]
    namespaces[:] = [each for each in namespaces if each["type"] != "pid"]
    bundle.write()


@pytest.mark.parametrize("without_state", [False, True])
def test_processes_that_outlive_init(
    runc: Runtime, make_bundle: Callable[..., Bundle], without_state: bool
) -> None:
    """A container in the host's PID namespace: the runtime calls it stopped, its GPU is in use."""
    bundle = make_bundle("busybox", ["/bin/sh", "-c", "sleep 60 & exec sleep 60"])
    without_pid_namespace(bundle)
    runc.create(bundle).check()
    runc.start(bundle.id).check()
    lease = lease_of(runc, bundle, "runc")
    procs = Path("/sys/fs/cgroup/pids", lease.cgroup.strip("/"), "cgroup.procs")
    if not procs.exists():
        procs = Path("/sys/fs/cgroup", lease.cgroup.strip("/"), "cgroup.procs")
    init = init_of(runc, bundle)
    for _ in range(200):
        if len(procs.read_text().split()) > 1:
            break
        time.sleep(0.01)
    kill(init)
    assert runc.state(bundle.id)["status"] == "stopped"
    if without_state:
        # The cgroup of the spec tells as well as that of the state.
        (runc.root / bundle.id / "state.json").rename(runc.directory / "state.json")
    assert lives(lease, Roots())
    if without_state:
        (runc.directory / "state.json").rename(runc.root / bundle.id / "state.json")
    runc.delete(bundle.id, "--force").check()
    assert not lives(lease, Roots())
