"""Engines' configuration files: read with care, written whole, never lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpushim.engines import jsonfile
from gpushim.engines.jsonfile import FileChange
from gpushim.errors import GpushimError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a":1,}', ["not valid JSON", "line 1, column"]),
        (b'{"a":1}{"b":2}', ["not valid JSON", "line 1, column 8"]),
        (b'{"a":1}\n}', ["not valid JSON", "line 2, column 1"]),
        (b'// note\n{"a":1}', ["not valid JSON", "line 1, column 1"]),
        (b"<html>\n<body>", ["not valid JSON", "line 1, column 1"]),
        (b'{"a": NaN}', ["NaN", "not JSON"]),
        (b"[1]", ["no JSON object"]),
        (b"null", ["no JSON object"]),
        (b'"x"', ["no JSON object"]),
        (b"[" * 100000, ["nested too deeply"]),
        (b'{"a":' + b"9" * 5000 + b"}", ["can't be read", "left as it is"]),
        ('{"a": 1}'.encode("utf-16"), ["UTF-16"]),
        (b"\xfe\xff" + '{"a": 1}'.encode("utf-16-be"), ["UTF-16"]),
        ('{"a": 1}'.encode("utf-16-le"), ["UTF-16"]),
        (b'{\n"a": "\xe4"}', ["not UTF-8", "line 2"]),
    ],
)
def test_what_is_refused(tmp_path: Path, content: bytes, words: list[str]) -> None:
    """B59, B60: the file is named, with line and column, and stays as it was."""
    path = tmp_path / "daemon.json"
    path.write_bytes(content)
    with pytest.raises(GpushimError) as caught:
        jsonfile.read(str(path))
    for word in (str(path), *words):
        assert word in caught.value.sentence
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [None, b"", b" \n"])
def test_nothing_there(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "daemon.json"
    if content is not None:
        path.write_bytes(content)
    file = jsonfile.read(str(path))
    assert (file.content, file.text, file.data) == (content, "{}\n", {})


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    """B60"""
    path = tmp_path / "daemon.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    file = jsonfile.read(str(path))
    assert (file.text, file.data, file.has_mark) == ('{"a": 1}', {"a": 1}, True)


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(GpushimError, match="not a regular file"):
        jsonfile.read(str(tmp_path / "fifo"))
    with pytest.raises(GpushimError, match="not a regular file"):
        jsonfile.read(str(tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(GpushimError, match="symbolic link"):
        jsonfile.read(str(tmp_path / "loop"))


@given(st.binary(max_size=40))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    path = f"/tmp/gpushim-test-{os.getpid()}.json"
    try:
        Path(path).write_bytes(content)
        jsonfile.read(path)
    except GpushimError:
        pass
    finally:
        os.unlink(path)


def test_a_change_keeps_mode_owner_and_link(tmp_path: Path) -> None:
    target = tmp_path / "real" / "d.json"
    target.parent.mkdir()
    target.write_bytes(b"{}")
    target.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(target, 12, 34)
    owner = target.stat().st_uid, target.stat().st_gid
    link = tmp_path / "daemon.json"
    link.symlink_to("real/d.json")
    file = jsonfile.read(str(link))
    backup = Path(FileChange(file.path, b"{}", b"new").apply(backup=True))
    assert link.is_symlink()
    for path, content in ((target, b"new"), (backup, b"{}")):
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o7777 == 0o640
        assert (path.stat().st_uid, path.stat().st_gid) == owner
    assert backup.parent == target.parent
    assert backup.name.startswith("d.json.bak-gpushim-2")
    assert sorted(target.parent.iterdir()) == sorted([target, backup])


def test_each_backup_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(b"0")
    contents = [b"1", b"2", b"3"]
    backups = []
    for content in contents:
        backups.append(FileChange(str(path), path.read_bytes(), content).apply(backup=True))
    assert [Path(backup).read_bytes() for backup in backups] == [b"0", b"1", b"2"]


def test_new_and_removed_files(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    assert FileChange(str(path), None, b"{}").apply(backup=True) == ""
    assert path.stat().st_mode & 0o7777 == 0o644
    assert FileChange(str(path), b"{}", None).apply(backup=False) == ""
    assert not path.exists()


def test_no_change_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(b"x")
    before = path.stat()
    assert FileChange(str(path), b"x", b"x").apply(backup=True) == ""
    assert path.stat().st_ino == before.st_ino
    assert list(tmp_path.iterdir()) == [path]


def test_an_edit_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(b"theirs")
    with pytest.raises(GpushimError, match="changed by somebody else"):
        FileChange(str(path), b"before", b"after").apply(backup=True)
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_read_only_file_system(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    subprocess.run(["mount", "-n", "-t", "tmpfs", "none", str(tmp_path)], check=True)
    try:
        path.write_bytes(b"{}")
        subprocess.run(["mount", "-n", "-o", "remount,ro", str(tmp_path)], check=True)
        with pytest.raises(GpushimError, match="the file system is read-only"):
            FileChange(str(path), b"{}", b"x").apply(backup=True)
        assert path.read_bytes() == b"{}"
        assert list(tmp_path.iterdir()) == [path]
    finally:
        subprocess.run(["umount", "-n", str(tmp_path)], check=True)


def test_diff() -> None:
    change = FileChange("/d.json", b'{\n  "a": 1\n}', b'{\n  "a": 2\n}')
    assert change.diff() == (
        "--- /d.json\n+++ /d.json\n@@ -1,3 +1,3 @@\n {\n"
        '-  "a": 1\n+  "a": 2\n }\n\\ No newline at end of file\n'
    )
    assert FileChange("/d.json", None, b"{}\n").diff().startswith("--- /dev/null\n+++ /d.json\n")
    assert FileChange("/d.json", b"x", b"x").diff() == ""
