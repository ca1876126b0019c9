"""What containers book on real runc: each its own GPUs, and all given back whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.allocate.book import every
from gpushim.allocate.leaselock import acquire

from tests.conftest import cannot
from tests.e2e.test_killed import Killing
from tests.harness.asking import VISIBLE, ctl
from tests.harness.leased import Here
from tests.harness.seen import probe

pytestmark = pytest.mark.e2e

ONE, EIGHT = "GPUSHIM_GPUS=1", "GPUSHIM_GPUS=8"


def test_each_gets_its_own_until_none_is_left(here: Here) -> None:
    """The ninth of eight hears what each GPU is doing and who has it."""
    bundles = [here.created(ONE) for _ in range(8)]
    assert sorted(index for bundle in bundles for index in here.gpus_of(bundle)) == list(range(8))
    assert {mode for bundle in bundles for mode in here.modes_of(bundle)} == {"exclusive"}
    text = here.refused(ONE)
    assert f"1 GPU was asked for by environment {ONE}, and of the 8 GPUs here" in text
    assert "none is free: " in text
    for bundle in bundles:
        (index,) = here.gpus_of(bundle)
        assert f"{index} is held by {bundle.id[:12]} (exclusive, " in text
    assert "'gpushimctl run' waits until it is your turn" in text
    shown = ctl(here.machine, "ps").stdout
    assert all(bundle.id[:12] in shown for bundle in bundles)
    # One that ends frees its own, and no other.
    freed = here.gpus_of(bundles[5])
    here.delete(bundles[5])
    assert here.gpus_of(here.created(ONE)) == freed


def test_a_container_has_the_gpu_that_it_booked(here: Here) -> None:
    first, second = here.created(ONE), here.run(ONE)
    assert len(second.gpus) == 1
    assert second.gpus != here.gpus_of(first)
    assert second.visible == here.machine.uuids(*second.gpus)


def test_the_same_id_again_gets_its_gpu_again(here: Here) -> None:
    bundles = [here.created(ONE) for _ in range(4)]
    was = here.gpus_of(bundles[2])
    for _ in range(3):
        for bundle in bundles[1:3]:
            here.delete(bundle)
        here.runtime.create(bundles[2]).check()
        assert here.gpus_of(bundles[2]) == was
        here.runtime.create(bundles[1]).check()
    assert len(here.leases()) == 4


def test_init_is_killed(here: Here) -> None:
    """A container that has ended has its GPUs no more, though it was not deleted."""
    bundle = here.running(EIGHT)
    os.kill(here.runtime.state(bundle.id)["pid"], signal.SIGKILL)
    here.runtime.wait(bundle.id)
    assert here.leases() == []
    here.delete(here.created(EIGHT))


def test_the_runtime_is_killed_after_the_exec(here: Here, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waits = {"path": "/bin/sh", "args": ["sh", "-c", f"read x < {fifo}"]}
    bundle = here.bundle(EIGHT, args=probe(["sleep", "300"]), hooks={"createRuntime": [waits]})
    held: list[int] = []  # closed, it would end the hook
    process = here.launch(bundle, tmp_path / "out")
    until(lambda: _is_read(fifo, held))
    assert Path(f"/proc/{process.pid}/exe").resolve().name == "runc"
    assert [lease.id for lease in here.leases()] == [bundle.id]
    assert f"0 to 7 are held by {bundle.id[:12]} (exclusive, " in here.refused(ONE)
    process.kill()
    process.wait()
    os.close(held[0])
    here.runtime.delete(bundle.id, "--force")
    # What runc had started in the container's cgroup ends by itself, a moment later.
    until(lambda: here.leases() == [])
    here.holds_nothing()


def test_the_shim_is_killed_while_it_waits_for_the_lock(here: Here, tmp_path: Path) -> None:
    here.delete(here.created(ONE))
    lock = acquire(here.machine.places)
    try:
        process = here.launch(here.bundle(EIGHT), tmp_path / "out")
        until(lambda: here.machine.places.lease_lock in _open_files(process.pid))
        process.kill()
        process.wait()
    finally:
        os.close(lock)
    here.holds_nothing()


def test_killed_at_each_step(here: Here) -> None:
    """Whatever the shim had done of a create for all GPUs, another container gets all of them."""
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    bundle = here.bundle(EIGHT, image="debian", args=probe(["sleep", "300"]))
    other = here.bundle(EIGHT, args=probe(["sleep", "300"]))
    killing = Killing(here.machine, here.runtime, bundle)
    steps = killing.steps()
    assert len(steps) > 15
    for step in steps:
        killing.reset()
        killing.kill_at(*step)
        result = here.runtime.create(other)
        assert result.status == 0, (step, result)
        here.delete(other)
    here.holds_nothing()


def test_a_create_that_fails_gives_back(here: Here, tmp_path: Path) -> None:
    # The low-level runtime refuses, after the shim has become it.
    for change in ({"process": {"args": ["/nowhere"]}}, {"root": {"path": "nowhere"}}):
        bundle = here.bundle(EIGHT)
        for section, values in change.items():
            bundle.config[section].update(values)
        bundle.write()
        assert here.runtime.create(bundle).status != 0
        here.holds_nothing()
    # A hook fails.
    failing = {"createRuntime": [{"path": "/bin/false"}]}
    assert here.runtime.create(here.bundle(EIGHT, hooks=failing)).status != 0
    here.holds_nothing()
    # The shim itself can't write the spec.
    bundle = here.bundle(EIGHT)
    subprocess.run(["mount", "--bind", bundle.path, bundle.path], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", bundle.path], check=True)
    try:
        result = here.runtime.create(bundle)
    finally:
        subprocess.run(["umount", "-l", bundle.path], check=True)
    assert result.status == 1 and "gpushim: " in result.stderr
    assert every(here.machine.places) == [] or here.leases() == []
    here.holds_nothing()
    # A demand of the image is not met, which is found out when the GPUs are booked.
    here.refused(EIGHT, "NVIDIA_REQUIRE_CUDA=cuda>=99")
    assert here.leases() == []
    here.holds_nothing()


def test_all_is_in_nobodys_way_and_names_are_open(here: Here) -> None:
    everything = [here.created(f"{VISIBLE}=all") for _ in range(2)]
    assert {len(here.gpus_of(bundle)) for bundle in everything} == {8}
    assert {mode for bundle in everything for mode in here.modes_of(bundle)} == {"all"}
    named = [here.created(f"{VISIBLE}=0") for _ in range(2)]
    assert [here.modes_of(bundle) for bundle in named] == [["open"], ["open"]]
    # A GPU that somebody has by name is no free one.
    alone = here.created("GPUSHIM_GPUS=7")
    assert here.gpus_of(alone) == list(range(1, 8))
    text = here.refused(ONE)
    assert "0 is used by " in text and named[0].id[:12] in text and "by name" in text
    # Who asks by name for what another has for himself is told by whom it is held.
    text = here.refused(f"{VISIBLE}=0,3")
    assert f"environment {VISIBLE}=0,3" in text
    assert f"3 is held by {alone.id[:12]} (exclusive, " in text
    # And `all` leaves it out, with a word in the log.
    seen = here.run(f"{VISIBLE}=all")
    assert seen.gpus == [0]
    assert f"is held by {alone.id[:12]}" in seen.warnings
    assert "so 'all' leaves it out." in seen.warnings


def test_all_where_all_are_held(here: Here) -> None:
    alone = here.created(EIGHT)
    text = here.refused(f"{VISIBLE}=all")
    assert f"environment {VISIBLE}=all" in text and alone.id[:12] in text


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _open_files(pid: int) -> list[str]:
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]


def _is_read(fifo: Path, held: list[int]) -> bool:
    """Whether somebody waits for what is written there; the end to write to is kept open then."""
    try:
        held.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
