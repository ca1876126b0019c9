"""State files are read only if they can be trusted and understood."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpushim.errors import GpushimError
from gpushim.host import statefiles
from gpushim.oci.files import make_directories
from gpushim.places import Places
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    path.write_text('{"format":1,"x":[]}')
    path.chmod(0o644)
    return path


def test_a_good_one(state: Path) -> None:
    assert statefiles.read(str(state)) == {"format": 1, "x": []}


@pytest.mark.parametrize(
    "text", ["", "{", "1", "[]", "null", '"x"', "{}", '{"format":0}', '{"format":null}', '{"é":1}']
)
def test_no_state(state: Path, text: str) -> None:
    state.write_text(text)
    assert statefiles.read(str(state)) is None


def test_a_newer_format_is_refused_in_words(state: Path) -> None:
    state.write_text('{"format":2}')
    with pytest.raises(GpushimError, match="newer gpushim"):
        statefiles.read(str(state))


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o777])
def test_others_must_not_be_able_to_write_it(state: Path, mode: int) -> None:
    state.chmod(mode)
    assert statefiles.read(str(state)) is None


def test_only_regular_files(state: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(state)
    os.mkfifo(tmp_path / "fifo")
    for name in ("absent", "link", "fifo", "."):
        assert statefiles.read(str(tmp_path / name)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_strangers_file(state: Path) -> None:
    os.chown(state, 12345, 12345)
    assert statefiles.read(str(state)) is None


@given(content=st.binary(max_size=200))
def test_any_content(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    path.chmod(0o644)
    try:
        found = statefiles.read(str(path))
    except GpushimError:
        return
    assert found is None or found["format"] == 1


def test_directories_are_for_all_to_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        make_directories(str(tmp_path / "a/b"))
        make_directories(str(tmp_path / "a/b"))
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o755
    assert os.stat(tmp_path / "a/b").st_mode & 0o777 == 0o755


def test_root_has_the_installations_places() -> None:
    places = Places("/x")
    if os.geteuid() == 0:
        assert statefiles.own_places(places) is places
