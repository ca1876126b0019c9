"""The directory of ours in a container's /dev."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpushim.errors import GpushimError
from gpushim.inject.scratch import Scratch
from gpushim.oci.rootfs import RootFs


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RootFs]:
    (tmp_path / "root/dev").mkdir(parents=True)
    with RootFs(str(tmp_path / "root")) as opened:
        yield opened


def test_it_is_gone_with_all_that_is_in_it(root: RootFs) -> None:
    scratch = Scratch(root, "/dev")
    place = Path(scratch.path)
    (place / "a/b").mkdir(parents=True)
    (place / "a/b/file").write_text("x")
    (place / "c").touch()
    scratch.remove()
    assert os.listdir(f"{root.path}/dev") == []


def test_each_has_a_name_of_its_own(root: RootFs) -> None:
    """Nobody can have mounted a volume exactly there."""
    names = {Scratch(root, "/dev").path for _ in range(10)}
    assert len(names) == 10
    assert all(Path(name).parent == Path(root.path, "dev") for name in names)


def test_links_are_not_followed(root: RootFs, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    kept = tmp_path / "volume/kept"
    kept.touch()
    scratch = Scratch(root, "/dev")
    Path(scratch.path, "link").symlink_to(kept.parent)
    scratch.remove()
    assert kept.exists()
    assert os.listdir(f"{root.path}/dev") == []


def test_a_link_in_its_place(root: RootFs, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    kept = tmp_path / "volume/kept"
    kept.touch()
    scratch = Scratch(root, "/dev")
    os.rmdir(scratch.path)
    os.symlink(kept.parent, scratch.path)
    with pytest.raises(OSError):
        scratch.remove()
    assert kept.exists()


@pytest.mark.parametrize("inner", ["", "/inner"])
def test_a_mount_in_it_is_left_as_it_is(root: RootFs, inner: str) -> None:
    """Of another file system than the directory above."""
    scratch = Scratch(root, "/dev")
    place = Path(scratch.path + inner)
    place.mkdir(exist_ok=True)
    script = (
        f'mount -n -t tmpfs x "{place}" && touch "{place}/kept" && '
        f'{{ $PYTHON -c "$CODE" || true; }} && ls "{place}"'
    )
    code = (
        "from gpushim.inject.scratch import Scratch\n"
        "scratch = object.__new__(Scratch)\n"
        f"scratch.path, scratch.device = {scratch.path!r}, {scratch.device}\n"
        "scratch.remove()\n"
    )
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script],
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "CODE": code,
            "PYTHONPATH": str(Path(__file__).parents[3] / "shim"),
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout == "kept\n", done.stderr


def test_where_there_is_no_directory(root: RootFs, tmp_path: Path) -> None:
    os.rmdir(f"{root.path}/dev")
    with pytest.raises(GpushimError, match="/dev is no folder"):
        Scratch(root, "/dev")
    (tmp_path / "volume").mkdir()
    os.symlink(tmp_path / "volume", f"{root.path}/dev")
    with pytest.raises(GpushimError):
        Scratch(root, "/dev")
    assert os.listdir(tmp_path / "volume") == []
