"""Records are there as long as their container is, or is being made, and no longer (B31)."""

from __future__ import annotations

import errno
import os
import posix
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim import records

ME = [os.getpid(), records.start_time(os.getpid())]


@pytest.fixture
def ended() -> Iterator[list[int]]:
    """The creator of a container whose creation is over."""
    process = subprocess.Popen(["sleep", "60"])
    creator = [process.pid, records.start_time(process.pid)]
    process.kill()
    process.wait()
    yield creator


class Place:
    """A directory of records and a runtime root with states."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "containers"
        self.root = base / "state root"

    def write(self, id: str, creator: list[int], **data: Any) -> None:
        data = {"creator": creator, **data}
        records.write(str(self.directory), id, str(self.root), data)

    def begin(self, id: str) -> None:
        (self.root / id).mkdir(parents=True)

    def end(self, id: str) -> None:
        (self.root / id).rmdir()

    def find(self, id: str) -> dict[str, Any] | None:
        record = records.find(str(self.directory), id, str(self.root))
        return record.data if record else None

    def every(self) -> list[str]:
        return sorted(record.data["id"] for record in records.every(str(self.directory)))

    def collect(self) -> None:
        records.collect(str(self.directory))

    def left(self) -> list[str]:
        return sorted(str(p.relative_to(self.directory)) for p in self.directory.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_container_lives_by_its_state(place: Place, ended: list[int]) -> None:
    place.begin("c1")
    place.write("c1", ended, env=["A=\ud800"])
    place.collect()
    assert place.find("c1") == {
        "format": 1,
        "id": "c1",
        "state_root": str(place.root),
        "creator": ended,
        "env": ["A=\ud800"],
    }
    assert place.every() == ["c1"]
    place.end("c1")
    assert place.every() == []
    place.collect()
    assert place.find("c1") is None
    assert place.left() == []


def test_a_container_lives_while_it_is_made(place: Place, ended: list[int]) -> None:
    place.write("c1", ME)
    place.write("c2", ended)
    place.write("c3", [os.getpid(), ME[1] + 1])  # the pid is another process now
    place.write("c4", [0, 0])
    assert place.every() == ["c1"]
    place.collect()
    assert place.find("c1")
    assert [path for path in place.left() if "/" not in path] == ["c1"]


def test_state_that_cannot_be_seen_counts_as_there(place: Place, ended: list[int]) -> None:
    place.write("c1", ended)
    (link,) = place.directory.glob("c1/*.state")
    link.unlink()
    link.symlink_to(link.name)  # ELOOP, as an unreadable file system would give EIO
    place.collect()
    assert place.find("c1")


def test_the_same_name_under_two_roots(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path)
    other.root = tmp_path / "other"
    place.write("c1", ME, of="one")
    other.write("c1", ME, of="two")
    assert [place.find("c1"), other.find("c1")] != [None, None]
    assert place.find("c1") != other.find("c1")
    records.remove(str(place.directory), "c1", str(place.root))
    assert place.find("c1") is None
    assert other.find("c1")
    records.remove(str(place.directory), "c1", str(other.root))
    records.remove(str(place.directory), "c1", str(other.root))
    assert place.left() == []


def test_a_new_container_of_the_same_name(place: Place, ended: list[int]) -> None:
    place.write("c1", ended, of="old")
    place.write("c1", ME, of="new")
    found = place.find("c1")
    assert found
    assert found["of"] == "new"
    assert len(place.left()) == 3
    place.write("c1", ME, of="newer")
    found = place.find("c1")
    assert found
    assert found["of"] == "newer"


def test_modes(place: Place) -> None:
    umask = os.umask(0)
    try:
        place.write("c1", ME)
    finally:
        os.umask(umask)
    (path,) = place.directory.glob("c1/*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert (place.directory / "c1").stat().st_mode & 0o777 == 0o755


def test_a_killed_writer_leaves_nothing_for_ever(place: Place, ended: list[int]) -> None:
    place.write("c1", ended)
    (path,) = place.directory.glob("c1/*.json")
    path.rename(f"{path}.tmp{ended[0]}")
    (place.directory / "c2").mkdir()
    place.collect()
    assert [path for path in place.left() if path.startswith("c1")] == []


@pytest.mark.parametrize("moment", ["write_whole", "symlink"])
def test_a_collection_at_any_moment_of_a_write(
    place: Place, ended: list[int], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Fifty creates at once: each collects while others write, be it the same name."""
    for name, former in (("new", None), ("again", ended)):
        if former:
            place.write(name, former)
        owner: Any = records if moment == "write_whole" else posix
        real: Callable[..., Any] = getattr(owner, moment)

        def collecting(*words: Any, real: Callable[..., Any] = real) -> Any:
            place.collect()
            result = real(*words)
            place.collect()
            return result

        with monkeypatch.context() as patched:
            patched.setattr(owner, moment, collecting)
            place.write(name, ME, of="new")
        place.begin(name)
        place.collect()
        found = place.find(name)
        assert found
        assert found["of"] == "new"
        assert len(list((place.directory / name).iterdir())) == 2


def test_many_at_once(place: Place) -> None:
    failed: list[BaseException] = []

    def create(number: int) -> None:
        try:
            for turn in range(10):
                name = f"c{number}-{turn % 2}"
                place.collect()
                place.write(name, ME, turn=turn)
                found = place.find(name)
                assert found
                assert found["turn"] == turn
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_directory_that_a_killed_create_left(place: Place) -> None:
    """It goes once nobody can be about to write in it."""
    for name, age in (("old", 3600), ("young", 0)):
        (place.directory / name).mkdir(parents=True)
        then = time.time() - age
        os.utime(place.directory / name, (then, then))
    place.collect()
    assert [path.name for path in place.directory.iterdir()] == ["young"]


def test_a_full_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "write_whole", full)
    with pytest.raises(OSError):
        place.write("c1", ME)
    assert not (place.directory / "c1").exists()


def test_hostile_files(place: Place, ended: list[int], tmp_path: Path) -> None:
    place.write("live", ME)
    (place.directory / "file").write_text("x")
    (place.directory / "loop").symlink_to("loop")
    (place.directory / "fifo").mkdir()
    os.mkfifo(place.directory / "fifo" / "aaaaaaaa-1-1.json")
    folder = place.directory / "odd"
    folder.mkdir()
    me = f"{ME[0]}-{ME[1]}"
    for name, text in {
        f"00000000-{me}.json": "[",
        f"00000001-{me}.json": "[]",
        f"00000002-{me}.json": '{"format":2}',
        f"00000003-{me}.json": "[" * 100_000,
        f"00000004-{me}.json": "\udce9",
        "name": "",
        "-": "",
        "a-b-c.json": '{"format":1}',
        "a-²-²": "",
        f"a-{'9' * 200}-{'9' * 40}.json": "",
        "\udce9": "",
    }.items():
        (folder / name).write_text(text, errors="surrogateescape")
    (folder / "aaaaaaaa-1-1.json").mkdir()
    assert place.every() == ["live"]
    place.collect()
    assert place.every() == ["live"]
    assert sorted(p.name for p in folder.iterdir()) == [
        *(f"0000000{n}-{me}.json" for n in range(5)),
        "aaaaaaaa-1-1.json",
    ]
    assert not (place.directory / "fifo").exists()


def test_no_directory(place: Place) -> None:
    place.collect()
    assert place.every() == []
    assert place.find("c1") is None


def test_a_record_that_cannot_be_kept(place: Place, tmp_path: Path) -> None:
    (tmp_path / "containers").write_text("")
    with pytest.raises(OSError):
        place.write("c1", ME)


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_start_times(pid: int) -> None:
    assert records.start_time(pid) == 0
    assert records.start_time(1) > 0 or os.getpid() == 1
