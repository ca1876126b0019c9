"""A bundle's original is never lost, whatever is killed, edited or run again."""

from __future__ import annotations

import json
import os
import posix
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpushim.errors import GpushimError
from gpushim.oci import files
from gpushim.oci.bundle import Bundle, checksum, load, restore_original, store

ORIGINAL = '{ "process" : {"env":["NVIDIA_VISIBLE_DEVICES=0"]}, "x":1.50 }\n'
WRITE = "gpushim.oci.bundle.write_whole"
FIRST, SECOND = '{"first":1}', '{"second":2}'


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the product catches it."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bundle" / "config.json"
    path.parent.mkdir()
    path.write_text(ORIGINAL)
    return path


def again(config: Path) -> Bundle:
    return load(str(config.parent), "config.json")


def test_what_is_read(config: Path) -> None:
    bundle = again(config)
    assert bundle.text == ORIGINAL
    assert bundle.written is None
    assert bundle.directory == str(config.parent)
    assert bundle.section("process", "env") == ["NVIDIA_VISIBLE_DEVICES=0"]
    assert bundle.section("x", "y") is None
    assert bundle.section("process", "env", "z") is None
    assert bundle.items("process") == []
    assert bundle.items("no", "where") == []


def test_reading_leaves_nothing_behind(config: Path) -> None:
    again(config)
    assert [path.name for path in config.parent.iterdir()] == ["config.json"]


def test_own_output_leads_back_to_the_original(config: Path) -> None:
    """B05: a bundle that is run again starts from what it was."""
    store(again(config), FIRST, {"grant": [1]})
    assert config.read_text() == FIRST
    bundle = again(config)
    assert bundle.text == ORIGINAL
    assert bundle.written is not None
    assert bundle.written["grant"] == [1]
    store(bundle, SECOND, {})
    assert config.read_text() == SECOND
    assert again(config).text == ORIGINAL


def test_an_edited_output_is_a_new_original(config: Path) -> None:
    store(again(config), FIRST, {})
    config.write_text('{"edited":1}')
    bundle = again(config)
    assert (bundle.text, bundle.written) == ('{"edited":1}', None)
    store(bundle, SECOND, {})
    assert again(config).text == '{"edited":1}'


def test_a_replaced_bundle_is_a_new_original(config: Path) -> None:
    """An engine writes config.json anew for each start."""
    store(again(config), FIRST, {})
    config.write_text(ORIGINAL.replace("0", "1"))
    assert again(config).text == ORIGINAL.replace("0", "1")


@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize("survives", range(4))
def test_a_kill_between_any_two_writes(
    config: Path, monkeypatch: pytest.MonkeyPatch, runs: int, survives: int
) -> None:
    """config.json is the original or a complete result, and the original is still known."""
    outputs = [FIRST, SECOND, FIRST]
    for output in outputs[: runs - 1]:
        store(again(config), output, {})
    writes = 0
    real = files.write_whole

    def write(*arguments: Any) -> None:
        nonlocal writes
        if writes == survives:
            raise Killed
        writes += 1
        real(*arguments)

    monkeypatch.setattr(WRITE, write)
    try:
        store(again(config), outputs[runs - 1], {})
    except Killed:
        pass
    monkeypatch.setattr(WRITE, real)
    assert config.read_text() in (ORIGINAL, *outputs[:runs])
    bundle = again(config)
    assert bundle.text == ORIGINAL
    store(bundle, SECOND, {})
    assert config.read_text() == SECOND
    assert again(config).text == ORIGINAL


@pytest.mark.parametrize("survives", range(3))
def test_a_kill_while_the_original_is_put_back(
    config: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    store(again(config), FIRST, {})
    steps = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal steps
            if steps == survives:
                raise Killed
            steps += 1
            return real(*arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(WRITE, counted(files.write_whole))
        patched.setattr(posix, "unlink", counted(os.unlink))
        with pytest.raises(Killed):
            restore_original(again(config))
    assert config.read_text() in (ORIGINAL, FIRST)
    assert again(config).text == ORIGINAL


def test_the_original_is_put_back(config: Path) -> None:
    restore_original(again(config))  # nothing to do
    store(again(config), FIRST, {})
    restore_original(again(config))
    assert config.read_text() == ORIGINAL
    assert [path.name for path in config.parent.iterdir()] == ["config.json"]


def test_mode_and_owner_stay(config: Path) -> None:
    config.chmod(0o640)
    os.chown(config, 12, 34)
    umask = os.umask(0o077)
    try:
        store(again(config), FIRST, {})
    finally:
        os.umask(umask)
    status = config.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o640, 12, 34)
    for ending in (".gpushim", ".gpushim-orig"):
        assert Path(f"{config}{ending}").stat().st_mode & 0o777 == 0o600
    restore_original(again(config))
    status = config.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o640, 12, 34)


@pytest.mark.parametrize("directory", ["bundle", "bundle/", "./bundle", "link", "x/../bundle", ""])
def test_other_spellings_of_the_same_bundle(
    config: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """B23, B24: relative, with a slash at the end, through a link."""
    (config.parent.parent / "link").symlink_to("bundle")
    (config.parent.parent / "x").mkdir()
    monkeypatch.chdir(config.parent if directory == "" else config.parent.parent)
    bundle = load(directory or ".", "config.json")
    assert bundle.directory == str(config.parent)
    assert bundle.config_path == str(config)
    store(bundle, FIRST, {})
    assert again(config).text == ORIGINAL


def test_a_spec_by_an_absolute_path(config: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    bundle = load(str(tmp_path / "other"), str(config))
    assert bundle.directory == str(tmp_path / "other")
    store(bundle, FIRST, {})
    assert config.read_text() == FIRST


def test_a_linked_spec_stays_a_link(config: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "config.json"
    link.symlink_to("../bundle/config.json")
    store(load(str(tmp_path / "other"), "config.json"), FIRST, {})
    assert link.is_symlink()
    assert config.read_text() == FIRST
    assert load(str(tmp_path / "other"), "config.json").text == ORIGINAL


def test_nothing_is_written_where_nothing_changes(config: Path) -> None:
    store(again(config), FIRST, {})
    before = config.stat()
    store(again(config), FIRST, {})
    after = config.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_bytes_that_are_no_text_survive(config: Path) -> None:
    """B16."""
    data = b'{"process":{"env":["A=\xe9","B=\\ud800"]}}'
    config.write_bytes(data)
    bundle = again(config)
    store(bundle, bundle.text + " ", {})
    assert config.read_bytes() == data + b" "
    restore_original(again(config))
    assert config.read_bytes() == data


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a":1,"a":2}', "\ufeff{}", "\0"])
def test_what_is_no_spec(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(GpushimError) as caught:
        again(config)
    assert str(config) in str(caught.value)


@pytest.mark.parametrize("note", ["", "[]", "{", '{"format":1}', '{"checksum":5}', "\udce9"])
def test_a_damaged_note_is_none(config: Path, note: str) -> None:
    store(again(config), FIRST, {})
    Path(f"{config}.gpushim").write_text(note, errors="surrogateescape")
    assert again(config).written is None


def test_a_note_of_a_newer_gpushim_is_refused(config: Path) -> None:
    store(again(config), FIRST, {})
    path = Path(f"{config}.gpushim")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(GpushimError, match="newer gpushim"):
        again(config)


def test_unreadable_bundles_are_os_errors(tmp_path: Path) -> None:
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / "config.json")
    (tmp_path / "directory" / "config.json").mkdir(parents=True)
    for name in ("missing", "directory"):
        with pytest.raises(OSError):
            load(str(tmp_path / name), "config.json")
    with pytest.raises(GpushimError):
        load(str(tmp_path / "fifo"), "config.json")  # and it does not hang


def test_a_bundle_that_takes_no_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WRITE, full)
    with pytest.raises(GpushimError, match="full"):
        store(again(config), FIRST, {})
    assert config.read_text() == ORIGINAL


def test_the_checksum_has_length_and_content() -> None:
    assert checksum(b"123456789") == "9-cbf43926"  # CRC-32's own check value


def test_what_a_killed_create_left_is_removed(tmp_path: Path) -> None:
    """Only by name and only of processes that are gone."""
    (tmp_path / "config.json").write_text(ORIGINAL)
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = [f"config.json.{form}{gone.pid}" for form in ("tmp", "gpushim.tmp", "gpushim-orig.")]
    kept = [
        f"config.json.tmp{os.getpid()}",
        f"config.jsonx.tmp{gone.pid}",
        f"other.tmp{gone.pid}",
        "config.json.tmpx",
        f"config.json.tmp{'9' * 100}x",
    ]
    for name in left + kept:
        (tmp_path / name).write_text("")
    bundle = load(str(tmp_path), "config.json")
    store(bundle, bundle.text, {})
    names = {path.name for path in tmp_path.iterdir()}
    assert not names & set(left)
    assert names >= set(kept)


@pytest.mark.parametrize("damage", ["", "{", "no JSON"])
def test_an_original_that_is_damaged(config: Path, damage: str) -> None:
    """What gpushim wrote must not pass for the original, or former GPUs would come back."""
    store(again(config), FIRST, {})
    Path(f"{config}.gpushim-orig").write_text(damage)
    with pytest.raises(GpushimError, match="its original cannot be read"):
        again(config)
