"""Each way to ask that Docker has, on a real dockerd: what a container gets, and what explain has.

The examples of the README and of docs/requests.md are among them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cannot
from tests.harness import PrivateDockerd
from tests.harness.dockered import Detached, run
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, probe, variables

pytestmark = pytest.mark.docker

LOOK = probe(["open", *NODES], ["env"])
EVERY = tuple(range(8))


@pytest.fixture
def explain(dgx: Machine) -> Callable[[str], str]:
    """What gpushimctl says of a container, by a name that Docker knows it by."""
    return lambda name: dgx.installed.ctl("explain", "--no-diff", name)


def gets(dgx: Machine, engine: PrivateDockerd, options: Sequence[str], *indices: int) -> None:
    """A container with these options has these GPUs and no others."""
    done = run(engine, *options, "--", *LOOK, image="busybox")
    assert done.returncode == 0, done.stderr
    nodes = [*CONTROL, *(dgx.node(index) for index in indices)]
    assert devices(done.stdout) == dict.fromkeys(nodes, "ENXIO")
    assert variables(done.stdout)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(*indices)


def refused(engine: PrivateDockerd, *options: str, name: str) -> str:
    """What docker shows of a container that is refused and that stays, as `docker ps -a` has it."""
    engine.docker("rm", "--force", name)
    tag = engine.import_image("busybox")
    done = engine.docker("run", "--network=none", f"--name={name}", *options, tag, *LOOK)
    assert done.returncode != 0, done.stdout
    assert done.stdout == ""
    return done.stderr


GPUS = [
    ("2", (0, 1), "2 GPUs, whichever (from device request for a count of 2)"),
    ('"device=0,1"', (0, 1), "0, 1 (from device request for 0,1)"),
    ("device=5", (5,), "5 (from device request for 5)"),
    ("all", EVERY, "all (from device request for all GPUs)"),
    ("driver=nvidia,count=1", (0,), "1 GPU, whichever (from device request for a count of 1)"),
]


@pytest.mark.parametrize(("value", "indices", "asked"), GPUS, ids=[value for value, _, _ in GPUS])
def test_gpus(
    dgx: Machine,
    engine: PrivateDockerd,
    explain: Callable[[str], str],
    value: str,
    indices: tuple[int, ...],
    asked: str,
) -> None:
    """B45: a count and a choice look the same in config.json, and are told apart."""

    def decided(name: str) -> str:
        """What explain has of the decision; what the cgroup uses changes all the time."""
        before, cgroup, behind = explain(name).partition("Cgroup:\n")
        assert cgroup
        return before + "".join(
            line for line in behind.splitlines(keepends=True) if not line.startswith("  ")
        )

    with Detached(engine, f"--gpus={value}", "--name=box", image="busybox") as container:
        seen = container.exec(*LOOK)
        assert devices(seen).keys() == {*CONTROL, *(dgx.node(index) for index in indices)}
        assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(*indices)
        explained = decided("box")
        assert explained == decided(container.id) == decided(container.id[:12])
        assert explained.startswith(f"Container {container.id} (box)\n")
        assert f"Asked for: {asked}" in explained
        count = len(indices)
        assert f"Granted: {count} GPU{'' if count == 1 else 's'}\n" in explained
        engine.docker("rename", "box", "box2", check=True)


def test_options_of_a_device_request(engine: PrivateDockerd, explain: Callable[[str], str]) -> None:
    """They act, and are told with their sources; what can't be had is refused with a reason."""
    said = refused(engine, "--gpus", 'count=2,"options=memory=200gb"', name="wants-memory")
    assert (
        "gpushim: 2 GPUs with 200 GiB each were asked for by device request for a count of 2 and "
        "option of the device request memory=200gb, and of the 8 GPUs here"
    ) in said
    ids = engine.docker("ps", "-aq", "--no-trunc", "--filter=name=wants-memory", check=True)
    explained = explain("wants-memory")
    assert explained == explain(ids.stdout.strip())
    assert "Asked for: 2 GPUs, whichever (from device request for a count of 2)" in explained
    assert "  memory: 204800 MiB of each GPU (from option of the device request memory=200gb)" in (
        explained
    )
    assert "Refused: 2 GPUs with 200 GiB each were asked for" in explained
    said = refused(engine, "--gpus", 'all,"options=memroy=2gb"', name="wants-memory")
    assert "option of the device request 'memroy' is not known" in said
    assert "did you mean memory?" in said
    engine.docker("rm", "--force", "wants-memory", check=True)


def test_what_articles_have_and_docker_itself_refuses(engine: PrivateDockerd) -> None:
    """The sentence is the README's: the same in each docker of the last years."""
    tag = engine.import_image("busybox")
    done = engine.docker("run", "--rm", "--gpus", '"device=0,1","memory=2gb"', tag, "true")
    assert done.returncode == 125
    assert (
        'invalid argument "\\"device=0,1\\",\\"memory=2gb\\"" for "--gpus" flag: '
        "unexpected key 'memory' in 'memory=2gb'"
    ) in done.stderr


@pytest.fixture(scope="module")
def client(engine: PrivateDockerd) -> Iterator[Any]:
    """The Docker SDK for Python, on this engine."""
    try:
        docker = importlib.import_module("docker")
    except ImportError:
        cannot("the Docker SDK for Python is not installed")
    made = docker.DockerClient(base_url=f"unix://{engine.socket}")
    yield made
    made.close()


def sdk_container(engine: PrivateDockerd, client: Any, **asked: Any) -> Any:
    """A container of the SDK's that asks by a DeviceRequest, not started yet."""
    types = importlib.import_module("docker.types")
    wanted = types.DeviceRequest(capabilities=[["gpu"]], **asked)
    tag = engine.import_image("busybox")
    return client.containers.create(tag, LOOK, network_mode="none", device_requests=[wanted])


@pytest.mark.parametrize(
    ("asked", "indices"),
    [
        ({"driver": "nvidia", "count": 2}, (0, 1)),
        ({"count": -1}, EVERY),
        ({"device_ids": ["2", "6"]}, (2, 6)),
    ],
)
def test_the_sdk_for_python(
    dgx: Machine, engine: PrivateDockerd, client: Any, asked: dict[str, Any], indices: Any
) -> None:
    container = sdk_container(engine, client, **asked)
    try:
        container.start()
        assert container.wait()["StatusCode"] == 0
        seen = container.logs().decode()
    finally:
        container.remove(force=True)
    assert devices(seen).keys() == {*CONTROL, *(dgx.node(index) for index in indices)}


def test_options_by_the_sdk(
    engine: PrivateDockerd, client: Any, explain: Callable[[str], str]
) -> None:
    container = sdk_container(
        engine, client, driver="nvidia", count=2, options={"memory": "200gb", "numa": "off"}
    )
    try:
        with pytest.raises(Exception, match="2 GPUs with 200 GiB each were asked for"):
            container.start()
        explained = explain(container.name)
    finally:
        container.remove(force=True)
    assert "Asked for: 2 GPUs, whichever" in explained
    assert "memory: 204800 MiB of each GPU (from option of the device request memory=200gb)" in (
        explained
    )
    assert "numa: off (from option of the device request numa=off)" in explained


def test_labels(dgx: Machine, engine: PrivateDockerd, explain: Callable[[str], str]) -> None:
    """Those of an image count, too, those of the command line outrank them, and so does --gpus."""
    gets(dgx, engine, ["--label=gpushim.gpus=2"], 0, 1)
    gets(dgx, engine, ["--label=gpushim.gpus=device=4", "-e", "NVIDIA_VISIBLE_DEVICES=all"], 4)
    gets(dgx, engine, ["--label=gpushim.gpus=2", "--gpus=device=7"], 7)
    image = engine.import_image("busybox", ["LABEL gpushim.gpus=device=3", "ENV GPUSHIM_GPUS=1"])
    for options, index in (([], 3), (["--label=gpushim.gpus=device=6"], 6)):
        words = ["run", "--rm", "--network=none", *options, image]
        assert devices(engine.docker(*words, *LOOK, check=True).stdout).keys() == {
            *CONTROL,
            dgx.node(index),
        }
    said = refused(engine, "--gpus=9", "--label=gpushim.mode=exclusive", name="labelled")
    assert "9 GPUs to itself were asked for" in said
    assert "label gpushim.mode=exclusive, and there are only 8 GPUs" in said
    assert "mode: exclusive (from label gpushim.mode=exclusive)" in explain("labelled")
    said = refused(engine, "--gpus=1", "--label=gpushim.moed=exclusive", name="labelled")
    assert "label gpushim.moed is not known to gpushim (did you mean gpushim.mode?)" in said
    engine.docker("rm", "--force", "labelled", check=True)


def test_optional(dgx: Machine, engine: PrivateDockerd, explain: Callable[[str], str]) -> None:
    """B45: a container that does without starts, though Docker has the vendor's hook in it."""
    options = ["--gpus=9", "--label=gpushim.optional=true", "--name=does-without"]
    with Detached(engine, *options, image="busybox") as container:
        seen = container.exec(*LOOK)
        assert devices(seen) == {}
        assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == "void"
        explained = explain("does-without")
        assert "optional: yes (from label gpushim.optional=true)" in explained
        assert "Warning: The container starts without a GPU, which is optional for it" in explained
    assert not (engine.base / "hook-ran").exists()
    gets(dgx, engine, ["--gpus=1", "--label=gpushim.optional=true"], 0)


def test_the_network_of_another_container(
    dgx: Machine, engine: PrivateDockerd, explain: Callable[[str], str]
) -> None:
    """Whose files all three are then: what counts is the record of the container itself."""
    with Detached(engine, "--gpus=device=5", "--name=first", image="busybox") as first:
        shares = f"--network=container:{first.id}"
        gets(dgx, engine, [shares, "--gpus=device=2"], 2)
        gets(dgx, engine, [shares, "--label=gpushim.gpus=device=3"], 3)
        done = run(engine, shares, "--", *LOOK, image="busybox")
        assert devices(done.stdout) == {}
        assert "NVIDIA_VISIBLE_DEVICES" not in variables(done.stdout)
        assert "Asked for: 5 (from device request for 5)" in explain("first")


@pytest.mark.parametrize("files", [1, 2, 3])
def test_mounts_of_the_users_over_the_files(
    dgx: Machine, engine: PrivateDockerd, files: int
) -> None:
    mine = engine.base / "mine"
    mine.write_text("127.0.0.1 localhost\n")
    names = ["hosts", "resolv.conf", "hostname"][:files]
    covered = [f"--volume={mine}:/etc/{name}:ro" for name in names]
    gets(dgx, engine, [*covered, "--label=gpushim.gpus=device=3"], 3)


@pytest.fixture
def started(dgx: Machine, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """How often gpushim's launcher has started Python, which it does by way of a script here."""
    launcher = Path(dgx.launcher)
    text = launcher.read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("_python=")]
    python, note = tmp_path / "python", tmp_path / "started"
    program = line.partition("=")[2]
    python.write_text(f'#!/bin/sh\necho started >>{note}\nexec {program} "$@"\n')
    python.chmod(0o755)
    launcher.write_text(text.replace(line, f"_python='{python}'"))
    yield lambda: len(note.read_text().splitlines()) if note.exists() else 0
    launcher.write_text(text)


def test_who_asks_for_nothing(
    dgx: Machine, engine: PrivateDockerd, started: Callable[[], int]
) -> None:
    """B34: config.json stays byte for byte, and no Python is started in the container's life."""
    options = ["--runtime=noted", "--label=a=b", "-e", "A=gpushim", "-m=64m", "--init"]
    with Detached(engine, *options, image="busybox") as container:
        original = (engine.base / f"specs/{container.id}.json").read_bytes()
        assert (container.bundle / "config.json").read_bytes() == original
        assert not list(container.bundle.glob("config.json?*"))
        assert container.exec("true") == ""
        container.docker("restart", "--time=0")
    assert started() == 0
    gets(dgx, engine, ["--label=gpushim.gpus=1"], 0)
    assert started() == 1


def test_none_by_the_gpus_option(dgx: Machine, engine: PrivateDockerd) -> None:
    """B34: an image's own `all` does not count, nor does the vendor's hook that Docker adds."""
    image = engine.import_image("busybox", ["ENV NVIDIA_VISIBLE_DEVICES=all"])
    words = ["run", "--rm", "--network=none", "--gpus=0", image]
    seen = engine.docker(*words, *LOOK, check=True).stdout
    assert devices(seen) == {}
    assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not (engine.base / "hook-ran").exists()


def test_explain_after_a_restart_and_by_another_name(
    dgx: Machine, engine: PrivateDockerd, explain: Callable[[str], str]
) -> None:
    with Detached(engine, "--gpus=device=1", "--name=before", image="busybox") as container:
        assert f"  1: {dgx.uuids(1)} (" in explain("before")
        engine.docker("rename", "before", "after", check=True)
        container.docker("restart", "--time=0")
        assert f"Container {container.id} (after)" in explain("after")
        shown = json.loads(dgx.installed.ctl("explain", "--json", "after"))
        assert shown["name"] == "after"
        assert shown["request"]["sources"]["devices"] == "device request for 1"
