"""What has to hold in each cell: a function for each row of the table."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable

from tests.harness.bundle import PROBE
from tests.matrix.cell import RUNTIME, Cell
from tests.rigs.ran import Ran

Check = Callable[[Cell], None]
CHECKS: dict[str, Check] = {}


class NotHere(Exception):
    """This machine can't show it; the cell of the table stays empty, and the reason is told."""


def check(title: str) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        CHECKS[title] = function
        return function

    return add


def until(what: str, true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def two(ran: Ran) -> list[int]:
    """The GPUs that a container has, which are two, and no others can be opened."""
    seen = ran.look()
    assert len(seen.gpus) == 2 and seen.has(*seen.gpus), seen
    return seen.gpus


@check("devices, and others refused; libraries")
def devices(cell: Cell) -> None:
    with cell.started() as ran:
        seen = ran.look()
        assert len(seen.gpus) == 2 and seen.has(*seen.gpus), seen
        assert seen.libcuda.startswith("/usr/local/nvidia/"), seen


@check("two containers get different GPUs")
def different(cell: Cell) -> None:
    with cell.started() as one, cell.started() as other:
        assert not set(two(one)) & set(two(other))


@check("too many: refused with a sentence")
def too_many(cell: Cell) -> None:
    done = cell.run("--rm", count=9)
    assert done.returncode in (125, 126, 127), done
    assert "9 GPUs were asked for" in done.stderr and "8 GPUs" in done.stderr, done.stderr


@check("no GPU asked for: none given")
def no_gpu(cell: Cell) -> None:
    with cell.started(count=0) as ran:
        seen = ran.look()
        assert (seen.nodes, seen.allowed, seen.gpus) == ({}, [], []), seen
        assert not ran.explained()


@check("docker exec")
def execute(cell: Cell) -> None:
    with cell.started() as ran:
        gpus = two(ran)
        environment = ran.look().environment
        if cell.way.name in ("runtime", "default", "gpus"):
            uuids = environment["NVIDIA_VISIBLE_DEVICES"].split(",")
            assert uuids == [cell.rig.host.gpus[index].uuid for index in gpus]
        done = ran.exec("sh", "-c", "exit 9")
        assert done.returncode == 9


@check("restart")
def restart(cell: Cell) -> None:
    with cell.started() as ran:
        before = two(ran)
        cell.rig.docker("restart", "--time=0", ran.id, check=True)
        assert two(ran) == before


@check("docker update")
def update(cell: Cell) -> None:
    with cell.started() as ran:
        before = two(ran)
        cell.rig.docker("update", "--pids-limit=99", "--cpu-shares=512", ran.id)
        cell.rig.docker("update", "--restart=no", ran.id, check=True)
        assert two(ran) == before


@check("pause, unpause")
def pause(cell: Cell) -> None:
    with cell.started() as ran:
        before = two(ran)
        cell.rig.docker("pause", ran.id, check=True)
        cell.rig.docker("unpause", ran.id, check=True)
        assert two(ran) == before


@check("docker run -it")
def terminal(cell: Cell) -> None:
    image = cell.rig.image("debian")
    words = ["docker", "run", "-it", "--rm", "--network=none", *cell.way.options(1), image]
    command = shlex.join([*words, "sh", "-c", f"test -t 0 && {PROBE} open /dev/nvidiactl"])
    done = cell.rig.run("script", "--quiet", "--return", "--command", command, "/dev/null")
    assert "/dev/nvidiactl ENXIO" in done.stdout, done


@check("--init")
def init(cell: Cell) -> None:
    with cell.started("--init") as ran:
        two(ran)


@check("--user")
def user(cell: Cell) -> None:
    with cell.started("--user=1000:1000") as ran:
        seen = ran.look()
        assert len(seen.gpus) == 2 and seen.control and seen.libcuda, seen


@check("--read-only")
def read_only(cell: Cell) -> None:
    with cell.started("--read-only") as ran:
        two(ran)


@check("--privileged: every GPU, as the log says")
def privileged(cell: Cell) -> None:
    if cell.place.cgroups != "guest":
        raise NotHere("root may not raise its limits here, which --privileged needs")
    with cell.started("--privileged") as ran:
        assert len(ran.look().allowed) == 8
        assert "privileged" in json.dumps(ran.logged())


@check("limits: those of the command line")
def limits(cell: Cell) -> None:
    files = {
        "guest": "/sys/fs/cgroup/memory.max",
        "host": "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    }
    if cell.place.cgroups not in files:
        raise NotHere("this kernel's controllers are with cgroup v1")
    with cell.started("--memory=64m", "--memory-swap=64m") as ran:
        assert ran.exec("cat", files[cell.place.cgroups]).stdout.strip() == str(64 << 20)
        cell.rig.docker("update", "--memory=96m", "--memory-swap=96m", ran.id, check=True)
        assert ran.exec("cat", files[cell.place.cgroups]).stdout.strip() == str(96 << 20)
        two(ran)


@check("health check")
def health(cell: Cell) -> None:
    name = "{{.State.Health.Status}}"
    script = f"{PROBE} open /dev/nvidiactl | grep -q ENXIO"
    options = [f"--health-cmd={script}", "--health-interval=1s", "--health-timeout=20s"]
    with cell.started(*options) as ran:
        until(
            "the container is not healthy",
            lambda: (
                cell.rig.docker("inspect", f"--format={name}", ran.id).stdout.strip() == "healthy"
            ),
        )


@check("logs, exit status")
def logs(cell: Cell) -> None:
    done = cell.run("--detach", command=("sh", "-c", "echo out; echo err >&2; exit 42"))
    with Ran(cell.rig, done.stdout.strip()) as ran:
        assert cell.rig.docker("wait", ran.id).stdout.strip() == "42"
        told = cell.rig.docker("logs", ran.id)
        assert (told.stdout, told.stderr) == ("out\n", "err\n")
    assert cell.run("--rm", command=("sh", "-c", "exit 42")).returncode == 42
    assert cell.run("--rm", command=("/nothing",)).returncode == 127


@check("docker stop: the signal arrives")
def stop(cell: Cell) -> None:
    script = 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done'
    done = cell.run("--detach", command=("sh", "-c", script))
    with Ran(cell.rig, done.stdout.strip()) as ran:
        until("it does not run", lambda: "ready" in cell.rig.docker("logs", ran.id).stdout)
        cell.rig.docker("stop", "--time=60", ran.id, check=True)
        state = cell.rig.docker("inspect", "--format={{.State.ExitCode}}", ran.id)
        assert state.stdout.strip() == "7"


@check("killed: its GPUs are free")
def killed(cell: Cell) -> None:
    with cell.started(count=8) as ran:
        pid = cell.rig.docker("inspect", "--format={{.State.Pid}}", ran.id, check=True).stdout
        cell.rig.run("kill", "-KILL", pid.strip())
        with cell.started(count=8) as next_one:
            assert len(next_one.look().gpus) == 8


@check("systemctl daemon-reload")
def daemon_reload(cell: Cell) -> None:
    if not cell.rig.systemd:
        raise NotHere("no systemd")
    with cell.started() as ran:
        before = two(ran)
        cell.rig.run("systemctl", "daemon-reload")
        assert two(ran) == before
        scope = f"docker-{ran.id}.scope"
        cell.rig.run("systemctl", "set-property", "--runtime", scope, "TasksMax=4000")
        assert two(ran) == before


@check("dockerd restarted, live-restore")
def live_restore(cell: Cell) -> None:
    cell.configure(**{"live-restore": True})
    try:
        with cell.started() as ran:
            before = two(ran)
            cell.rig.restart_docker()
            state = cell.rig.docker("inspect", "--format={{.State.Running}}", ran.id, check=True)
            assert state.stdout.strip() == "true"
            assert two(ran) == before
            with cell.started() as other:
                assert not set(two(other)) & set(before)
    finally:
        cell.configure(**{"live-restore": False})


@check("dockerd restarted")
def daemon_restart(cell: Cell) -> None:
    with cell.started("--restart=always", count=8) as ran:
        cell.rig.restart_docker()
        state = "{{.State.Running}}"
        until(
            "it was not started again",
            lambda: cell.rig.docker("inspect", f"--format={state}", ran.id).stdout == "true\n",
        )
        assert len(ran.look().gpus) == 8


@check("user namespace (userns-remap)")
def user_namespace(cell: Cell) -> None:
    if cell.way.name != RUNTIME:
        raise NotHere("looked at with --runtime alone: it is a setting of dockerd's")
    cell.configure(**{"userns-remap": "default"})
    cell.rig.restart_docker()
    cell.rig.forget_images()
    try:
        with cell.started() as ran:
            seen = ran.look()
            assert len(seen.gpus) == 2 and seen.control and seen.libcuda, seen
    finally:
        settings = json.loads(cell.rig.read("/etc/docker/daemon.json"))
        del settings["userns-remap"]
        cell.rig.write("/etc/docker/daemon.json", json.dumps(settings))
        cell.rig.restart_docker()
        cell.rig.forget_images()
