"""Files that install makes, and the record of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gpushim.admin import files, installation
from gpushim.admin.installation import DockerPart, Installation
from gpushim.engines.docker import Former
from gpushim.errors import GpushimError
from gpushim.places import Places


def test_a_file_is_written_only_if_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert files.write_if_changed(str(path), b"x", 0o755)
    first = path.stat()
    assert first.st_mode & 0o7777 == 0o755
    assert not files.write_if_changed(str(path), b"x", 0o755)
    assert path.stat().st_ino == first.st_ino
    assert files.write_if_changed(str(path), b"y", 0o755)
    assert files.write_if_changed(str(path), b"y", 0o644)
    assert path.read_bytes() == b"y"
    assert path.stat().st_mode & 0o7777 == 0o644
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to(target)
    assert files.write_if_changed(str(link), b"x", 0o644)
    assert not link.is_symlink()
    assert files.link_if_changed(str(link), "/elsewhere")
    assert not files.link_if_changed(str(link), "/elsewhere")
    assert files.fingerprint(str(link)) == "-> /elsewhere"
    assert target.read_bytes() == b"x"


def test_what_can_not_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(GpushimError, match="does not exist"):
        files.write_if_changed(str(tmp_path / "none/f"), b"", 0o644)
    (tmp_path / "d").mkdir()
    with pytest.raises(GpushimError, match="it is a folder"):
        files.write_if_changed(str(tmp_path / "d"), b"", 0o644)
    with pytest.raises(GpushimError, match="it is a folder"):
        files.link_if_changed(str(tmp_path / "d"), "x")
    assert os.listdir(tmp_path) == ["d"]


def test_directories_have_their_mode_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        made = files.make_directory(str(tmp_path / "a/b"))
    finally:
        os.umask(old)
    assert made == [str(tmp_path / "a"), str(tmp_path / "a/b")]
    assert (tmp_path / "a/b").stat().st_mode & 0o7777 == 0o755
    assert files.make_directory(str(tmp_path / "a/b")) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(GpushimError, match="can't be made"):
        files.make_directory(str(tmp_path / "file/x"))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places(str(tmp_path))
    os.makedirs(places.lib)
    return places


def test_the_record_comes_back(places: Places) -> None:
    assert installation.read(places) is None
    record = Installation("1.0", "/v/bin/python", "/usr/bin/python3", "/code")
    record.files = {"/a": "digest", "/b": "-> x", "/c": ""}
    record.directories = ["/d"]
    former = Former(True, False, {"path": "/old"}, True, "nvidia")
    record.docker = [DockerPart("/link.json", "/real.json", "/pid", ["/backup"], former)]
    assert installation.write(places, record)
    assert not installation.write(places, record)
    again = installation.read(places)
    assert again is not None
    assert again.to_json() == record.to_json()
    part = again.docker_part("/real.json")
    assert part is not None
    assert part.former.default == "nvidia"
    assert again.docker_part("/link.json") is None
    assert json.loads(Path(places.installation).read_text())["format"] == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format": 1}', "damaged"),
        ('{"format": 2, "version": "9"}', r"newer gpushim \(9\)"),
    ],
)
def test_a_record_that_can_not_be_used(places: Places, content: str, words: str) -> None:
    Path(places.installation).write_text(content)
    with pytest.raises(GpushimError, match=words):
        installation.read(places)
