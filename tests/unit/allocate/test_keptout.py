"""What keeps a device from being given: the configuration, an administrator, or a failure."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate import keptout
from gpushim.allocate.filter import KEPT_OUT
from gpushim.allocate.keptout import DRAINED, enter, kept_out, let_out, quarantine
from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, Booking, Lease
from gpushim.allocate.liveness import Roots
from gpushim.errors import GpushimError
from gpushim.host.model import Gpu
from gpushim.places import Places
from gpushim.records import start_time

from tests.unit.allocate.machines import Machine, machine

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps such state")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


@pytest.fixture(scope="module")
def dgx() -> Machine:
    return machine("dgx_a100")


@pytest.fixture
def ill(dgx: Machine) -> Iterator[Gpu]:
    """The first GPU, while NVML calls it lost."""
    gpu = dgx.gpus[0]
    gpu.health = "NVML says: GPU is lost"
    yield gpu
    gpu.health = "ok"


Container = Callable[..., Lease]


@pytest.fixture
def container() -> Iterator[Container]:
    """Leases of processes that live until `terminate` of the one in `process`."""
    started: list[subprocess.Popen[bytes]] = []

    def make(uuid: str, name: str = "web", mode: str = EXCLUSIVE) -> Lease:
        process = subprocess.Popen(["sleep", "100"])
        started.append(process)
        creator = (process.pid, start_time(process.pid))
        lease = Lease(name * 8, "/nowhere", creator, [Booking(uuid, mode)])
        lease.name, lease.boot, lease.family = name, Roots().boot, "runc"
        return lease

    yield make
    for process in started:
        process.kill()
        process.wait()


def end(lease: Lease) -> None:
    os.kill(lease.creator[0], 9)
    os.waitpid(lease.creator[0], 0)


def test_nothing_keeps_anything(places: Places, dgx: Machine) -> None:
    assert kept_out(places, [], dgx.gpus, []) == {}
    assert not Path(places.run).exists()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0", "7"], ["0", "7"]),
        (["uuid of 3"], ["3"]),
        (["9", "GPU-unknown", ""], []),
    ],
)
def test_the_configuration(
    places: Places, dgx: Machine, names: list[str], expected: list[str]
) -> None:
    names = [dgx.uuid(name[-1]) if name.startswith("uuid") else name for name in names]
    found = kept_out(places, names, dgx.gpus, [])
    assert found == {dgx.uuid(name): KEPT_OUT for name in expected}


def test_mig_devices_by_name(places: Places) -> None:
    host = machine("mig_host")
    found = kept_out(places, ["1", "0:1"], host.gpus, [])
    assert found == {host.uuid("1"): KEPT_OUT, host.uuid("0:1"): KEPT_OUT}


@as_root
def test_drained(places: Places, dgx: Machine) -> None:
    about = {"since": 5, "by": "root"}
    keptout.set_drained(places, {dgx.uuid("2"): about})
    assert kept_out(places, [], dgx.gpus, []) == {dgx.uuid("2"): DRAINED}
    assert keptout.drained(places) == {dgx.uuid("2"): about}
    keptout.set_drained(places, {})
    assert kept_out(places, [], dgx.gpus, []) == {}


@as_root
def test_the_configuration_outweighs_what_ends(places: Places, dgx: Machine) -> None:
    """Only for that reason nobody need wait: no waiting ends it."""
    keptout.set_drained(places, {dgx.uuid("2"): {}})
    assert kept_out(places, ["2"], dgx.gpus, []) == {dgx.uuid("2"): KEPT_OUT}


@as_root
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"format": 1}',
        '{"format": 1, "devices": []}',
        '{"format": 1, "devices": {"a": 1}}',
    ],
)
def test_damaged_state_keeps_nothing(places: Places, dgx: Machine, content: str) -> None:
    Path(places.lib).mkdir(parents=True)
    Path(places.drained).write_text(content)
    Path(places.quarantine).mkdir(parents=True)
    Path(places.quarantine, f"{dgx.uuid('1')}.json").write_text(content)
    assert kept_out(places, [], dgx.gpus, []) == {}


@as_root
@pytest.mark.parametrize("which", ["drained", "quarantine"])
def test_state_of_a_newer_version(places: Places, dgx: Machine, which: str) -> None:
    """What it keeps out is not known, so nothing is given."""
    path = Path(places.drained if which == "drained" else f"{places.quarantine}/x.json")
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 2}')
    with pytest.raises(GpushimError, match="newer gpushim"):
        kept_out(places, [], dgx.gpus, [])


@as_root
@pytest.mark.parametrize("how", ["other owner", "all may write"])
def test_state_of_others_is_not_believed(places: Places, dgx: Machine, how: str) -> None:
    keptout.set_drained(places, {dgx.uuid("2"): {}})
    if how == "other owner":
        os.chown(places.drained, 1000, 1000)
    else:
        os.chmod(places.drained, 0o666)
    assert kept_out(places, [], dgx.gpus, []) == {}


@as_root
@pytest.mark.parametrize("mode", [EXCLUSIVE, OPEN, ALL])
def test_a_gpu_that_fails_under_a_container(
    places: Places, dgx: Machine, ill: Gpu, container: Container, mode: str
) -> None:
    """It is not given as long as the container lives, even if it is well again and unbooked."""
    lease = container(ill.uuid, "web", mode)
    kept_out(places, [], dgx.gpus, [lease])
    ill.health = "ok"
    words = kept_out(places, [], dgx.gpus, [])[ill.uuid]
    assert words == "in quarantine (NVML says: GPU is lost), until web has ended"
    end(lease)
    assert kept_out(places, [], dgx.gpus, []) == {}
    assert os.listdir(places.quarantine) == []


@as_root
def test_what_nvml_says_just_now(places: Places, dgx: Machine, container: Container) -> None:
    lease, uuid = container(dgx.uuid("3")), dgx.uuid("3")
    found = kept_out(places, [], dgx.gpus, [lease], {uuid: "lost", dgx.uuid("4"): "lost"})
    assert found[dgx.uuid("4")] == "lost"
    assert found[uuid] == "in quarantine (lost), until web has ended"
    assert list(quarantine(places)) == [uuid]


@as_root
def test_an_ill_gpu_without_a_container(places: Places, dgx: Machine, ill: Gpu) -> None:
    """Its health alone decides, and it is used again as soon as it is well."""
    kept_out(places, [], dgx.gpus, [])
    assert not Path(places.quarantine).exists()


@as_root
def test_containers_that_were_gone_before(
    places: Places, dgx: Machine, ill: Gpu, container: Container
) -> None:
    lease = container(ill.uuid)
    end(lease)
    kept_out(places, [], dgx.gpus, [lease])
    assert not Path(places.quarantine).exists()


@as_root
def test_several_containers_and_one_that_comes_later(
    places: Places, ill: Gpu, dgx: Machine, container: Container
) -> None:
    first, second = container(ill.uuid, "one", ALL), container(ill.uuid, "two", ALL)
    other = container(dgx.uuid("5"), "three")
    kept_out(places, [], dgx.gpus, [first, other])
    kept_out(places, [], dgx.gpus, [first, second, other])
    data = quarantine(places)[ill.uuid]
    assert [each["name"] for each in data["holders"]] == ["one", "two"]
    assert keptout.words_of(data, keptout.holders(data)).endswith("until one and two have ended")
    end(first)
    assert ill.uuid in kept_out(places, [], dgx.gpus, [second])
    end(second)
    ill.health = "ok"
    assert kept_out(places, [], dgx.gpus, [second]) == {}


@as_root
def test_let_out_by_hand(places: Places, dgx: Machine, container: Container) -> None:
    lease, uuid = container(dgx.uuid("3")), dgx.uuid("3")
    enter(places, uuid, "lost", [lease])
    let_out(places, uuid)
    let_out(places, uuid)
    assert kept_out(places, [], dgx.gpus, [lease]) == {}


@as_root
@pytest.mark.parametrize("holders", [None, [], [{}], [None], {"a": 1}])
def test_holders_that_can_not_be_read(places: Places, dgx: Machine, holders: Any) -> None:
    """Whoever it was, nobody can tell that they are gone; nor can anything be added."""
    uuid = dgx.uuid("3")
    Path(places.quarantine).mkdir(parents=True)
    data = {"format": 1, "uuid": uuid, "why": "lost", "since": 1, "holders": holders}
    Path(places.quarantine, f"{uuid}.json").write_text(json.dumps(data))
    found = kept_out(places, [], dgx.gpus, [], {uuid: "lost"})
    assert found[uuid] == ("lost" if holders == [] else "in quarantine (lost)")


@as_root
def test_a_full_disk_is_nobodys_failure(
    places: Places, dgx: Machine, ill: Gpu, container: Container
) -> None:
    Path(places.run).mkdir(parents=True)
    Path(places.quarantine).write_text("in the way")
    assert kept_out(places, [], dgx.gpus, [container(ill.uuid)]) == {}
    with pytest.raises(GpushimError, match="can't be written"):
        enter(places, ill.uuid, "lost", [container(ill.uuid)])
