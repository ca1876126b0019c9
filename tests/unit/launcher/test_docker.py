"""What of Docker's own records starts Python, and where the launcher finds them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpushim import launcher_settings

from tests.unit.launcher.rendered import Launcher

ID = "5e" * 32
OTHER = "0f" * 32
GPUS = '{"Binds":null,"DeviceRequests":[{"Driver":"","Count":2,"DeviceIDs":null}]}'
NOTHING = '{"Binds":null,"DeviceRequests":null}'
LABEL = '{"Config":{"Labels":{"gpushim.gpus":"1"}},"ID":"x"}'
NO_LABEL = '{"Config":{"Labels":{"com.example.gpushim":"gpushim"}},"ID":"x"}'
FILES = ("hostname", "hosts", "resolv.conf")


class Docker:
    """A data root with records, and calls of the launcher as Docker makes them."""

    def __init__(self, launcher: Launcher, base: Path, root: Path) -> None:
        self.launcher = launcher
        self.root = root
        self.bundle = base / "bundle"
        self.bundle.mkdir()
        self.state = base / "runtime-runc" / "moby"
        # A grep that says that it was called, since each process costs every container its time.
        self.tools = base / "tools"
        self.tools.mkdir()
        self._calls = base / "calls"
        grep = self.tools / "grep"
        grep.write_text(f'#!/bin/sh\necho >>"{self._calls}"\nexec /usr/bin/grep "$@"\n')
        grep.chmod(0o755)

    def record(self, host: str = NOTHING, config: str = NO_LABEL, id: str = ID) -> Path:
        path = self.root / "containers" / id
        path.mkdir(parents=True, exist_ok=True)
        (path / "hostconfig.json").write_text(host)
        (path / "config.v2.json").write_text(config)
        return path

    def spec(self, mounts: Sequence[str | Path] = (), root: str | Path = "rootfs") -> None:
        """A spec as Docker writes it: compact, with these sources of mounts."""
        spec = {
            "process": {"env": ["A=b"]},
            "root": {"path": str(root)},
            "mounts": [{"destination": f"/etc/{Path(m).name}", "source": str(m)} for m in mounts],
        }
        text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False)
        (self.bundle / "config.json").write_text(text)

    def python_started(self, state: Path | None = None) -> bool:
        self._calls.write_text("")
        options = ["--root", str(state or self.state), "--log", "l", "--log-format", "json"]
        words = ["create", "--bundle", str(self.bundle), "--pid-file", "p", ID]
        environment = {**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin"}
        done = self.launcher.call(*options, *words, environment=environment)
        assert (done.returncode, done.stderr) == (0, "")
        started = self.launcher.python_started() is not None
        assert started == (self.launcher.reached() is None)
        return started

    @property
    def greps(self) -> int:
        return len(self._calls.read_text())


@pytest.fixture
def usual(launcher: Launcher, tmp_path: Path) -> Docker:
    """Its data root is the one that the launcher knows."""
    launcher.stub_python().install()
    docker = Docker(launcher, tmp_path, launcher.docker)
    docker.spec([docker.root / "containers" / ID / name for name in FILES])
    return docker


@pytest.fixture(params=["data", "a b's ä", "x/containers/y"])
def elsewhere(launcher: Launcher, tmp_path: Path, request: pytest.FixtureRequest) -> Docker:
    launcher.stub_python().install()
    docker = Docker(launcher, tmp_path, tmp_path / request.param)
    docker.spec([docker.root / "containers" / ID / name for name in FILES])
    return docker


@pytest.mark.parametrize(
    ("host", "config", "wanted"),
    [
        (NOTHING, NO_LABEL, False),
        ('{"DeviceRequests":[]}', NO_LABEL, False),
        (GPUS, NO_LABEL, True),
        (NOTHING, LABEL, True),
        (GPUS, LABEL, True),
        # JSON that hides a letter, and bytes that are no text.
        (NOTHING, LABEL.replace("gp", "g\\u0070"), True),
        (NOTHING, '"\udce9\0"', False),
    ],
)
def test_requests_and_labels(usual: Docker, host: str, config: str, wanted: bool) -> None:
    path = usual.record(host, NO_LABEL)
    (path / "config.v2.json").write_bytes(config.encode("utf-8", "surrogateescape"))
    assert usual.python_started() == wanted
    assert usual.greps == 1


def test_the_usual_data_root_needs_no_mounts(usual: Docker) -> None:
    usual.record(GPUS)
    usual.spec()
    assert usual.python_started()


@pytest.mark.parametrize("state", ["moby/", "moby", "moby-100000.100000"])
def test_only_docker_has_such_records(usual: Docker, state: str) -> None:
    usual.record(GPUS, LABEL)
    assert usual.python_started(Path(f"{usual.state.parent}/{state}"))
    for other in ("default", "k8s.io", "mobyx", "moby-x", "xmoby", "moby/x"):
        assert not usual.python_started(usual.state.parent / other), other
        assert usual.greps == 1


def test_records_that_do_not_count(usual: Docker) -> None:
    usual.record(GPUS, LABEL)
    usual.launcher.configure("_docker_records=''\n")
    assert not usual.python_started()
    assert usual.greps == 1


def test_a_record_that_cannot_be_read(usual: Docker) -> None:
    """Python says in its log what is wrong with it."""
    (usual.record() / "config.v2.json").unlink()
    assert usual.python_started()


def test_another_data_root(elsewhere: Docker) -> None:
    for host, config, wanted in ((NOTHING, NO_LABEL, False), (GPUS, "", True), ("", LABEL, True)):
        elsewhere.record(host, config)
        assert elsewhere.python_started() == wanted
        assert elsewhere.greps == 3


def test_another_data_root_that_is_known(elsewhere: Docker) -> None:
    quoted = launcher_settings.shell_quote(str(elsewhere.root))
    elsewhere.launcher.configure(f"_docker={quoted}\n")
    for host, wanted in ((NOTHING, False), (GPUS, True)):
        elsewhere.record(host)
        assert elsewhere.python_started() == wanted
        assert elsewhere.greps == 1


def test_a_data_root_that_was_left(elsewhere: Docker) -> None:
    elsewhere.launcher.configure("_docker='/nowhere'\n")
    elsewhere.record(GPUS)
    assert elsewhere.python_started()


def test_a_request_in_the_spec_needs_no_record(elsewhere: Docker) -> None:
    elsewhere.record()
    spec = elsewhere.bundle / "config.json"
    spec.write_text(spec.read_text().replace("A=b", "GPUSHIM_GPUS=1"))
    assert elsewhere.python_started()
    assert elsewhere.greps == 1


@pytest.mark.parametrize("file", FILES)
def test_mounts_of_the_users_over_two_of_three(elsewhere: Docker, file: str) -> None:
    containers = elsewhere.record(GPUS).parent
    others = ["/home/me/" + name for name in FILES if name != file]
    elsewhere.spec([*others, containers / ID / file])
    assert elsewhere.python_started()


def test_the_network_of_another_container(elsewhere: Docker) -> None:
    """Its files are mounted, and its record says nothing about this one."""
    containers = elsewhere.record(NOTHING, NO_LABEL).parent
    elsewhere.record(GPUS, LABEL, OTHER)
    elsewhere.spec([containers / OTHER / name for name in FILES])
    assert not elsewhere.python_started()
    elsewhere.record(GPUS)
    elsewhere.record(id=OTHER)
    assert elsewhere.python_started()


@pytest.mark.parametrize(
    "root",
    [
        *("overlay2/layer/merged", "vfs/dir/layer", "btrfs/subvolumes/layer", "zfs/graph/layer"),
        *("fuse-overlayfs/layer/merged", "rootfs/overlayfs/layer", "devicemapper/mnt/layer/rootfs"),
    ],
)
def test_mounts_of_the_users_over_all_three(elsewhere: Docker, root: str) -> None:
    elsewhere.record(GPUS)
    # One of them looks like Docker's own.
    decoy = elsewhere.bundle.parent / "home" / "containers" / "x" / "hosts"
    elsewhere.spec(["/home/me/hostname", decoy, "/resolv.conf"], elsewhere.root / root)
    assert elsewhere.python_started()
    elsewhere.record()
    assert not elsewhere.python_started()


def test_no_record_anywhere(elsewhere: Docker) -> None:
    """A container of a build, for one: it has the state root of Docker's, and no record."""
    assert not elsewhere.python_started()
    elsewhere.spec(["/hosts", "/a/hosts", "hostname", "/containers/hosts"], "/x")
    assert not elsewhere.python_started()
    elsewhere.spec()
    assert not elsewhere.python_started()


def test_a_data_root_that_json_escapes(launcher: Launcher, tmp_path: Path) -> None:
    """The shell does not read it; Python does."""
    launcher.stub_python().install()
    docker = Docker(launcher, tmp_path, tmp_path / 'a"b\\c')
    path = docker.record()
    docker.spec([path / name for name in FILES])
    assert docker.python_started()
