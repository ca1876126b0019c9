"""The harness itself: with plain runc, so that a failure here is never gpushim's."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import images
from tests.harness import Bundle, PrivateDockerd, Runtime, processes
from tests.harness.bundle import FIRST_UID, PROBE
from tests.harness.engine import storage_driver

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]


@pytest.mark.docker
def test_docker_runs_a_container(dockerd: PrivateDockerd) -> None:
    tag = dockerd.import_image("busybox", changes=["ENV COLOUR=blue"])
    result = dockerd.docker("run", "--rm", tag, PROBE, "env", "--", "open", "/dev/null")
    assert result.returncode == 0, result.stderr
    assert "COLOUR=blue" in result.stdout.splitlines()
    assert "/dev/null OK" in result.stdout.splitlines()
    assert dockerd.import_image("busybox", changes=["ENV COLOUR=blue"]) == tag


@pytest.mark.docker
def test_docker_reloads_a_new_runtime(dockerd: PrivateDockerd) -> None:
    tag = dockerd.import_image("busybox")
    before = dockerd.config_path.read_text()
    runc = shutil.which("runc", path="/usr/sbin:/usr/bin")
    changed = {**json.loads(before), "runtimes": {"other": {"path": runc}}}
    assert dockerd.docker("run", "--rm", "--runtime=other", tag, PROBE, "ids").returncode == 125
    dockerd.config_path.write_text(json.dumps(changed))
    try:
        dockerd.reload()
        run = dockerd.docker("run", "--rm", "--runtime=other", tag, PROBE, "exit", "7")
        assert run.returncode == 7, run.stderr
    finally:
        dockerd.config_path.write_text(before)
        dockerd.reload()


@pytest.mark.docker
def test_stop_leaves_nothing(template: Callable[[str], Path]) -> None:
    """Not even when dockerd was killed and a container is still running."""
    template("busybox")
    engine = PrivateDockerd()
    with engine:
        tag = engine.import_image("busybox")
        name = engine.docker(
            "run", "--detach", "--stop-signal=KILL", tag, PROBE, "sleep", "600", check=True
        ).stdout
        engine.restart()
        engine.docker("start", name.strip(), check=True)
        inspect = engine.docker("inspect", "--format={{.State.Pid}}", name.strip(), check=True)
        init = int(inspect.stdout)
        assert processes.start_time(init) is not None
        engine.kill()
    assert processes.start_time(init) is None
    assert not engine.base.exists() and not engine.run.exists()
    assert not engine.processes()
    assert not processes.mounts_below(engine.base)


def test_an_overlay_below_the_data_root_means_vfs(make_bundle: MakeBundle) -> None:
    assert storage_driver(make_bundle("busybox").rootfs) == "vfs"


@pytest.mark.parametrize("name", images.NAMES)
def test_each_image_runs(name: str, make_bundle: MakeBundle, runc: Runtime) -> None:
    args = [PROBE, "env", "--", "open", "/dev/null", "/dev/nvidia0"]
    if name in (*images.GLIBC, "musl"):
        args += ["--", "dlopen", "libc.so.6" if name in images.GLIBC else "libc.so"]
    result = runc.run(make_bundle(name, args, env=["A=b"])).check()
    lines = result.stdout.splitlines()
    assert "A=b" in lines and "/dev/null OK" in lines and "/dev/nvidia0 ENOENT" in lines
    if name in images.GLIBC:
        directory = "/usr/lib64" if name == "fedora-like" else "/lib/x86_64-linux-gnu"
        assert f"libc.so.6 -> {directory}/libc.so.6" in lines


@pytest.mark.parametrize("root", ["overlay", "copy"])
def test_a_written_root_leaves_the_template_alone(
    root: str, make_bundle: MakeBundle, runc: Runtime, template: Callable[[str], Path]
) -> None:
    bundle = make_bundle("busybox", [PROBE, "write", "/etc/new"], root=root)
    runc.run(bundle).check()
    assert (bundle.rootfs / "etc/new").read_text() == "probe\n"
    assert not (template("busybox") / "etc/new").exists()


def test_life_in_steps(make_bundle: MakeBundle, runc: Runtime) -> None:
    bundle = make_bundle("busybox", ["sh", "-c", "echo hello; sleep 600"])
    created = runc.create(bundle).check()
    assert runc.state(bundle.id)["status"] == "created"
    runc.start(bundle.id).check()
    assert runc.exec(bundle.id, PROBE, "exit", "3").status == 3
    runc.kill(bundle.id).check()
    runc.wait(bundle.id)
    runc.delete(bundle.id).check()
    assert created.stdout == "hello\n"
    assert runc.state(bundle.id) == {}


def test_a_denied_device_is_told_from_an_absent_one(make_bundle: MakeBundle, runc: Runtime) -> None:
    args = [PROBE, "mknod", "/dev/x", "195", "0", "--", "open", "/dev/x"]
    denied = make_bundle("busybox", args)
    assert runc.run(denied).check().stdout.splitlines() == ["/dev/x OK", "/dev/x EPERM"]
    allowed = make_bundle("busybox", args)
    rule = {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}
    allowed.config["linux"]["resources"]["devices"].append(rule)
    allowed.write()
    # No driver has this number here, or its GPU is there: both differ from a refusal.
    answer = runc.run(allowed).check().stdout.splitlines()[1]
    assert answer in ("/dev/x ENXIO", "/dev/x OK", "/dev/x ENODEV", "/dev/x EIO")


@pytest.mark.parametrize("name", ["busybox", "debian"])
def test_user_namespace_and_readonly_root(
    name: str, make_bundle: MakeBundle, runc: Runtime
) -> None:
    args = [PROBE, "ids", "--", "cat", "/proc/self/uid_map", "--", "write", "/etc/x"]
    bundle = make_bundle(name, args, userns=True, readonly=True)
    assert os.stat(bundle.rootfs / "etc").st_uid == FIRST_UID
    result = runc.run(bundle)
    assert "uid=0 gid=0" in result.stdout, result
    assert str(FIRST_UID) in result.stdout
    assert "/etc/x EROFS" in result.stdout
