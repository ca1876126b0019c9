"""Docker's own records on a real dockerd: what they hold, and how they are found from a spec."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpushim.admin.programs import fill_in
from gpushim.request.dockerrecord import (
    DockerRecord,
    cdi_names,
    find_by_spec,
    gpu_requests,
    name_by_spec,
)

from tests.conftest import cannot
from tests.harness import EngineUnavailable, PrivateDockerd, workspace
from tests.harness.dockered import Detached
from tests.harness.engine import tool
from tests.unit.launcher.rendered import CODE, TEMPLATE

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateDockerd]:
    """A dockerd with runc alone, and with "launcher", which notes for whom it starts Python.

    An executable with the name of the vendor's hook is on dockerd's PATH: without one Docker
    refuses --gpus.
    """
    tools = workspace.make("tools", Path("/var/tmp"))
    launcher = tools / "gpushim"
    engine = PrivateDockerd(runtimes={"launcher": {"path": str(launcher)}}, path=[tools])
    programs = {
        tools / "nvidia-container-runtime-hook": "#!/bin/sh\n",
        # Behind the interpreter's two options, its program and what that is told come the words
        # that the engine gave.
        tools / "python": f"#!/bin/sh\nshift 9\necho \"$@\" >>{tools}/started\nexec runc \"$@\"\n",
        launcher: fill_in(
            TEMPLATE.read_text(),
            {
                "ROOT": str(tools),
                "PYTHON": str(tools / "python"),
                "CODE": str(CODE),
                "REFRESH_PYTHON": "/bin/false",
                "LOW_LEVEL": tool("runc"),
                "LOW_LEVEL_FAMILY": "runc",
                "OTHER_LOW_LEVEL": "",
                "CONTAINERS": str(tools / "containers"),
                "SETTINGS": str(tools / "launcher.conf"),
                "CONFIG": str(tools / "config.toml"),
            },
        ),
    }  # fmt: skip
    for path, text in programs.items():
        path.write_text(text)
        path.chmod(0o755)
    try:
        engine.start()
    except EngineUnavailable as reason:
        engine.stop()
        cannot(str(reason))
    yield engine
    engine.stop()
    workspace.remove(tools)


@pytest.fixture
def python_started(engine: PrivateDockerd) -> Callable[[str], bool]:
    """Whether the launcher started Python to create a container of this id."""
    tools = Path(engine.environment["PATH"].partition(":")[0])

    def started(container: str) -> bool:
        file = tools / "started"
        lines = file.read_text().splitlines() if file.exists() else []
        return any(line.endswith(container) and " create " in line for line in lines)

    return started


def found(container: Detached) -> DockerRecord:
    """The record, as it is found from the container's spec."""
    record, problems = find_by_spec(container.spec, container.id)
    assert record is not None
    assert problems == []
    assert record.directory == f"{container.engine.data_root}/containers/{container.id}"
    return record


def requests(record: DockerRecord) -> list[tuple[str, int, list[str], dict[str, str]]]:
    asked = gpu_requests(record)
    assert all("gpu" in words for request in asked for words in request.capabilities)
    return [(one.driver, one.count, one.ids, one.options) for one in asked]


# What --gpus is given, and the device request that becomes of it.
GPUS = [
    ("2", ("", 2, [], {})),
    ("all", ("", -1, [], {})),
    ('"device=0,1"', ("", 0, ["0", "1"], {})),
    ("device=GPU-1b2c", ("", 0, ["GPU-1b2c"], {})),
    ('count=2,"options=memory=2gb"', ("", 2, [], {"memory": "2gb"})),
    ('all,"options=memory=50%,compute=20%"', ("", -1, [], {"memory": "50%", "compute": "20%"})),
    ("driver=nvidia,count=1", ("nvidia", 1, [], {})),
    ('1,"capabilities=utility,compute"', ("", 1, [], {})),
    ("0", ("", 0, [], {})),
]


@pytest.mark.parametrize(("gpus", "expected"), GPUS, ids=[gpus for gpus, _ in GPUS])
def test_gpus(
    engine: PrivateDockerd,
    python_started: Callable[[str], bool],
    gpus: str,
    expected: tuple[str, int, list[str], dict[str, str]],
) -> None:
    with Detached(engine, "--runtime=launcher", "--gpus", gpus, image="busybox") as container:
        assert requests(found(container)) == [expected]
        assert python_started(container.id)


def test_a_count_and_a_choice_look_the_same_in_the_spec(engine: PrivateDockerd) -> None:
    """Which is why the record is read."""
    seen = []
    for gpus in ("2", '"device=0,1"'):
        with Detached(engine, "--gpus", gpus, image="busybox") as container:
            env = container.spec["process"]["env"]
            seen.append(([entry for entry in env if "NVIDIA" in entry], requests(found(container))))
    assert seen[0][0] == seen[1][0] == ["NVIDIA_VISIBLE_DEVICES=0,1"]
    assert seen[0][1] != seen[1][1]


def test_what_articles_have_and_docker_refuses(engine: PrivateDockerd) -> None:
    """Options have to be in quotes of their own."""
    tag = engine.import_image("busybox")
    done = engine.docker("run", "--rm", "--gpus", '"device=0,1","memory=2gb"', tag, "true")
    assert done.returncode != 0
    assert "unexpected key 'memory'" in done.stderr


def test_labels(engine: PrivateDockerd, python_started: Callable[[str], bool]) -> None:
    """Of the container, those of its image included; nothing of them is in the spec."""
    options = ["--runtime=launcher", "--label=gpushim.gpus=2", '--label=other=ä "x" <&>']
    with Detached(engine, *options, "--name=labelled", image="busybox") as container:
        record = found(container)
        assert record.labels == {"gpushim.gpus": "2", "other": 'ä "x" <&>'}
        assert (record.name, record.requests) == ("labelled", [])
        assert name_by_spec(container.spec, container.id) == "labelled"
        assert "gpushim." not in json.dumps(container.spec)
        assert python_started(container.id)
    image = engine.import_image("busybox", ["LABEL gpushim.memory=2gb gpushim.gpus=1"])
    words = ["create", "--network=none", "--runtime=launcher", "--label=gpushim.gpus=3", image]
    made = engine.docker(*words, "sleep", "60", check=True).stdout.strip()
    engine.docker("start", made, check=True)
    assert python_started(made)
    directory = engine.data_root / "containers" / made
    merged, _ = find_by_spec({"root": {"path": f"{engine.data_root}/vfs/dir/1"}}, made)
    assert merged is not None
    assert merged.directory == str(directory)
    assert merged.labels == {"gpushim.gpus": "3", "gpushim.memory": "2gb"}


def test_nothing_asked(engine: PrivateDockerd, python_started: Callable[[str], bool]) -> None:
    options = ["--runtime=launcher", "--label=a=b", "-e", "A=gpushim"]
    with Detached(engine, *options, image="busybox") as container:
        record = found(container)
        assert (record.labels, record.requests) == ({"a": "b"}, [])
        assert not python_started(container.id)


def test_the_network_of_another_container(
    engine: PrivateDockerd, python_started: Callable[[str], bool]
) -> None:
    """All three files are the other's, and labels and device requests are not."""
    asking = ["--runtime=launcher", "--gpus=2", "--label=gpushim.memory=1gb"]
    for first, second in ((asking, ["--runtime=launcher"]), (["--label=x=y"], asking)):
        with Detached(engine, *first, image="busybox") as other:
            tag = engine.import_image("busybox")
            words = ["run", "-d", f"--network=container:{other.id}", *second, tag, "sleep", "300"]
            made = engine.docker(*words, check=True).stdout.strip()
            (spec,) = engine.exec_root.glob(f"**/{made}/config.json")
            text = spec.read_text()
            assert text.count(f"/containers/{other.id}/") == 3
            assert f"/containers/{made}/" not in text
            record, problems = find_by_spec(json.loads(text), made)
            assert record is not None
            assert problems == []
            assert record.directory.endswith(made)
            assert bool(record.requests) == (second == asking)
            assert record.labels == ({"gpushim.memory": "1gb"} if second == asking else {})
            assert python_started(made) == (second == asking)
            engine.docker("rm", "--force", made)


@pytest.mark.parametrize("files", [1, 2, 3])
def test_mounts_of_the_users(
    engine: PrivateDockerd, python_started: Callable[[str], bool], files: int
) -> None:
    """Over all three files, and it is the root file system that tells where the record is."""
    mine = engine.base / "mine"
    mine.write_text("127.0.0.1 localhost\n")
    names: Sequence[str] = ["hosts", "resolv.conf", "hostname"]
    for first in range(3):
        covered = [*names[first:], *names[:first]][:files]
        options = [f"--volume={mine}:/etc/{name}:ro" for name in covered]
        asked = ["--runtime=launcher", "--label=gpushim.gpus=1"]
        with Detached(engine, *asked, *options, image="busybox") as container:
            sources = json.dumps(container.spec["mounts"])
            assert sources.count(f"/containers/{container.id}/") == 3 - files
            assert found(container).labels == {"gpushim.gpus": "1"}
            assert python_started(container.id)


@pytest.mark.parametrize(
    "options",
    [
        ["--network=host", "--uts=host", "--pid=host", "--ipc=host"],
        ["--read-only", "--hostname=h", "--add-host=a:1.2.3.4"],
        ["--user=1000:1000", "--init"],
        ["--tmpfs=/etc"],
    ],
)
def test_whatever_else_is_asked_for(engine: PrivateDockerd, options: list[str]) -> None:
    words = ["--gpus=2", *options]
    network = ["--network=none"] if not any("--network" in word for word in options) else []
    tag = engine.import_image("busybox")
    made = engine.docker("run", "-d", *network, *words, tag, "sleep", "60", check=True)
    container = made.stdout.strip()
    (spec,) = engine.exec_root.glob(f"**/{container}/config.json")
    record, problems = find_by_spec(json.loads(spec.read_text()), container)
    assert record is not None
    assert (requests(record), problems) == ([("", 2, [], {})], [])
    engine.docker("rm", "--force", container)


def test_again_after_a_stop(engine: PrivateDockerd) -> None:
    """The record is there at each start, and has the container's new name."""
    with Detached(engine, "--gpus=2", "--name=before", image="busybox") as container:
        container.docker("stop")
        engine.docker("rename", "before", "after", check=True)
        container.docker("start")
        record = found(container)
        assert (record.name, requests(record)) == ("after", [("", 2, [], {})])


@pytest.fixture
def client(engine: PrivateDockerd) -> Iterator[Any]:
    """The Docker SDK for Python, on this engine."""
    try:
        docker = importlib.import_module("docker")
    except ImportError:
        cannot("the Docker SDK for Python is not installed")
    client = docker.DockerClient(base_url=f"unix://{engine.socket}")
    yield client
    client.close()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            {"driver": "nvidia", "count": 2, "options": {"memory": "2gb"}},
            ("nvidia", 2, [], {"memory": "2gb"}),
        ),
        ({"count": -1}, ("", -1, [], {})),
        ({"device_ids": ["0", "2"]}, ("", 0, ["0", "2"], {})),
        ({"driver": "nvidia", "count": -1, "options": {}}, ("nvidia", -1, [], {})),
    ],
)
def test_the_sdk_for_python(
    engine: PrivateDockerd,
    client: Any,
    python_started: Callable[[str], bool],
    request_: dict[str, Any],
    expected: tuple[str, int, list[str], dict[str, str]],
) -> None:
    types = importlib.import_module("docker.types")
    container = client.containers.run(
        engine.import_image("busybox"),
        ["sleep", "300"],
        detach=True,
        network_mode="none",
        runtime="launcher",
        labels={"gpushim.priority": "5"},
        device_requests=[types.DeviceRequest(capabilities=[["gpu"]], **request_)],
    )
    (spec,) = engine.exec_root.glob(f"**/{container.id}/config.json")
    record, problems = find_by_spec(json.loads(spec.read_text()), container.id)
    assert record is not None
    assert problems == []
    assert (record.name, record.labels) == (container.name, {"gpushim.priority": "5"})
    assert requests(record) == [expected]
    assert cdi_names(record) == []
    assert python_started(container.id)
    container.remove(force=True)


def test_requests_by_other_words(engine: PrivateDockerd, client: Any) -> None:
    """Docker's driver for NVIDIA knows more words than gpu, and refuses what it does not know."""
    types = importlib.import_module("docker.types")
    tag = engine.import_image("busybox")
    for driver, words, wanted in (
        ("nvidia", [["utility"]], True),
        ("", [["nvidia", "compute"]], True),
        ("", [["tpu"], ["compute", "utility"]], True),
        ("nvidia", [["tpu"]], None),
        ("nvidia", [["gpu", "amd"]], None),
        ("nvidia", [], None),
        ("amd", [["gpu"]], None),
    ):
        asked = types.DeviceRequest(driver=driver, count=1, capabilities=words)
        how = {"detach": True, "network_mode": "none", "device_requests": [asked]}
        container = client.containers.create(tag, ["sleep", "300"], **how)
        try:
            if wanted is None:
                with pytest.raises(Exception, match="could not select device driver"):
                    container.start()
                continue
            container.start()
            (spec,) = engine.exec_root.glob(f"**/{container.id}/config.json")
            record, _ = find_by_spec(json.loads(spec.read_text()), container.id)
            assert record is not None
            assert bool(gpu_requests(record)) == wanted, (driver, words)
            assert "NVIDIA_VISIBLE_DEVICES=0" in spec.read_text()
        finally:
            container.remove(force=True)
