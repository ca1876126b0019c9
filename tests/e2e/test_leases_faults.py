"""Leases when whoever writes them is killed, the disk is full, and several users book."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate.book import every, open_book
from gpushim.allocate.lease import EXCLUSIVE, Booking, Lease
from gpushim.allocate.liveness import Roots, lives
from gpushim.errors import GpushimError
from gpushim.places import Places
from gpushim.records import start_time

from tests.conftest import cannot
from tests.harness import workspace
from tests.harness.users import ALICE, BOB, Processes, as_user

pytestmark = pytest.mark.e2e

CLONE_NEWUSER = 0x10000000


@pytest.fixture
def places() -> Iterator[Places]:
    """An installation that other users reach."""
    path = workspace.make("leases", Path("/var/tmp"))
    path.chmod(0o755)
    places = Places(str(path))
    open_book(places).close()
    yield places
    workspace.remove(path)


def lease(id: str, uuid: str, pid: int = 0) -> Lease:
    pid = pid or os.getpid()
    made = Lease(id, "/run/none", (pid, start_time(pid)), [Booking(uuid, EXCLUSIVE)])
    made.boot, made.family = Roots().boot, "runc"
    return made


def booked(places: Places) -> dict[str, str]:
    """Container -> its GPU."""
    return {each.id: each.bookings[0].uuid for each in every(places)}


# What is done between two calls that stand for themselves in a trace.
WRITER = """
import os, sys
root, what = sys.argv[1:3]
sys.path[:] = sys.argv[3:]
from gpushim.allocate.book import open_book
from gpushim.allocate.lease import Booking, Lease
from gpushim.places import Places
from gpushim.records import start_time
import gpushim.allocate.liveness
places = Places(root)
parent = os.getppid()
os.getpgid(0)
with open_book(places) as book:
    if what == "put":
        lease = Lease("a", "/run/none", (1, start_time(1)), [Booking("GPU-new", "exclusive")])
        lease.boot = gpushim.allocate.liveness.Roots().boot
        book.put(lease)
    else:
        for lease in list(book.leases):
            if what == "drop":
                book.drop(lease)
            else:
                book.alive(lease)
os.getpgid(0)
"""


class Killing:
    """A process that works on leases and is killed at one of its calls."""

    def __init__(self, places: Places, what: str, before: dict[str, str]) -> None:
        self.places, self.what, self._before = places, what, before
        self.trace = Path(places.root, "trace")

    def before(self) -> None:
        """The book as it is before; "dead" is one whose container is gone."""
        with open_book(self.places) as book:
            for each in list(book.leases):
                book.drop(each)
            for name, uuid in self._before.items():
                made = lease(name, uuid)
                if name == "dead":
                    made.creator = (made.creator[0], 1)
                book.put(made)

    def run(self, *options: str) -> int:
        command = ["strace", "-qq", "-o", str(self.trace), *options]
        command += [sys.executable, "-I", "-S", "-c", WRITER, self.places.root, self.what]
        return subprocess.run([*command, *sys.path], timeout=60).returncode

    def calls(self) -> list[tuple[str, int]]:
        """Each system call in which something may be half done: its name and its count."""
        assert self.run() == 0  # bytecode is written in the first run alone
        self.before()
        assert self.run() == 0
        counts: dict[str, int] = {}
        found = []
        marks = 0
        for line in self.trace.read_text().splitlines():
            call = line.partition("(")[0]
            counts[call] = counts.get(call, 0) + 1
            if call == "getpgid":
                marks += 1
            if marks == 1:
                found.append((call, counts[call]))
        assert marks == 2
        return found

    def kill_at(self, call: str, number: int) -> None:
        inject = f"inject={call}:signal=KILL:when={number}"
        status = self.run("-e", f"trace={call}", "-e", inject)
        assert status in (-signal.SIGKILL, 128 + signal.SIGKILL), (call, number, status)


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("put", {}, {"a": "GPU-new"}),
        ("put", {"a": "GPU-old", "b": "GPU-b"}, {"a": "GPU-new", "b": "GPU-b"}),
        ("drop", {"a": "GPU-old"}, {}),
        ("look", {"b": "GPU-b", "dead": "GPU-c"}, {"b": "GPU-b"}),
    ],
)
def test_killed_at_each_call(
    places: Places, what: str, before: dict[str, str], after: dict[str, str]
) -> None:
    """B31, B81: what is read later is as before or as after, and nothing else is left."""
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    killing = Killing(places, what, before)
    killing.before()
    calls = killing.calls()
    assert booked(places) == after
    assert {"openat", "flock"} <= {call for call, _ in calls}
    for call in calls:
        killing.before()
        killing.kill_at(*call)
        assert booked(places) in (before, after), call
        began = time.monotonic()
        with open_book(places) as book:
            now = {each.id: each.bookings[0].uuid for each in book.leases}
            assert now in (before, after), call
            assert not book.said, call
        assert time.monotonic() - began < 5
        assert len(os.listdir(places.leases)) == len(now), call
        assert not os.path.exists(places.leases_aside)


def test_a_full_disk(places: Places) -> None:
    """Nothing is given, what was booked stays, and nothing is left of the attempt."""
    shutil.rmtree(places.run)
    os.mkdir(places.run)
    mount = ["mount", "-n", "-t", "tmpfs", "-o", "size=16k,mode=755", "tmpfs", places.run]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        cannot("nothing can be mounted here")
    with open_book(places) as book:
        book.put(lease("a", "GPU-1"))
    with Path(places.run, "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
    listed = os.listdir(places.leases)
    for name in ("a", "b"):
        with open_book(places) as book:
            with pytest.raises(GpushimError) as caught:
                book.put(lease(name, "GPU-2"))
            assert "the file system is full" in str(caught.value)
            assert [each.id for each in book.leases] == ["a"]
        assert booked(places) == {"a": "GPU-1"}
        assert os.listdir(places.leases) == listed
    Path(places.run, "filler").unlink()
    with open_book(places) as book:
        book.put(lease("b", "GPU-2"))
    assert booked(places) == {"a": "GPU-1", "b": "GPU-2"}


@pytest.fixture
def process_of() -> Iterator[Callable[[int], int]]:
    """Start processes of other users, which live until the test ends."""
    processes = Processes()
    yield processes.of
    processes.close()


def put_as(uid: int, places: Places, made: Lease) -> Any:
    def work() -> Any:
        with open_book(places) as book:
            book.put(made)
            return [made.owner, made.path]

    return as_user(uid, work)


def seen_by(uid: int, places: Places) -> Any:
    """Container -> whether it lives, as a user sees it, who has looked at all of them."""

    def work() -> dict[str, bool]:
        with open_book(places) as book:
            return {each.id: book.alive(each) for each in list(book.leases)}

    return as_user(uid, work)


def test_three_users_book_in_one_place(places: Places, process_of: Callable[[int], int]) -> None:
    alice, bob = process_of(ALICE), process_of(BOB)
    assert put_as(ALICE, places, lease("of-alice", "GPU-1", alice))[0] == ALICE
    assert put_as(BOB, places, lease("of-bob", "GPU-2", bob))[0] == BOB
    with open_book(places) as book:
        book.put(lease("of-root", "GPU-3"))
    everything = {"of-alice": True, "of-bob": True, "of-root": True}
    for uid in (0, ALICE, BOB):
        assert seen_by(uid, places) == everything
    assert {each.id: each.owner for each in every(places)} == {
        "of-alice": ALICE, "of-bob": BOB, "of-root": 0,
    }  # fmt: skip


def test_the_same_name_of_two_users(places: Places, process_of: Callable[[int], int]) -> None:
    """Neither takes the place of the other's."""
    alice, bob = process_of(ALICE), process_of(BOB)
    put_as(ALICE, places, lease("job", "GPU-1", alice))
    put_as(BOB, places, lease("job", "GPU-2", bob))
    put_as(BOB, places, lease("job", "GPU-3", bob))
    found = sorted((each.owner, each.bookings[0].uuid) for each in every(places))
    assert found == [(ALICE, "GPU-1"), (BOB, "GPU-3")]


def test_nobody_drops_anothers(places: Places, process_of: Callable[[int], int]) -> None:
    alice = process_of(ALICE)
    put_as(ALICE, places, lease("of-alice", "GPU-1", alice))

    def work() -> list[str]:
        with open_book(places) as book:
            book.drop(book.leases[0])
            return [each.id for each in book.leases]

    assert as_user(BOB, work) == []
    assert booked(places) == {"of-alice": "GPU-1"}
    assert as_user(ALICE, work) == []
    assert booked(places) == {}


def test_root_drops_what_names_anothers_process(
    places: Places, process_of: Callable[[int], int]
) -> None:
    """A user can't keep a GPU by pointing at a process that is not the user's."""
    bob = process_of(BOB)
    put_as(ALICE, places, lease("points-at-init", "GPU-1", 1))
    put_as(ALICE, places, lease("points-at-bob", "GPU-2", bob))
    assert seen_by(0, places) == {"points-at-init": False, "points-at-bob": False}
    assert booked(places) == {}


def test_a_process_in_a_users_namespace_is_the_users(places: Places) -> None:
    """Rootless containers run as users that have no name outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(ALICE, ALICE, ALICE)
            os.setresuid(ALICE, ALICE, ALICE)
            if libc.unshare(CLONE_NEWUSER) == 0:
                os.read(wait, 1)
                os.setresuid(5, 5, 5)
                time.sleep(60)
        finally:
            os._exit(0)

    def soon(holds: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + 5
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    try:
        namespace = Path(f"/proc/{pid}/ns/user")
        if not soon(lambda: namespace.readlink() != Path("/proc/self/ns/user").readlink()):
            cannot("user namespaces are off")
        Path(f"/proc/{pid}/uid_map").write_text("0 170000 100\n")
        os.write(go, b"x")
        assert soon(lambda: "\t170005\t" in Path(f"/proc/{pid}/status").read_text())
        made = lease("rootless", "GPU-1", pid)
        made.owner = ALICE
        assert lives(made, Roots())
        made.owner = BOB
        assert not lives(made, Roots())
    finally:
        os.close(wait)
        os.close(go)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_users_leave_whatever_they_like(places: Places) -> None:
    """Root moves it away; another user goes on without it."""

    def litter() -> None:
        os.chdir(places.leases)
        Path("garbage.json").write_text("{")
        os.mkfifo("fifo.json")
        os.symlink("/etc/shadow", "link.json")
        Path("folder.json").mkdir()
        Path("newer.json").write_text('{"format": 2}')
        Path("hidden.json").write_text("{}")
        os.chmod("hidden.json", 0)

    as_user(ALICE, litter)
    with open_book(places) as book:
        book.put(lease("of-root", "GPU-1"))
    assert sorted(os.listdir(places.leases)) == [Path(every(places)[0].path).name]
    as_user(ALICE, litter)

    def work() -> list[Any]:
        with open_book(places) as book:
            return [[each.id for each in book.leases], len(book.said)]

    assert as_user(BOB, work) == [["of-root"], 5]


def test_where_there_is_no_directory_yet(places: Places) -> None:
    """A user is told who can make it."""
    shutil.rmtree(places.run)
    os.mkdir(places.run)

    def work() -> str:
        try:
            open_book(places)
        except GpushimError as error:
            return str(error)
        return ""

    told = as_user(BOB, work)
    assert "can't be made: access to it is refused" in told
    assert "systemd-tmpfiles --create" in told


def test_two_hundred_at_once(places: Places) -> None:
    """Each gets its turn: eight book, all others see who has them, and nobody waits for ever."""
    read, write = os.pipe()
    pids = []
    begin = time.monotonic() + 0.5
    for number in range(200):
        pid = os.fork()
        pids.append(pid)
        if pid:
            continue
        try:
            time.sleep(max(0.0, begin - time.monotonic()))
            came = time.monotonic()
            with open_book(places) as book:
                waited = time.monotonic() - came
                taken = {each.bookings[0].uuid for each in book.leases if book.alive(each)}
                free = [f"GPU-{index}" for index in range(8) if f"GPU-{index}" not in taken]
                if free:
                    book.put(lease(f"c{number}", free[0], os.getppid()))
                os.write(write, f"{free[0] if free else '-'} {waited}\n".encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__} 0\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        rows = [line.split() for line in file]
    for pid in pids:
        os.waitpid(pid, 0)
    assert len(rows) == 200
    given = sorted(word for word, _ in rows if word != "-")
    assert given == [f"GPU-{index}" for index in range(8)]
    assert sorted(booked(places).values()) == given
    assert max(float(waited) for _, waited in rows) < 25


def test_nobody_starves(places: Places) -> None:
    """Those who come again and again don't keep one who waits from its turn."""
    read, write = os.pipe()
    end = time.monotonic() + 3
    pids = []
    for _ in range(12):
        pid = os.fork()
        pids.append(pid)
        if pid:
            continue
        try:
            turns = 0
            while time.monotonic() < end:
                with open_book(places):
                    time.sleep(0.002)
                turns += 1
            os.write(write, f"{turns}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        each = [int(line) for line in file]
    for pid in pids:
        os.waitpid(pid, 0)
    assert len(each) == 12
    assert min(each) > max(each) / 4, each
