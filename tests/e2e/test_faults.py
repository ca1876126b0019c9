"""Broken state, disks, interpreters: who asks for no GPU starts, who asks is told the reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import Bundle, Runtime, processes
from tests.harness.attempt import Attempts
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e


@pytest.fixture
def here(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
) -> Iterator[Attempts]:
    machine = make_machine()
    yield Attempts(machine, runtime_of(machine), make_bundle)
    processes.unmount_below(machine.installed.root)


def read_only(path: str) -> None:
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)


def writable(path: str) -> None:
    subprocess.run(["umount", path], check=True)


def full_tmpfs(path: str) -> None:
    """Puts a tmpfs with the same content there that has no room left."""
    saved = path + ".saved"
    shutil.copytree(path, saved, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "full", path], check=True)
    shutil.copytree(saved, path, symlinks=True, dirs_exist_ok=True)
    with open(f"{path}/filler", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass


def test_state_directories_that_are_gone(here: Attempts) -> None:
    places = here.machine.places
    for path in (places.run, places.log, places.driver_trees):
        shutil.rmtree(path)
        assert here.others_start("void", "")
        assert here.granted()
    shutil.rmtree(places.lib)
    assert here.others_start("void", "")
    assert places.installation in here.refused()
    assert "gpushimctl install" in here.refused()


def test_a_full_disk_for_state(here: Attempts) -> None:
    places = here.machine.places
    full_tmpfs(places.run)
    assert here.others_start("void")
    text = here.refused()
    assert places.leases in text
    assert "the file system is full" in text
    assert "filler" in os.listdir(places.run)
    assert not list(Path(places.run).glob("**/*.tmp*"))
    # The same where the inventory can't be kept, either.
    os.unlink(places.snapshot)
    with open(f"{places.run}/filler2", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    assert here.others_start("void")
    assert "the file system is full" in here.refused()


def test_a_full_disk_under_the_bundle(here: Attempts) -> None:
    """None of the three files that are written beside each other is left half."""
    bundle = here.bundle()
    tmpfs = here.machine.installed.root / "small"
    tmpfs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "small", tmpfs], check=True)
    for room in range(0, 60, 4):
        for path in tmpfs.iterdir():
            path.unlink()
        bundle.config["root"]["path"] = str(bundle.rootfs)
        original = json.dumps(bundle.config).encode()
        (tmpfs / "config.json").write_bytes(original)
        (tmpfs / "filler").write_bytes(b"x" * (room << 10))
        before = sorted(os.listdir(tmpfs))
        result = here.runtime.call("create", "--bundle", tmpfs, f"small{room}")
        if result.status == 0:
            here.runtime.delete(f"small{room}", "--force")
            continue
        assert "the file system is full" in result.stderr
        assert (tmpfs / "config.json").read_bytes() == original
        assert sorted(os.listdir(tmpfs)) == before
    assert "full" in result.stderr


def test_read_only_state(here: Attempts) -> None:
    places = here.machine.places
    read_only(places.lib)
    assert here.others_start("void")
    assert here.granted()
    os.unlink(places.snapshot)
    assert here.granted()
    read_only(places.run)
    assert here.others_start("void")
    text = here.refused()
    assert "the file system is read-only" in text
    assert places.leases in text
    writable(places.run)
    assert here.granted()


def test_a_log_that_cannot_be_written(here: Attempts) -> None:
    places = here.machine.places
    shutil.rmtree(places.log)
    Path(places.log).write_text("a file where the directory should be")
    assert here.granted()
    os.unlink(places.log)
    os.makedirs(places.default_log_file)
    assert here.granted()
    shutil.rmtree(places.log)
    os.makedirs(places.log)
    os.mkfifo(places.default_log_file)
    assert here.granted()
    assert here.others_start("void")
    os.unlink(places.default_log_file)
    os.symlink("/dev/full", places.default_log_file)
    assert here.granted()


def test_a_directory_of_records_that_cannot_be_used(here: Attempts) -> None:
    places = here.machine.places
    shutil.rmtree(places.containers)
    Path(places.containers).write_text("")
    assert here.others_start("void")
    assert places.containers in here.refused()
    os.unlink(places.containers)
    os.symlink("/nowhere/at/all", places.containers)
    assert here.others_start("void")
    assert places.containers in here.refused()


def test_a_damaged_snapshot(here: Attempts) -> None:
    """It is found out anew, and the file is replaced by a whole one."""
    path = Path(here.machine.places.snapshot)
    whole = path.read_bytes()
    for content in (
        *(b"", b"{", b"\x00" * 100, b"[]", b"null", b'{"format":1}', b"\xff\xfe{}"),
        whole[: len(whole) // 2],
        whole[:-1],
    ):
        path.write_bytes(content)
        assert here.others_start("void")
        assert here.granted()
        assert json.loads(path.read_text())["format"] == 1


def test_a_snapshot_that_is_not_to_be_trusted(here: Attempts) -> None:
    """Somebody else's, one that others may write, a link, a directory, a FIFO."""
    path = Path(here.machine.places.snapshot)
    lie = path.read_text().replace(here.machine.host.gpus[1].uuid, "GPU-lie")
    for number in range(4):
        path.unlink(missing_ok=True)
        if number == 0:
            path.write_text(lie)
            os.chown(path, 1234, 0)
        elif number == 1:
            path.write_text(lie)
            path.chmod(0o666)
        elif number == 2:
            elsewhere = path.with_name("elsewhere")
            elsewhere.write_text(lie)
            path.symlink_to(elsewhere)
        else:
            os.mkfifo(path)
        assert here.granted()
        assert "GPU-lie" not in path.read_text()
        assert path.is_file()
        assert not path.is_symlink()
    path.unlink()
    path.mkdir()
    assert here.others_start("void")
    assert here.granted()


def test_a_snapshot_of_a_newer_version(here: Attempts) -> None:
    path = Path(here.machine.places.snapshot)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "format": 99}))
    path.chmod(0o644)
    assert here.others_start("void")
    text = here.refused()
    assert "newer gpushim" in text
    assert str(path) in text
    assert json.loads(path.read_text())["format"] == 99


def test_a_bundle_that_a_newer_version_wrote(here: Attempts) -> None:
    bundle = here.bundle()
    here.runtime.run(bundle).check()
    note = bundle.path / "config.json.gpushim"
    note.write_text(json.dumps({**json.loads(note.read_text()), "format": 99}))
    result = here.runtime.run(bundle)
    assert result.status == 1
    assert "newer gpushim" in result.stderr
