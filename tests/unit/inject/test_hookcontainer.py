"""The createContainer hook: its arguments, what it refuses, and when a root may be written to."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpushim.errors import GpushimError
from gpushim.inject.hookcontainer import own_overlay, run
from gpushim.inject.hookoptions import Options, parse
from gpushim_hooks import create_container
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]


def options(**changed: Any) -> Options:
    fields: dict[str, Any] = {
        "tree": "/var/lib/gpushim/driver/550/compute",
        "lib64": "/usr/local/nvidia/lib64",
        "lib": "/usr/local/nvidia/lib",
        "libraries": ["libcuda.so.1", "libcuda.so"],
        "libraries32": [],
        "mount": "/usr/bin/mount",
    }
    return Options(**{**fields, **changed})


def plain(found: Options) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Options.__slots__}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"root": "/srv/a=b", "write": False, "params": False, "files": True},
        {"libraries": [], "libraries32": ["libcuda.so.1"]},
        {"links": {"card0": "pci-0000:07:00.0-card", "renderD128": "pci-0000:07:00.0-render"}},
    ],
)
def test_arguments_are_read_as_they_were_made(changed: dict[str, Any]) -> None:
    made = options(**changed)
    assert plain(parse(made.arguments())) == plain(made)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--root"),
        (["--colour=red"], "--colour=red"),
        (["--tree"], "--tree"),
        ([*options().arguments(), "--tree=/x"], "--tree=/x"),
        (options().arguments()[:-1], "--libraries32"),
    ],
)
def test_other_arguments_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(GpushimError) as error:
        parse(arguments)
    assert words in str(error.value)
    assert "gpushimctl cdi generate" in str(error.value)


@given(st.lists(st.text(max_size=30)))
def test_nothing_else_is_raised(arguments: list[str]) -> None:
    try:
        parse(arguments)
    except GpushimError:
        pass


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("", "names no bundle"),
        ("[]", "names no bundle"),
        ('{"bundle": 1}', "names no bundle"),
        ('{"bundle": "relative"}', "names no bundle"),
        ('{"bundle": "/nowhere/at/all"}', "it does not exist"),
        (r'{"bundle": "/tmp\u0000x"}', "can be no folder's name"),
        (r'{"bundle": "/tmp/\ud800"}', "can be no folder's name"),
        ("[" * 200_000, "names no bundle"),
    ],
)
def test_a_state_that_leads_nowhere(state: str, words: str) -> None:
    with pytest.raises(GpushimError, match=words):
        run(state, options())


def test_the_program_says_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"bundle": "/nowhere/at/all"}'))
    assert create_container.main(options().arguments()) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "gpushim: /nowhere/at/all/config.json can't be read: it does not exist.\n"
    assert create_container.main(["--x"]) == 1


class Unreadable(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def read(self, size: int | None = -1) -> str:
        raise self.error


@pytest.mark.parametrize(
    ("stdin", "sentence"),
    [
        (None, "Standard input, which has the container's state, is closed."),
        (io.StringIO(""), "The low-level runtime's state on standard input names no bundle."),
        (
            Unreadable(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")),
            "The container's state on standard input is not UTF-8.",
        ),
        (
            Unreadable(IsADirectoryError(21, "Is a directory")),
            "The container's state on standard input can't be read: it is a folder.",
        ),
    ],
)
def test_standard_input_that_gives_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stdin: io.StringIO | None,
    sentence: str,
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    assert create_container.main(options().arguments()) == 1
    assert capsys.readouterr().err == f"gpushim: {sentence}\n"


@pytest.mark.parametrize(
    "redirected", ["<&-", "</dev/null", ">/dev/null 0>&1", "<&- >&-", "<<< $'\\xff'"]
)
def test_the_process_says_one_sentence(redirected: str) -> None:
    """Also where the interpreter finds descriptors closed."""
    code = f"{ROOT}/shim:{ROOT}/hooks"
    words = [sys.executable, "-m", "gpushim_hooks.create_container", *options().arguments()]
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirected}', "bash", *words],
        env={"PYTHONPATH": code},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gpushim: ")
    assert done.stderr.count("\n") == 1
    assert "Errno" not in done.stderr


@pytest.mark.parametrize("path", ["/r\0", "r\ud800"])
def test_a_root_that_can_be_no_path(tmp_path: Path, path: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"root": {"path": path}}))
    with pytest.raises(GpushimError, match=r"root\.path"):
        run(json.dumps({"bundle": str(tmp_path)}), options())


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"root": {"path": "rootfs"}}))
    with pytest.raises(GpushimError, match="can't be used"):
        run(json.dumps({"bundle": str(tmp_path)}), options())


BIND = b"36 35 98:0 %s %s rw shared:1 - %s /dev/x rw\n"


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        ([(b"/", b"/c/root", b"overlay")], True),
        ([(b"/", b"/c/root", b"fuse.fuse-overlayfs")], True),
        # A directory on a disk, which the low-level runtime has bound to itself.
        ([(b"/c/root", b"/c/root", b"ext4")], False),
        # The same where the host's own root is an overlay.
        ([(b"/c/root", b"/c/root", b"overlay")], False),
        # The last one is on top.
        ([(b"/", b"/c/root", b"overlay"), (b"/", b"/c/root", b"overlay")], True),
        ([(b"/", b"/c/root", b"overlay"), (b"/x", b"/c/root", b"ext4")], False),
        ([(b"/", b"/c", b"overlay"), (b"/", b"/c/root/etc", b"overlay")], False),
        ([], False),
    ],
)
def test_an_overlay_of_its_own(lines: list[tuple[bytes, bytes, bytes]], own: bool) -> None:
    text = b"".join(BIND % line for line in lines) + b"\n36 35 short\n"
    assert own_overlay(text, "/c/root") is own


def test_a_path_with_blanks_in_mountinfo() -> None:
    assert own_overlay(BIND % (b"/", b"/c/my\\040root", b"overlay"), "/c/my root")
