"""Which roots are a container's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpushim.oci.rootfs import RootFs
from gpushim.oci.rootkind import escape, is_host_root, private

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
Mounting = Callable[..., None]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mounting]:
    done: list[str] = []

    def run(*args: str | Path) -> None:
        subprocess.run(["mount", "-n", *map(str, args)], check=True)
        done.append(str(args[-1]))

    yield run
    for path in reversed(done):
        subprocess.run(["umount", "-n", path], check=True)


def is_private(path: Path, identity: str = "c1", mountinfo: str = "/proc/self/mountinfo") -> bool:
    with RootFs(str(path)) as root:
        return private(root, identity, mountinfo)


def test_a_plain_directory_may_be_shared(tmp_path: Path) -> None:
    assert not is_private(tmp_path)


@needs_root
def test_a_mount_is_the_container_s_own(tmp_path: Path, mount: Mounting) -> None:
    mount("-t", "tmpfs", "none", tmp_path)
    assert is_private(tmp_path, mountinfo="/dev/null")
    (tmp_path / "below").mkdir()
    assert not is_private(tmp_path / "below")


@needs_root
@pytest.mark.parametrize("name", ["root", "ro ot\\x\ty"])
def test_so_is_a_bind_mount(tmp_path: Path, mount: Mounting, name: str) -> None:
    source, target = tmp_path / "source", tmp_path / name
    source.mkdir()
    target.mkdir()
    assert not is_private(target)
    mount("--bind", source, target)
    assert is_private(target)
    assert not is_private(source)
    link = tmp_path / "link"
    link.symlink_to(name)
    assert is_private(link)


@needs_root
def test_so_is_what_lies_on_an_overlay(tmp_path: Path, mount: Mounting) -> None:
    mount("-t", "tmpfs", "none", tmp_path)
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    (tmp_path / "lower/root").mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    mount("-t", "overlay", "-o", options, "overlay", tmp_path / "merged")
    assert is_private(tmp_path / "merged", mountinfo="/dev/null")
    assert is_private(tmp_path / "merged/root")


@pytest.mark.parametrize(
    ("driver", "directory"), [("vfs", "dir"), ("btrfs", "subvolumes"), ("zfs", "graph")]
)
def test_docker_s_record_names_the_layer(tmp_path: Path, driver: str, directory: str) -> None:
    layer = tmp_path / driver / directory / "abc"
    record = tmp_path / "image" / driver / "layerdb/mounts/c1/mount-id"
    layer.mkdir(parents=True)
    assert not is_private(layer)
    record.parent.mkdir(parents=True)
    record.write_text("abc")
    assert is_private(layer)
    assert not is_private(layer, "c2")
    for identity in ("", ".", "..", "../mounts/c1"):
        assert not is_private(layer, identity)
    record.write_text("abd")
    assert not is_private(layer)


def test_a_subvolume_counts_only_as_a_mount(tmp_path: Path) -> None:
    """One that looks like a mount to stat(2) is shared by all who use the directory."""
    text = f"1 1 0:5 / {tmp_path} rw - btrfs /dev/x rw\n"
    (tmp_path / "mountinfo").write_text(text)
    assert is_private(tmp_path, mountinfo=str(tmp_path / "mountinfo"))
    (tmp_path / "mountinfo").write_text(text.replace(str(tmp_path), str(tmp_path) + "x"))
    assert not is_private(tmp_path, mountinfo=str(tmp_path / "mountinfo"))


def test_odd_lines_of_mountinfo_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(f"{tmp_path}\n1 2 3\n{' x' * 20} {tmp_path}\n")
    assert not is_private(tmp_path, mountinfo=str(tmp_path / "mountinfo"))


def test_escape() -> None:
    assert escape("/a b\\c\td\ne\udcff") == b"/a\\040b\\134c\\011d\\012e\xff"


def test_the_host_s_root(tmp_path: Path) -> None:
    with RootFs("/") as root:
        assert is_host_root(root)
    with RootFs(str(tmp_path)) as root:
        assert not is_host_root(root)
