"""The book of leases: the lock, what is kept, and what in the directory is none."""

from __future__ import annotations

import _thread
import errno
import fcntl
import json
import os
import posix
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpushim import records
from gpushim.allocate import aside, leasefiles, leaselock, lockwait, rebuild
from gpushim.allocate.book import every, open_book
from gpushim.allocate.lease import EXCLUSIVE, Booking, Lease, file_name
from gpushim.allocate.leasefiles import LARGEST
from gpushim.allocate.leaselock import acquire
from gpushim.allocate.liveness import Roots
from gpushim.errors import GpushimError
from gpushim.places import Places

ME = os.geteuid()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    places = Places(str(tmp_path))
    # Where this user's records are depends on who runs the tests.
    monkeypatch.setattr(rebuild, "own_places", lambda places: places)
    open_book(places).close()
    return places


def lease(id: str = "c1", uuid: str = "GPU-1", pid: int | None = None) -> Lease:
    """A lease whose creator is this process, unless it is another."""
    pid = os.getpid() if pid is None else pid
    made = Lease(id, "/run/none", (pid, records.start_time(pid) or 1), [Booking(uuid, EXCLUSIVE)])
    made.boot, made.family, made.name = Roots().boot, "runc", f"name-{id}"
    return made


def dead(id: str = "gone") -> Lease:
    made = lease(id)
    made.creator = (os.getpid(), 1)
    return made


def put(places: Places, *leases: Lease) -> None:
    with open_book(places) as book:
        for each in leases:
            book.put(each)


def ids(places: Places) -> list[str]:
    return sorted(each.id for each in every(places))


def in_directory(places: Places) -> list[str]:
    return sorted(os.listdir(places.leases))


def spoil(places: Places, content: bytes, id: str = "c1") -> Path:
    path = Path(places.leases, file_name(id, "/run/none", ME))
    path.write_bytes(content)
    return path


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_what_is_made_at_first(places: Places) -> None:
    assert mode(places.run) == 0o755
    assert mode(places.leases) == 0o1777
    assert mode(places.lease_lock) == 0o644


def test_put_read_drop(places: Places) -> None:
    put(places, lease("a", "GPU-1"), lease("b", "GPU-2"))
    with open_book(places) as book:
        assert sorted(each.id for each in book.leases) == ["a", "b"]
        one = next(each for each in book.leases if each.id == "a")
        assert (one.owner, one.bookings[0].uuid, one.name) == (ME, "GPU-1", "name-a")
        assert mode(one.path) == 0o644
        book.drop(one)
        assert [each.id for each in book.leases] == ["b"]
    assert ids(places) == ["b"]
    assert in_directory(places) == [file_name("b", "/run/none", ME)]


def test_the_same_container_again(places: Places) -> None:
    """B82: its lease takes the place of the former one, which tells what it had."""
    put(places, lease("a", "GPU-1"), lease("b", "GPU-2"))
    with open_book(places) as book:
        former = book.former("a", "/run/none")
        assert former is not None
        assert former.bookings[0].uuid == "GPU-1"
        assert book.former("a", "/run/other") is None
        assert book.former("c", "/run/none") is None
        book.put(lease("a", "GPU-3"))
        assert len(book.leases) == 2
    uuids = {each.id: each.bookings[0].uuid for each in every(places)}
    assert uuids == {"a": "GPU-3", "b": "GPU-2"}


def test_a_dead_one_is_dropped_when_asked_for(places: Places) -> None:
    put(places, lease("a"), dead("b"), dead("c"))
    with open_book(places) as book:
        a, b, _ = sorted(book.leases, key=lambda each: each.id)
        assert book.alive(a)
        assert not book.alive(b)
        assert not book.alive(b)
        assert [each.id for each in book.leases if each.id == "b"] == []
        assert book.said == ["The lease of name-b went with its container."]
    assert ids(places) == ["a", "c"]


def test_liveness_is_asked_once(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    put(places, dead("a"))
    asked: list[str] = []

    def lives(lease: Lease, roots: Roots) -> bool:
        asked.append(lease.id)
        return True

    monkeypatch.setattr("gpushim.allocate.liveness.lives", lives)
    with open_book(places) as book:
        assert [book.alive(book.leases[0]) for _ in range(3)] == [True, True, True]
        new = lease("new")
        book.put(new)
        assert book.alive(new)
    assert asked == ["a"]


def test_the_book_is_open_once(places: Places) -> None:
    """Whoever comes second sees what the first has booked."""
    seen: list[list[str]] = []

    def second() -> None:
        with open_book(places) as book:
            seen.append([each.id for each in book.leases])

    with open_book(places) as book:
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        assert not seen
        book.put(lease("a"))
    thread.join(10)
    assert seen == [["a"]]


def test_the_lock_is_let_go_of_after_an_error(places: Places) -> None:
    """B81."""
    with pytest.raises(RuntimeError), open_book(places):
        raise RuntimeError
    open_book(places).close()


def test_the_lock_goes_with_its_holder(places: Places) -> None:
    """B81."""
    code = (
        "import sys, time; sys.path[:] = sys.argv[2:]\n"
        "from gpushim.allocate.book import open_book; from gpushim.places import Places\n"
        "book = open_book(Places(sys.argv[1])); print('locked', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, places.root, *sys.path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(GpushimError) as caught:
        acquire(places, 0.2)
    assert f"locked for 0.2 seconds by process {holder.pid} (" in str(caught.value)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    os.close(acquire(places, 5))


def test_a_long_line_is_no_holder_that_hangs(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B81: who waits longer, since others come first, is not told that somebody hangs."""
    book = open_book(places)
    seen: list[str] = []

    def holder(lock: int) -> str:
        seen.append(f" by process {len(seen)}")
        if len(seen) == 5:
            book.close()
        return seen[-1]

    monkeypatch.setattr(lockwait, "_holder", holder)
    os.close(acquire(places, 0.05))
    assert len(seen) == 5
    with open_book(places), pytest.raises(GpushimError, match="turn came first for 0"):
        acquire(places, 0.05, 0.2)
    # A process that is the same all the time is told of.
    monkeypatch.setattr(lockwait, "_holder", lambda lock: " by process 7")
    with open_book(places), pytest.raises(GpushimError, match="seconds by process 7"):
        acquire(places, 0.05)


def test_a_wait_that_was_given_up_locks_nothing(places: Places) -> None:
    """Its thread gets the lock when it is free, and lets go of it at once."""
    threads = _thread._count()
    book = open_book(places)
    for _ in range(3):
        with pytest.raises(GpushimError):
            acquire(places, 0.05)
    book.close()
    os.close(acquire(places, 5))
    deadline = time.monotonic() + 5
    while _thread._count() > threads:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_more_threads(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with open_book(places), pytest.raises(GpushimError, match="no more threads"):
        acquire(places, 1)
    open_book(places).close()


def test_a_lock_file_that_was_replaced(places: Places) -> None:
    """Who waited for the old one locks the new one in the end."""
    first = acquire(places)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(acquire(places)))
    thread.start()
    time.sleep(0.05)
    os.unlink(places.lease_lock)
    os.close(first)
    thread.join(10)
    assert os.fstat(got[0]).st_ino == os.stat(places.lease_lock).st_ino
    os.close(got[0])


def test_no_descriptor_is_left(places: Places) -> None:
    before = os.listdir("/proc/self/fd")
    put(places, lease("a"))
    spoil(places, b"x", "b")
    with open_book(places) as book:
        book.alive(book.leases[0])
        with pytest.raises(GpushimError):
            acquire(places, 0.05)
    os.close(acquire(places, 5))
    every(places)
    deadline = time.monotonic() + 5
    while os.listdir("/proc/self/fd") != before:  # the thread of the wait ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_lock_does_not_pass_to_other_programs(places: Places) -> None:
    with open_book(places) as book:
        assert fcntl.fcntl(book._lock, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_lock_that_is_no_file_of_ours(places: Places, kind: str) -> None:
    """It never hangs, and at worst it is said."""
    os.unlink(places.lease_lock)
    if kind == "link":
        os.symlink("/etc/passwd", places.lease_lock)
        with pytest.raises(GpushimError, match=r"leases\.lock can't be opened"):
            open_book(places)
    elif kind == "fifo":
        os.mkfifo(places.lease_lock)
        open_book(places).close()
    else:
        os.mkdir(places.lease_lock)
        open_book(places).close()


def test_a_directory_that_is_gone(places: Places) -> None:
    os.rmdir(places.leases)
    assert every(places) == []
    put(places, lease("a"))
    assert mode(places.leases) == 0o1777
    assert ids(places) == ["a"]


def test_where_nothing_can_be_made(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "x")

    os.unlink(places.lease_lock)
    monkeypatch.setattr(leaselock, "make_directories", refuse)
    with pytest.raises(GpushimError) as caught:
        open_book(places)
    assert "can't be made: access to it is refused" in caught.value.sentence
    assert "as root" in caught.value.hint


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_what_cant_be_written(places: Places, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    put(places, lease("a", "GPU-1"))

    def refuse(*arguments: Any) -> None:
        raise OSError(number, "x")

    monkeypatch.setattr(leasefiles, "write_whole", refuse)
    with open_book(places) as book:
        for name in ("a", "b"):
            with pytest.raises(GpushimError, match="The lease can't be kept in "):
                book.put(lease(name, "GPU-2"))
        assert [(each.id, each.bookings[0].uuid) for each in book.leases] == [("a", "GPU-1")]
    assert [each.bookings[0].uuid for each in every(places)] == ["GPU-1"]


def _file(path: Path) -> None:
    path.write_bytes(b"{")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        old = os.getcwd()
        os.chdir(path.parent)  # its address has to be short
        try:
            made.bind(path.name)
        finally:
            os.chdir(old)


SPOILED: dict[str, Callable[[Path], object]] = {
    "truncated": _file,
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "not ascii": lambda path: path.write_bytes('{"format": 1, "id": "é"}'.encode()),
    "another kind": lambda path: path.write_bytes(b'{"format": 1, "id": "x"}'),
    "a list": lambda path: path.write_bytes(b"[]"),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "large": lambda path: path.write_bytes(b" " * (LARGEST + 1)),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "loop": lambda path: path.symlink_to(path.name),
    "fifo": lambda path: os.mkfifo(path),
    "socket": _socket,
    "directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", ["x.json", "x", ".hidden", "\udcff.json", "a\nb.json"])
@pytest.mark.parametrize("kind", SPOILED)
def test_what_is_no_lease_is_set_aside(places: Places, kind: str, name: str) -> None:
    put(places, lease("a"))
    SPOILED[kind](Path(places.leases, name))
    assert ids(places) == ["a"], "ps sees the others all the same"
    with open_book(places) as book:
        assert [each.id for each in book.leases] == ["a"]
        assert len(book.said) == 1
        assert f"is no lease and was moved to {places.leases_aside}" in book.said[0]
    assert in_directory(places) == [file_name("a", "/run/none", ME)]
    (aside,) = os.listdir(places.leases_aside)
    assert aside.endswith("-" + name)
    assert mode(places.leases_aside) == 0o700
    with open_book(places) as book:
        assert not book.said


def test_what_is_aside_has_an_end(places: Places) -> None:
    for _ in range(3):
        for number in range(40):
            Path(places.leases, f"{number}.json").write_bytes(b"")
        open_book(places).close()
    assert len(os.listdir(places.leases_aside)) == 64
    assert in_directory(places) == []


def test_what_cant_be_set_aside_is_ignored(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user can't move what another put there."""
    put(places, lease("a"))
    path = spoil(places, b"x", "b")

    def refuse(*arguments: Any, **more: Any) -> None:
        raise PermissionError(errno.EPERM, "x")

    monkeypatch.setattr(posix, "rename", refuse)
    with open_book(places) as book:
        assert [each.id for each in book.leases] == ["a"]
        assert book.said == [
            f"{path} is no lease and is ignored; only its owner or root can remove it."
        ]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_a_machine_that_cant_read_is_no_reason_to_set_aside(
    places: Places, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    put(places, lease("a"))
    real: Any = posix.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith(".json"):
            raise OSError(number, "x")
        descriptor: int = real(path, *arguments, **more)
        return descriptor

    monkeypatch.setattr(posix, "open", refuse)
    with pytest.raises(GpushimError, match="can't be read"):
        open_book(places)
    monkeypatch.undo()
    assert ids(places) == ["a"]
    os.close(acquire(places, 5))


def test_one_that_goes_meanwhile(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    put(places, lease("a"))
    monkeypatch.setattr(posix, "listdir", lambda path: [*in_directory(places), "b.json"])
    assert ids(places) == ["a"]


def test_what_a_killed_writer_left(places: Places) -> None:
    put(places, lease("a"))
    half = Path(places.leases, file_name("b", "/run/none", ME) + ".tmp123")
    half.write_bytes(b'{"format": 1')
    assert ids(places) == ["a"]
    with open_book(places) as book:
        assert [each.id for each in book.leases] == ["a"]
        assert not book.said
    assert in_directory(places) == [file_name("a", "/run/none", ME)]


def record(places: Places, kept: Lease, **change: Any) -> None:
    data = {"creator": list(kept.creator), "lease": {**kept.to_json(), "owner": ME, **change}}
    records.write(places.containers, kept.id, kept.state_root, data)


class TestRebuilt:
    """A lease that is damaged while its container lives comes from the decision record."""

    def test_it_is_there_again(self, places: Places) -> None:
        put(places, lease("a"), lease("b", "GPU-2"))
        record(places, lease("a"))
        path = spoil(places, b"{", "a")
        with open_book(places) as book:
            assert sorted(each.id for each in book.leases) == ["a", "b"]
            assert book.said == [
                f"{path} was no lease; what name-a has was taken from its decision record."
            ]
        assert ids(places) == ["a", "b"]
        (aside,) = os.listdir(places.leases_aside)
        assert Path(places.leases_aside, aside).read_bytes() == b"{"
        with open_book(places) as book:
            assert not book.said

    def test_in_place_of_a_directory(self, places: Places) -> None:
        record(places, lease("a"))
        Path(places.leases, file_name("a", "/run/none", ME)).mkdir()
        open_book(places).close()
        assert ids(places) == ["a"]

    def test_of_a_newer_format(self, places: Places) -> None:
        record(places, lease("a"))
        path = spoil(places, json.dumps({**lease("a").to_json(), "format": 2}).encode(), "a")
        with open_book(places) as book:
            assert [each.id for each in book.leases] == ["a"]
            assert book.said[0].startswith(f"{path} was a lease of format 2; what name-a has")

    @pytest.mark.parametrize("change", [{}, {"format": 2}, {"bookings": 5}])
    def test_not_without_a_record_that_says_so(
        self, places: Places, change: dict[str, Any]
    ) -> None:
        if change:
            record(places, lease("a"), **change)
        record(places, lease("b"))
        spoil(places, b"{", "a")
        with open_book(places) as book:
            assert book.leases == []
            assert "was moved to" in book.said[0]

    def test_not_if_the_container_is_gone(self, places: Places, tmp_path: Path) -> None:
        """A state directory alone keeps the record, and means nothing."""
        gone = dead("a")
        gone.state_root = str(tmp_path / "state")
        (tmp_path / "state/a").mkdir(parents=True)
        record(places, gone)
        assert len(list(records.every(places.containers))) == 1
        Path(places.leases, file_name("a", gone.state_root, ME)).write_bytes(b"")
        with open_book(places) as book:
            assert book.leases == []

    def test_a_full_disk_keeps_what_there_is(
        self, places: Places, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record(places, lease("a"))
        path = spoil(places, b"{", "a")

        def refuse(*arguments: Any) -> None:
            raise OSError(errno.ENOSPC, "x")

        monkeypatch.setattr(leasefiles, "write_whole", refuse)
        with pytest.raises(GpushimError, match="the right one can't be written"):
            open_book(places)
        monkeypatch.undo()
        assert path.read_bytes() == b"{"
        open_book(places).close()
        assert ids(places) == ["a"]


def test_a_newer_format_without_a_record_stops_everything(places: Places) -> None:
    """What it books can't be known, so nothing is given; the file stays for the newer gpushim."""
    path = spoil(places, b'{"format": 2}')
    with pytest.raises(GpushimError) as caught:
        open_book(places)
    assert caught.value.sentence == (f"{path} was written by a newer gpushim (its format is 2).")
    assert path.read_bytes() == b'{"format": 2}'
    os.close(acquire(places, 5))


def test_a_newer_format_of_another_user_is_set_aside(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(places, b'{"format": 2}')
    monkeypatch.setattr(aside, "_is_trusted", lambda path: False)
    with open_book(places) as book:
        assert "is a lease of format 2 and was moved to" in book.said[0]


def test_two_hundred_leases_are_read_in_time(places: Places) -> None:
    """Each create does this; the bar is far above what it takes, for a machine that is busy."""
    put(places, *(lease(f"{number:064x}", f"GPU-{number}") for number in range(200)))
    times = []
    for _ in range(20):
        began = time.perf_counter()
        open_book(places).close()
        times.append(time.perf_counter() - began)
    assert min(times) < 0.006
