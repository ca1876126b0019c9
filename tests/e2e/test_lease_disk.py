"""Where leases and tickets are kept: a full disk at each of the files, and files that are none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpushim.allocate.book import every

from tests.conftest import cannot
from tests.harness import processes
from tests.harness.asking import ctl
from tests.harness.leased import Here
from tests.harness.seen import probe

pytestmark = pytest.mark.e2e

ONE, EIGHT = "GPUSHIM_GPUS=1", "GPUSHIM_GPUS=8"
SLEEP = probe(["sleep", "300"])
PAGE = os.sysconf("SC_PAGESIZE")


class SmallDisk:
    """A tmpfs with gpushim's state in it, which has room for so many pages of further files."""

    def __init__(self, here: Here) -> None:
        self.here, self.places = here, here.machine.places
        here.delete(here.created(ONE))
        run = self.places.run
        saved = f"{run}.saved"
        shutil.copytree(run, saved, symlinks=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=755", "small", run]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            cannot("nothing can be mounted here")
        shutil.copytree(saved, run, symlinks=True, dirs_exist_ok=True)
        self._filler = Path(run, "filler")

    def leave(self, pages: int) -> None:
        self._filler.unlink(missing_ok=True)
        with self._filler.open("wb", buffering=0) as file:
            size = 0
            try:
                while True:
                    size += file.write(bytes(PAGE))
            except OSError:
                file.truncate(max(size - pages * PAGE, 0))

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes what is left of containers that are gone, which would make room meanwhile."""
        for lease in every(self.places):
            os.unlink(lease.path)
        for path in Path(self.places.containers).iterdir():
            shutil.rmtree(path)

    def files(self) -> set[str]:
        """All but those that tell of refusals."""
        found = set()
        for top in (self.places.leases, self.places.queue, self.places.containers):
            found |= {str(path) for path in Path(top).rglob("*") if path.is_file()}
        return found


@pytest.fixture
def disk(here: Here) -> Iterator[SmallDisk]:
    yield SmallDisk(here)
    here.runtime.close()
    processes.unmount_below(here.machine.installed.root)


def test_no_room_for_a_lease_or_for_its_record(disk: SmallDisk) -> None:
    """Each file that a create writes may be the one too many: it has booked nothing then."""
    here, said = disk.here, []
    for pages in range(8):
        bundle = here.bundle(EIGHT, args=SLEEP)
        before = bundle.config_path.read_bytes()
        disk.sweep()
        kept = disk.files()
        disk.leave(pages)
        done = here.runtime.create(bundle)
        disk.empty()
        if done.status == 0:
            here.delete(bundle)
            break
        said.append(done.stderr)
        assert "the file system is full" in done.stderr, (pages, done)
        assert here.leases() == []
        assert disk.files() <= kept
        assert bundle.config_path.read_bytes() == before
        here.delete(here.created(EIGHT))
    text = "".join(said)
    assert f"The lease can't be kept in {disk.places.leases}" in text
    assert f"The decision cannot be kept in {disk.places.containers}" in text
    here.holds_nothing()


def test_no_room_for_a_ticket(disk: SmallDisk) -> None:
    here, pages = disk.here, 0
    while True:
        disk.leave(pages)
        done = ctl(here.machine, "reserve", "--gpus", "8")
        disk.empty()
        if done.returncode == 0:
            break
        assert "the file system is full" in done.stderr, (pages, done)
        assert not [lease for lease in every(disk.places) if lease.ticket]
        assert os.listdir(disk.places.queue) == []
        here.delete(here.created(EIGHT))
        pages += 1
    assert pages > 1
    assert here.runtime.create(here.bundle(ONE, args=SLEEP)).status == 1


def test_no_room_to_redeem_a_ticket(disk: SmallDisk) -> None:
    """Who could not redeem it has not spent it."""
    here, pages = disk.here, 0
    ticket = f"GPUSHIM_TICKET={ctl(here.machine, 'reserve', '--gpus', '8').stdout.strip()}"
    while True:
        bundle = here.bundle(ticket, args=SLEEP)
        disk.leave(pages)
        done = here.runtime.create(bundle)
        disk.empty()
        if done.status == 0:
            break
        assert "the file system is full" in done.stderr, (pages, done)
        assert here.runtime.create(here.bundle(ONE, args=SLEEP)).status == 1
        pages += 1
    assert pages > 1
    assert len(here.gpus_of(bundle)) == 8
    refused = here.runtime.create(here.bundle(ticket, args=SLEEP)).stderr
    assert f"was redeemed already, by container {bundle.id}" in refused
    here.delete(bundle)
    here.holds_nothing()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: os.truncate(path, 100),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(b"\0" * 500),
        lambda path: path.write_text('{"format": 1, "id": []}'),
    ],
    ids=["half", "empty", "zeros", "other"],
)
def test_a_damaged_lease(here: Here, spoil: Callable[[Path], object]) -> None:
    """B31: rebuilt from the decision record of its container as long as that lives."""
    lives, ends = here.created("GPUSHIM_GPUS=3"), here.created("GPUSHIM_GPUS=3")
    gpus = here.gpus_of(lives)
    paths = {lease.id: Path(lease.path) for lease in every(here.machine.places)}
    here.delete(ends)
    for path in paths.values():
        spoil(path)
    seen = here.run("GPUSHIM_GPUS=5")
    assert not set(seen.gpus) & set(gpus)
    assert f"{paths[lives.id]} was no lease; what {lives.id} has was taken" in seen.warnings
    assert f"{paths[ends.id]} is no lease and was moved to" in seen.warnings
    assert here.gpus_of(lives) == gpus
    assert len(os.listdir(here.machine.places.leases_aside)) == 2
    assert lives.id[:12] in here.refused("GPUSHIM_GPUS=6")


def test_files_that_are_no_leases(here: Here) -> None:
    """Set aside, said in the log, and in nobody's way."""
    here.delete(here.created(ONE))
    places = here.machine.places
    for name in ("notes.txt", "0-0-x.json", "README"):
        Path(places.leases, name).write_text("hello")
    os.mkfifo(f"{places.leases}/1-0-fifo.json")
    seen = here.run(EIGHT)
    assert seen.gpus == list(range(8))
    assert seen.warnings.count(f"is no lease and was moved to {places.leases_aside}.") == 4
    assert len(os.listdir(places.leases_aside)) == 4
    assert len(os.listdir(places.leases)) == 1
