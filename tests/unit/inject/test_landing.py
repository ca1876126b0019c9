"""Where the destination of a mount leads in an image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpushim.inject.landing import Landing
from gpushim.oci.rootfs import RootFs
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def image(tmp_path: Path) -> Path:
    for path in ("usr/lib", "opt/lib/deep"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "file").touch()
    for path, target in {
        "lib": "usr/lib",
        "abs": "/opt/lib",
        "up": "../../../../../../opt",
        "opt/lib/back": "../../usr",
        "opt/two": "/abs/deep",
        "dangling": "nowhere/x",
        "loop": "loop",
        "file-link": "file",
        "here": ".",
        "to-root": "/",
    }.items():
        (tmp_path / path).symlink_to(target)
    return tmp_path


@pytest.fixture
def landing(image: Path) -> Iterator[Landing]:
    with RootFs(str(image)) as root:
        found = Landing(root)
        yield found
        found.close()


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/", "/"),
        ("", "/"),
        ("/usr/lib/x", "/usr/lib/x"),
        ("usr//lib/./x/", "/usr/lib/x"),
        ("/lib", "/usr/lib"),
        ("/lib/x/y", "/usr/lib/x/y"),
        ("/abs/x", "/opt/lib/x"),
        ("/up/lib/x", "/opt/lib/x"),
        ("/opt/two/x", "/opt/lib/deep/x"),
        ("/abs/back/lib/x", "/usr/lib/x"),
        ("/abs/../x", "/opt/x"),
        ("/../../lib/x", "/usr/lib/x"),
        ("/dangling/y", "/nowhere/x/y"),
        ("/file/x", "/file/x"),
        ("/file-link/x", "/file/x"),
        ("/here/here/lib", "/usr/lib"),
        ("/to-root/lib", "/usr/lib"),
        ("/loop/x", "/loop/x"),
        ("/nul\0/x", "/nul\0/x"),
        ("/odd\ud800/x", "/odd\ud800/x"),
        ("/" + "n" * 300 + "/x", "/" + "n" * 300 + "/x"),
    ],
)
def test_links(landing: Landing, path: str, leads_to: str) -> None:
    assert landing.of(path) == leads_to
    assert landing.of(path) == leads_to  # from what it knows now


def test_it_does_not_leave_the_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").symlink_to("/etc")
    (tmp_path / "root/a").symlink_to(tmp_path / "outside")
    with RootFs(str(tmp_path / "root")) as root:
        landing = Landing(root)
        assert landing.of("/a/x") == f"{tmp_path}/outside/x"
        landing.close()


def test_what_is_mounted_hides_the_image(landing: Landing) -> None:
    assert landing.of("/opt/lib/back/x") == "/usr/x"
    landing.mount({"/abs": "bind", "/abs/back": "tmpfs", "/lib": "bind"})
    assert landing.mounts == {
        "/opt/lib": "bind",
        "/opt/lib/back": "tmpfs",
        "/usr/lib": "bind",
    }
    assert landing.of("/opt/lib/back/x") == "/opt/lib/back/x"
    assert landing.of("/opt/two/x") == "/opt/lib/deep/x"


def test_nothing_stays_open(image: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with RootFs(str(image)) as root:
        landing = Landing(root)
        for path in ("/abs/deep", "/lib/x", "/opt/two"):
            landing.of(path)
        landing.mount({"/opt/lib": "bind", "/opt": "bind"})
        landing.of("/opt/lib/deep")
        landing.close()
    assert os.listdir("/proc/self/fd") == before


@given(
    st.text(alphabet="abc./\0\ud800", max_size=30),
    st.dictionaries(st.text(alphabet="abc./", max_size=12), st.sampled_from(["bind", "tmpfs"])),
)
def test_any_path(
    tmp_path_factory: pytest.TempPathFactory, path: str, mounts: dict[str, str]
) -> None:
    directory = tmp_path_factory.getbasetemp() / "landing-any"
    if not directory.exists():
        (directory / "c").mkdir(parents=True)
        (directory / "a").symlink_to("b/../c")
        (directory / "c/b").symlink_to("../a")
    before = len(os.listdir("/proc/self/fd"))
    with RootFs(str(directory)) as root:
        landing = Landing(root)
        landing.mount(mounts)
        found = landing.of(path)
        assert found.startswith("/")
        assert landing.of(found) == found
        landing.close()
    assert len(os.listdir("/proc/self/fd")) == before
