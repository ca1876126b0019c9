"""Docker Swarm for real: services whose tasks get GPUs of their own, on one node and on two."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import cannot
from tests.images import ImageUnavailable
from tests.rigs import Rig
from tests.rigs.look import LOOK, Seen
from tests.rigs.rig import DAEMON

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rigs")]

KIND, SLOT_KIND = "NVIDIA-GPU", "NVIDIA-GPU-SLOT"


@pytest.fixture
def machines() -> Iterator[Callable[[str], Rig]]:
    """Machines of the test's own, since a swarm changes a whole dockerd."""
    made: list[Rig] = []

    def make(suite: str = "bookworm") -> Rig:
        made.append(Rig(suite, "systemd"))
        try:
            made[-1].start()
        except ImageUnavailable as reason:
            cannot(str(reason))
        made[-1].image("debian")
        return made[-1]

    yield make
    for machine in made:
        machine.stop()


def until(what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def create(manager: Rig, name: str, kind: str, replicas: int) -> None:
    options = ["--detach", "--network=host", "--no-resolve-image", f"--name={name}"]
    options += [f"--replicas={replicas}", f"--generic-resource={kind}=1", "--restart-condition=any"]
    words = [*options, manager.image("debian"), "/usr/local/bin/probe", "sleep", "600"]
    manager.docker("service", "create", *words, check=True)


def running(machine: Rig, service: str) -> list[str]:
    words = [
        "ps",
        "--quiet",
        "--no-trunc",
        f"--filter=label=com.docker.swarm.service.name={service}",
    ]
    return machine.docker(*words, check=True).stdout.split()


def gpus(machine: Rig, service: str) -> list[list[int]]:
    """What each task that runs on a machine has; none has more than it may."""
    found = []
    for container in running(machine, service):
        seen = Seen(machine, machine.docker("exec", container, *LOOK).stdout)
        assert seen.has(*seen.gpus), seen
        found.append(seen.gpus)
    return found


def test_one_node(machines: Callable[[], Rig]) -> None:
    """B43, B44: install writes what the node has, and no two tasks get the same GPU."""
    machine = machines()
    before = json.loads(machine.read(DAEMON))
    told = machine.ctl("install", "--swarm", "--dry-run").stdout
    assert f"{KIND}={machine.host.gpus[0].uuid}" in told
    assert json.loads(machine.read(DAEMON)) == before
    told = machine.ctl("install", "--swarm").stdout
    assert "restart it (systemctl restart docker.service)" in told
    told = machine.ctl("install", "--swarm", "--restart").stdout
    assert "hands out the GPUs of this node already" in told
    machine.run("systemctl", "is-active", "docker")
    assert json.loads(machine.read(DAEMON))["default-runtime"] == "gpushim"

    machine.docker("swarm", "init", "--advertise-addr=127.0.0.1", check=True)
    create(machine, "train", KIND, 9)
    until("no eight tasks run", lambda: len(running(machine, "train")) == 8)
    assert sorted(gpus(machine, "train")) == [[index] for index in range(8)]
    listed = machine.docker("service", "ps", "train", "--no-trunc", "--format={{.Error}}")
    assert "insufficient resources" in listed.stdout
    pid = machine.read("/run/docker.pid")
    machine.ctl("install", "--swarm", "--restart")
    assert machine.read("/run/docker.pid") == pid, "nothing changed, so nothing is restarted"
    machine.docker("service", "rm", "train", check=True)
    until("the tasks do not end", lambda: not running(machine, "train"))

    # The same GPUs in parts, and back to how it was.
    machine.ctl("install", "--swarm-slots", "2", "--restart")
    create(machine, "serve", SLOT_KIND, 4)
    until("no four tasks run", lambda: len(running(machine, "serve")) == 4)
    leases = json.loads(machine.ctl("ps", "--json").stdout)
    assert len(gpus(machine, "serve")) == 4
    assert "shared" in json.dumps(leases)
    machine.docker("service", "rm", "serve", check=True)
    machine.docker("swarm", "leave", "--force", check=True)
    until("the tasks do not end", lambda: not machine.docker("ps", "--quiet").stdout)
    machine.docker("container", "prune", "--force", check=True)
    machine.ctl("uninstall")
    after = json.loads(machine.read(DAEMON))
    assert after == {name: value for name, value in before.items() if name != "runtimes"}


def test_two_nodes(machines: Callable[[], Rig]) -> None:
    manager, worker = machines(), machines()
    _connect(manager, worker)
    for machine in (manager, worker):
        machine.ctl("install", "--swarm", "--restart")
    manager.docker("swarm", "init", "--advertise-addr=10.9.9.1", check=True)
    token = manager.docker("swarm", "join-token", "--quiet", "worker", check=True).stdout.strip()
    joined = worker.docker("swarm", "join", f"--token={token}", "10.9.9.1:2377", timeout=60)
    assert joined.returncode == 0, joined.stderr
    create(manager, "train", KIND, 16)
    nodes = (manager, worker)
    until("no sixteen tasks run", lambda: sum(len(running(each, "train")) for each in nodes) == 16)
    for machine in nodes:
        assert sorted(gpus(machine, "train")) == [[index] for index in range(8)]


def _connect(one: Rig, other: Rig) -> None:
    """A link between the network namespaces of two machines."""
    made = ["ip", "link", "add", "name", "swarm0", "netns", str(one.pid), "type", "veth"]
    subprocess.run([*made, "peer", "name", "swarm0", "netns", str(other.pid)], check=True)
    for number, machine in ((1, one), (2, other)):
        machine.run("ip", "address", "add", f"10.9.9.{number}/24", "dev", "swarm0")
        machine.run("ip", "link", "set", "swarm0", "up")
        machine.run("hostname", f"node{number}")
