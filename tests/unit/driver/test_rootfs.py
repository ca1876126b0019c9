"""Nothing in an image leads out of it, hangs, or is taken for what it is not."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpushim.oci.rootentry import RootFsError
from gpushim.oci.rootfs import RootFs
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RootFs]:
    (tmp_path / "root").mkdir()
    with RootFs(str(tmp_path / "root")) as opened:
        yield opened


def inside(root: RootFs, path: str) -> Path:
    return Path(root.path + path)


def test_reading(root: RootFs) -> None:
    inside(root, "/etc").mkdir()
    inside(root, "/etc/x").write_bytes(b"content")
    assert root.read_regular("/etc/x", 7) == b"content"
    assert root.read_regular("/etc/absent", 7) is None
    assert root.read_regular("/absent/x", 7) is None
    with pytest.raises(RootFsError, match="larger than 6 bytes"):
        root.read_regular("/etc/x", 6)


def test_only_regular_files_are_read(root: RootFs) -> None:
    """A FIFO as the loader cache hung a first version for good."""
    os.mkfifo(inside(root, "/fifo"))
    inside(root, "/directory").mkdir()
    inside(root, "/real").write_bytes(b"x")
    inside(root, "/link").symlink_to("real")
    if os.geteuid() == 0:
        os.mknod(inside(root, "/device"), stat.S_IFCHR | 0o666, os.makedev(1, 5))
    started = time.monotonic()
    for name in os.listdir(root.path):
        if name != "real":
            with pytest.raises(RootFsError, match=f"/{name} in the container"):
                root.read_regular(f"/{name}", 100)
            with pytest.raises(RootFsError):
                root.replace(f"/{name}", b"new")
    assert inside(root, "/link").is_symlink()
    assert inside(root, "/real").read_bytes() == b"x"
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("target", ["/etc", "../outside", "outside", ".", ""])
def test_no_link_is_followed(root: RootFs, tmp_path: Path, target: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"secret")
    inside(root, "/etc").symlink_to(target or str(outside))
    calls: list[Callable[[], object]] = [
        lambda: root.read_regular("/etc/x", 100),
        lambda: root.replace("/etc/x", b"new"),
        lambda: root.make_directory("/etc/new"),
        lambda: root.listdir("/etc"),
        lambda: root.exists("/etc/x"),
    ]
    for call in calls:
        with pytest.raises(RootFsError, match="symbolic link"):
            call()
    assert root.exists("/etc")
    assert not root.is_directory("/etc")
    assert os.listdir(outside) == ["x"]


@pytest.mark.parametrize("path", ["/../etc/x", "/etc/../../x", "..", "/"])
def test_paths_that_lead_elsewhere_are_refused(root: RootFs, path: str) -> None:
    with pytest.raises(RootFsError):
        root.read_regular(path, 10)
    with pytest.raises(RootFsError):
        root.replace(path, b"")


def test_replacing_keeps_owner_and_mode(root: RootFs) -> None:
    file = inside(root, "/x")
    file.write_bytes(b"old")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 5678)
    before = file.stat()
    hard_link = inside(root, "/other")
    os.link(file, hard_link)
    root.replace("/x", b"new")
    after = file.stat()
    assert file.read_bytes() == b"new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert hard_link.read_bytes() == b"old", "a file that another root shares was written to"
    assert sorted(os.listdir(root.path)) == ["other", "x"]


def test_new_files_belong_to_their_directory_s_owner(root: RootFs) -> None:
    """In a user namespace the owner of everything is not the caller (B15)."""
    if os.geteuid() == 0:
        os.chown(root.path, 100000, 100000)
    previous = os.umask(0o077)
    try:
        root.make_directory("/etc/ld.so.conf.d")
        root.make_directory("/etc/ld.so.conf.d")
        root.replace("/etc/ld.so.conf.d/x", b"new")
    finally:
        os.umask(previous)
    owner = os.stat(root.path)
    for path, mode in (
        ("/etc", 0o755),
        ("/etc/ld.so.conf.d", 0o755),
        ("/etc/ld.so.conf.d/x", 0o644),
    ):
        found = inside(root, path).stat()
        assert stat.S_IMODE(found.st_mode) == mode
        assert (found.st_uid, found.st_gid) == (owner.st_uid, owner.st_gid)


def test_a_failed_write_leaves_nothing(root: RootFs) -> None:
    inside(root, "/x").mkdir()
    with pytest.raises(RootFsError):
        root.replace("/x", b"new")
    with pytest.raises(RootFsError, match="folder does not exist"):
        root.replace("/absent/x", b"new")
    inside(root, "/file").write_bytes(b"")
    with pytest.raises(RootFsError):
        root.make_directory("/file/directory")
    assert sorted(os.listdir(root.path)) == ["file", "x"]


def test_listing(root: RootFs) -> None:
    for name in ("b", "a"):
        inside(root, f"/{name}").mkdir()
    assert (root.listdir("/"), root.listdir("/absent")) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("links", "path", "expected"),
    [
        ({}, "/usr/bin/x", "usr/bin/x"),
        ({"bin": "usr/bin"}, "/bin/x", "usr/bin/x"),
        ({"bin": "/usr/bin"}, "/bin/x", "usr/bin/x"),
        ({"bin": "../../../usr/bin"}, "/bin/x", "usr/bin/x"),
        ({"usr/bin/x": "../lib/y"}, "/usr/bin/x", "usr/lib/y"),
        ({"usr/bin/x": "/absent/y/z"}, "/usr/bin/x", "absent/y/z"),
        ({"usr/bin/x": "/etc/alternatives/x", "etc/alternatives/x": "/usr/lib/x"}, "/usr/bin/x",
         "usr/lib/x"),
        ({"bin": "/"}, "/bin/../../x", "x"),
        ({}, "/../..", ""),
    ],
)  # fmt: skip
def test_links_are_resolved_inside(
    root: RootFs, links: dict[str, str], path: str, expected: str
) -> None:
    for name in ("usr/bin", "usr/lib", "etc/alternatives"):
        inside(root, f"/{name}").mkdir(parents=True, exist_ok=True)
    for name, target in links.items():
        inside(root, f"/{name}").symlink_to(target)
    assert "/".join(root.resolve_in_root(path)) == expected


def test_links_without_end_are_refused(root: RootFs) -> None:
    inside(root, "/a").symlink_to("b")
    inside(root, "/b").symlink_to("a")
    inside(root, "/deep").symlink_to("deep/x")
    for path in ("/a", "/deep"):
        with pytest.raises(RootFsError, match="too many"):
            root.resolve_in_root(path)


def test_a_file_on_the_way_ends_it(root: RootFs) -> None:
    inside(root, "/file").write_bytes(b"")
    assert root.resolve_in_root("/file/x/y") == ["file", "x", "y"]


@given(st.lists(st.sampled_from(["a", "b", "..", "l", "/", "."]), max_size=12))
def test_nothing_leads_out(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    base = tmp_path_factory.mktemp("nothing")
    (base / "a/b").mkdir(parents=True)
    (base / "a/l").symlink_to("../../..")
    (base / "l").symlink_to("/a/../../b")
    with RootFs(str(base)) as root:
        found = root.resolve_in_root("/".join(parts))
    assert ".." not in found
    assert os.path.realpath(base.joinpath(*found)).startswith(str(base))


def test_no_descriptor_is_left(root: RootFs) -> None:
    """Directories stay open until the root is closed, each once."""

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    inside(root, "/link").symlink_to("x")
    inside(root, "/d").mkdir()
    before = count()
    with RootFs(root.path) as other:
        open_now = []
        for _ in range(5):
            other.read_regular("/d/x", 1)
            other.replace("/d/y", b"1")
            other.make_directory("/d/e/f")
            other.listdir("/d")
            other.resolve_in_root("/link/d/e")
            with pytest.raises(RootFsError):
                other.read_regular("/link/x", 1)
            open_now.append(count())
        assert open_now[1:] == open_now[1:2] * 4
    assert count() == before


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RootFsError, match="does not exist"):
        RootFs(str(tmp_path / "absent"))
