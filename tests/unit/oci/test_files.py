from __future__ import annotations

import hashlib
import os
import posix
from pathlib import Path
from typing import Any

import pytest
from gpushim.oci.files import digest_of, make_directories, read_small, real_path, write_whole
from hypothesis import given
from hypothesis import strategies as st


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 4095, 4096, 4097, 10_000):
        path.write_bytes(b"x" * size)
        assert read_small(str(path), size) == b"x" * size
        if size:
            with pytest.raises(OSError) as caught:
                read_small(str(path), size - 1)
            assert caught.value.errno == 27
    assert read_small("/proc/self/stat", 4096).startswith(str(os.getpid()).encode())


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_small(str(tmp_path / "fifo"), 10) == b""


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    descriptor = os.open(path, os.O_RDONLY)
    write_whole(str(path), b"new", 0o640, (5, 6))
    assert os.read(descriptor, 10) == b"old"
    os.close(descriptor)
    status = path.stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_gid) == (0o640, 5, 6)
    assert list(tmp_path.iterdir()) == [path]


def test_what_an_interrupted_write_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / f"file.tmp{os.getpid()}").symlink_to("/nowhere")
    write_whole(str(path), b"new", 0o600)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_write_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise OSError(28, "full")

    for name in ("write", "replace", "fchmod"):
        with monkeypatch.context() as patched:
            patched.setattr(posix, name, fail)
            with pytest.raises(OSError, match="full"):
                write_whole(str(path), b"new", 0o600)
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


def test_directories_are_made_as_far_as_missing(tmp_path: Path) -> None:
    make_directories(str(tmp_path / "a" / "b" / "c"))
    make_directories(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        make_directories(str(tmp_path / "file" / "x"))


def test_directories_that_another_makes_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty first creates at once."""
    real = os.mkdir

    def slower(path: str, mode: int) -> None:
        if os.path.isdir(os.path.dirname(path)):
            real(path, mode)
        real(path, mode)

    monkeypatch.setattr(posix, "mkdir", slower)
    make_directories(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()


parts = st.lists(st.sampled_from(["d", "link", "up", "file", "x", ".", ""]), max_size=5)


@given(parts)
def test_real_path_is_that_of_the_kernel(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    base = Path(os.path.realpath(tmp_path_factory.getbasetemp())) / "real"
    if not base.exists():
        (base / "d" / "d").mkdir(parents=True)
        (base / "link").symlink_to("d")
        (base / "d" / "up").symlink_to("..")
        (base / "d" / "file").touch()
    path = "/".join([str(base), *names])
    found = real_path(path)
    if os.path.exists(path):
        assert found == os.path.realpath(path)
    else:
        assert os.path.realpath(found) == os.path.realpath(path)


def test_the_real_path_of_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = os.path.realpath(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    assert real_path(f"{base}/link/x/y") == f"{base}/d/x/y"
    assert real_path("/nowhere/at/all") == "/nowhere/at/all"
    assert real_path("/") == "/"
    monkeypatch.chdir(tmp_path / "d")
    assert real_path("x") == f"{base}/d/x"
    assert real_path(".") == f"{base}/d"


def test_the_digest_is_blake2b() -> None:
    assert digest_of(b"abc") == hashlib.blake2b(b"abc", digest_size=32).hexdigest()
