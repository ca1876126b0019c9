"""daemon.json in the states that people have it: registered, and as it was again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpushim.engines import docker, jsonfile
from gpushim.engines.docker import Former, Plan
from gpushim.errors import GpushimError

LAUNCHER = "/usr/local/bin/gpushim"
ENTRY = {"path": LAUNCHER}


class Daemon:
    """A daemon.json that plans are carried out on."""

    def __init__(self, path: Path, content: bytes | None) -> None:
        self.path = path
        if content is not None:
            path.write_bytes(content)

    @property
    def content(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None

    @property
    def data(self) -> Any:
        return json.loads(self.path.read_bytes())

    def register(self, default: bool = False, known: Former | None = None) -> Plan:
        plan = docker.register(jsonfile.read(str(self.path)), LAUNCHER, default, known)
        plan.change.apply(backup=False)
        return plan

    def unregister(self, known: Former | None) -> Plan:
        # As it comes back from the installation record.
        former = Former.from_json(json.loads(json.dumps(known.to_json()))) if known else None
        plan = docker.unregister(jsonfile.read(str(self.path)), LAUNCHER, former)
        plan.change.apply(backup=False)
        return plan


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        None,
        b"{}",
        b'{"hosts":["unix:///var/run/docker.sock"],"storage-opts":["dm.thinpooldev=/dev/x"]}',
        b'{\n    "log-opts": {"max-size": "10m"},\n    "live-restore": true\n}\n',
        b'{\n  "runtimes": {\n    "nvidia": {\n      "args": [],\n      "path": "x"\n    }\n  }\n}',
        b'{\n  "default-runtime": "runc",\n  "exec-opts": ["native.cgroupdriver=systemd"]\n}\n',
        b'{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-x"}}}',
        b'{"runtimes": {}, "x": null}',
    ],
)
def test_there_and_back(tmp_path: Path, content: bytes | None, default: bool) -> None:
    """B58: all else is kept, and uninstall restores byte for byte."""
    daemon = Daemon(tmp_path / "daemon.json", content)
    before = json.loads(content) if content is not None else {}
    plan = daemon.register(default)
    runtimes = {**(before.get("runtimes") or {}), "gpushim": ENTRY}
    expected = {**before, "runtimes": runtimes}
    if default:
        expected["default-runtime"] = "gpushim"
    assert daemon.data == expected
    assert list(daemon.data)[: len(before)] == list(before)
    written = daemon.content
    again = daemon.register(default, plan.former)
    assert daemon.content == written
    assert again.former.to_json() == plan.former.to_json()
    daemon.unregister(again.former)
    assert daemon.content == content


def test_a_default_taken_by_a_later_install(tmp_path: Path) -> None:
    content = b'{"default-runtime": "runc"}\n'
    daemon = Daemon(tmp_path / "daemon.json", content)
    first = daemon.register(default=False)
    second = daemon.register(default=True, known=first.former)
    assert daemon.data["default-runtime"] == "gpushim"
    # A later one that does not ask for it leaves the default, and knows what it was.
    third = daemon.register(default=False, known=second.former)
    assert daemon.data["default-runtime"] == "gpushim"
    daemon.unregister(third.former)
    assert daemon.content == content


def test_other_edits_in_between_survive(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "daemon.json", None)
    plan = daemon.register(default=True)
    data = {"mtu": 1400, **daemon.data}
    data["runtimes"]["x"] = {"path": "/x"}
    daemon.path.write_text(json.dumps(data))
    daemon.unregister(plan.former)
    assert daemon.data == {"mtu": 1400, "runtimes": {"x": {"path": "/x"}}}


def test_a_default_that_was_changed_since_stays(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "daemon.json", b"{}")
    plan = daemon.register(default=True)
    daemon.path.write_text(json.dumps({**daemon.data, "default-runtime": "runc"}))
    daemon.unregister(plan.former)
    assert daemon.data == {"default-runtime": "runc"}


def test_a_former_default_that_is_gone_is_not_restored(tmp_path: Path) -> None:
    """dockerd does not start with a default runtime that is not registered."""
    content = b'{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "x"}}}'
    daemon = Daemon(tmp_path / "daemon.json", content)
    plan = daemon.register(default=True)
    data = daemon.data
    del data["runtimes"]["nvidia"]
    daemon.path.write_text(json.dumps(data))
    undone = daemon.unregister(plan.former)
    assert "default-runtime" not in daemon.data
    assert any("nvidia" in note for note in undone.notes)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, {"runtimes": {}, "default-runtime": "runc"}),
        (b'{"mtu": 1}', {"mtu": 1, "runtimes": {}, "default-runtime": "runc"}),
        (
            b'{"runtimes": {"x": {"path": "/x"}}}',
            {"runtimes": {"x": {"path": "/x"}}, "default-runtime": "runc"},
        ),
        (b'{"runtimes": {"x": {"path": "/x"}}, "default-runtime": "x"}', None),
    ],
)
def test_what_a_running_dockerd_is_told(tmp_path: Path, content: bytes | None, told: Any) -> None:
    """It keeps what it has of a member that has gone from the file, even a default runtime."""
    daemon = Daemon(tmp_path / "daemon.json", content)
    plan = daemon.register(default=True)
    undo = docker.unregister(jsonfile.read(str(daemon.path)), LAUNCHER, plan.former)
    change = docker.told_off(undo)
    assert (change and json.loads(change.after or b"")) == told
    undo.change.apply(backup=False)
    assert daemon.content == content


def test_no_record_and_still_the_default(tmp_path: Path) -> None:
    """B65: nothing may be left that names the missing program."""
    content = {"default-runtime": "gpushim", "runtimes": {"gpushim": ENTRY}, "mtu": 1}
    daemon = Daemon(tmp_path / "daemon.json", json.dumps(content).encode())
    daemon.unregister(None)
    assert daemon.data == {"runtimes": {}, "mtu": 1}


@pytest.mark.parametrize("known", [None, Former(True, True, None, False, None)])
@pytest.mark.parametrize("content", [None, b"{}", b'{"runtimes":{"x":{"path":"/x"}}}'])
def test_nothing_to_take_out(tmp_path: Path, content: bytes | None, known: Former | None) -> None:
    """B64: removing where there is nothing makes no file and changes none."""
    daemon = Daemon(tmp_path / "daemon.json", content)
    daemon.unregister(known)
    assert daemon.content == content


def test_anothers_gpushim_is_replaced_and_comes_back(tmp_path: Path) -> None:
    content = b'{"runtimes": {"gpushim": {"path": "/opt/old/gpushim", "runtimeArgs": ["-x"]}}}'
    daemon = Daemon(tmp_path / "daemon.json", content)
    plan = daemon.register()
    assert daemon.data["runtimes"]["gpushim"] == ENTRY
    # The second install knows that what it finds is its own.
    again = daemon.register(known=plan.former)
    daemon.unregister(again.former)
    assert daemon.content == content


def test_anothers_gpushim_is_not_taken_out(tmp_path: Path) -> None:
    content = b'{"default-runtime": "gpushim", "runtimes": {"gpushim": {"path": "/opt/gpushim"}}}'
    daemon = Daemon(tmp_path / "daemon.json", content)
    plan = daemon.unregister(Former(True, False, None, False, None))
    assert daemon.content == content
    assert any("another program" in note for note in plan.notes)


def test_arguments_that_somebody_added_stay(tmp_path: Path) -> None:
    content = json.dumps({"runtimes": {"gpushim": {**ENTRY, "runtimeArgs": ["--debug"]}}}).encode()
    daemon = Daemon(tmp_path / "daemon.json", content)
    daemon.register()
    assert daemon.content == content


def test_a_byte_order_mark_is_left_out_and_told(tmp_path: Path) -> None:
    """B60"""
    entry = json.dumps({"runtimes": {"gpushim": ENTRY}}).encode()
    daemon = Daemon(tmp_path / "daemon.json", b"\xef\xbb\xbf" + entry)
    plan = daemon.register()
    assert daemon.content == entry
    assert any("byte order mark" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("content", "member"),
    [
        (b'{"runtimes": []}', "runtimes is not an object"),
        (b'{"runtimes": "x"}', "runtimes is not an object"),
        (b'{"runtimes": {"x": "/x"}}', "runtimes.x is not an object"),
        (b'{"default-runtime": 1}', "default-runtime is not a text"),
    ],
)
def test_wrong_types_are_refused(tmp_path: Path, content: bytes, member: str) -> None:
    daemon = Daemon(tmp_path / "daemon.json", content)
    with pytest.raises(GpushimError, match=member):
        daemon.register()
    with pytest.raises(GpushimError, match=member):
        daemon.unregister(None)
    assert daemon.content == content


@pytest.mark.parametrize("content", [b'{"runtimes": null}', b'{"default-runtime": null}', b""])
def test_null_and_nothing_are_no_error(tmp_path: Path, content: bytes) -> None:
    daemon = Daemon(tmp_path / "daemon.json", content)
    daemon.register(default=True)
    assert daemon.data == {"runtimes": {"gpushim": ENTRY}, "default-runtime": "gpushim"}


@pytest.mark.parametrize("content", [None, b'{"default-runtime": "runc"}'])
def test_a_runtime_that_is_on_the_command_line(tmp_path: Path, content: bytes | None) -> None:
    """dockerd would refuse it in the file as well; a default is another setting."""
    daemon = Daemon(tmp_path / "daemon.json", content)
    file = jsonfile.read(str(daemon.path))
    assert docker.register(file, LAUNCHER, False, None, by_flag=True).change.diff() == ""
    plan = docker.register(file, LAUNCHER, True, None, by_flag=True)
    plan.change.apply(backup=False)
    assert daemon.data == {"default-runtime": "gpushim"}
    daemon.unregister(plan.former)
    assert daemon.data == (json.loads(content) if content else {})
