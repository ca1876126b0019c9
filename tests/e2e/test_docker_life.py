"""What happens to a container with GPUs after its start: restarts, updates, commits, crowds."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fakehost import preset
from tests.harness import PrivateDockerd
from tests.harness.dockered import Detached, run
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, mount_points, outcomes, probe, variables

pytestmark = pytest.mark.docker

LOOK = probe(["open", *NODES], ["dlopen", "libcuda.so.1"], ["env"])


def test_restart_stop_start_pause_update(dgx: Machine, engine: PrivateDockerd) -> None:
    """B47: the GPUs stay through all of it, and the record lives as long as the container."""
    with Detached(engine, gpus="1,3") as container:
        for verb in (["restart", "-t0"], ["stop", "-t0"], ["start"], ["kill"], ["start"]):
            container.docker(*verb)
            if verb[0] in ("stop", "kill"):
                continue
            assert container.id in dgx.records()
            seen = container.exec(*LOOK)
            assert set(devices(seen)) == {*CONTROL, dgx.node(1), dgx.node(3)}
            assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(1, 3)
        container.docker("update", "--cpu-shares=512", "--memory=64m", "--memory-swap=64m")
        container.docker("pause")
        container.docker("unpause")
        assert set(devices(container.exec(*LOOK)).values()) == {"ENXIO"}
        names = [v.partition("=")[0] for v in container.spec["process"]["env"]]
        assert len(names) == len(set(names))
    # Whatever comes next collects what is left of it.
    run(engine, "--", "true", gpus="1")
    assert container.id not in dgx.records()


def test_a_restart_policy(dgx: Machine, engine: PrivateDockerd) -> None:
    """A container that ends by itself is started again, each time with its GPUs."""
    options = ["--restart=on-failure:2"]
    with Detached(
        engine, *options, gpus="1", command=probe(["open", *NODES], ["exit", "3"])
    ) as container:
        engine.docker("wait", container.id)
        seen = engine.docker("logs", container.id).stdout
        shown = json.loads(engine.docker("inspect", container.id).stdout)[0]
    assert shown["RestartCount"] <= 2
    assert f"/dev/{dgx.node(1)} ENXIO" in seen
    assert "EPERM" not in seen


@pytest.fixture(scope="module")
def other(
    dgx: Machine, engine: PrivateDockerd, tmp_path_factory: pytest.TempPathFactory
) -> Machine:
    """Another machine with another driver, whose gpushim is the runtime "other" of the engine."""
    path = tmp_path_factory.mktemp("other")
    machine = Machine(path, preset("hgx_h100", modify_device_files=0))
    settings = json.loads(engine.config_path.read_text())
    settings["runtimes"]["other"] = {"path": str(machine.launcher)}
    engine.config_path.write_text(json.dumps(settings))
    engine.reload()
    return machine


def test_commit(dgx: Machine, other: Machine, engine: PrivateDockerd) -> None:
    """B14: the image pins no GPU and no driver, with whatever runtime it is started."""
    with Detached(engine, gpus="1") as container:
        container.exec("ldconfig")
        engine.docker("commit", container.id, "committed", check=True)
    shown = json.loads(engine.docker("inspect", "committed").stdout)[0]
    assert not [value for value in shown["Config"]["Env"] if "GPU-" in value or "CUDA" in value]
    command = probe(
        ["open", *NODES],
        ["dlopen", "libcuda.so.1", "libnvidia-gpucomp.so.570.133.20", "libz.so.1", "libc.so.6"],
        ["ls", "/usr/local/nvidia"],
    )
    options = ["run", "--rm", "--network=none"]

    words = [*options, "--runtime=runc", "-e", "NVIDIA_VISIBLE_DEVICES=", "committed"]
    plain = engine.docker(*words, *command)
    assert devices(plain.stdout) == {}
    assert "libcuda.so.1 error: libcuda.so.1: cannot open" in plain.stdout
    assert outcomes(plain.stdout)["libc.so.6"].startswith("/lib/")
    # The mount point may stay, but nothing is in it.
    assert plain.stdout.rstrip().splitlines()[-1].startswith(("libc.so.6", "/usr/local/nvidia"))

    elsewhere = engine.docker(
        *options, "--runtime=other", "-e", "NVIDIA_VISIBLE_DEVICES=6", "committed", *command
    )
    found = outcomes(elsewhere.stdout)
    assert found["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.1"
    assert found["libnvidia-gpucomp.so.570.133.20"].startswith("/usr/local/nvidia/")
    assert devices(elsewhere.stdout).keys() == {*CONTROL, other.node(6)}
    # What the first driver had and the second lacks is not promised any more.
    listed = engine.docker(
        *options, "--runtime=other", "-e", "NVIDIA_VISIBLE_DEVICES=6", "committed", "ldconfig", "-p"
    ).stdout
    assert "550.163.01" not in listed
    assert listed.count("libcuda.so.1 ") == 1


def test_commit_keeps_a_request_of_the_users(dgx: Machine, engine: PrivateDockerd) -> None:
    """The committed variable is what the user wrote, not what it became."""
    with Detached(engine, gpus="1,3", image="busybox") as container:
        engine.docker("commit", container.id, "asking", check=True)
    shown = json.loads(engine.docker("inspect", "asking").stdout)[0]
    assert "NVIDIA_VISIBLE_DEVICES=1,3" in shown["Config"]["Env"]


def test_the_vfs_storage_driver(dgx: Machine) -> None:
    """A plain directory, but Docker's record says that it is the container's own: written to."""
    settings = {"storage-driver": "vfs"}
    runtimes = {"gpushim": {"path": str(dgx.launcher)}}
    with PrivateDockerd(config=settings, runtimes=runtimes) as vfs:
        options = ["--runtime=gpushim"]
        command = probe(["dlopen", "libcuda.so.1"], ["mounts"])
        done = run(vfs, *options, "--", *command, image="distroless", gpus="1")
        assert outcomes(done.stdout)["libcuda.so.1"].startswith("/usr/local/nvidia/")
        assert "/etc/ld.so.cache" not in mount_points(done.stdout)
        # The layer below stays as it was.
        done = run(vfs, "--", *command, image="distroless")
        assert "libcuda.so.1 error" in done.stdout


class Api:
    """Docker's API without its client, which would be most of the work for fifty containers."""

    def __init__(self, engine: PrivateDockerd) -> None:
        self.socket = str(engine.socket)

    def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else b""
        head = (
            f"POST {path} HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            connection.connect(self.socket)
            connection.sendall(head.encode() + data)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        status, _, content = answer.partition(b"\r\n\r\n")
        return int(status.split()[1]), json.loads(content) if content.strip() else None


def test_fifty_at_once(dgx: Machine, engine: PrivateDockerd) -> None:
    """All come up, each with its own GPUs, though the inventory is gone; one refresh serves all."""
    api = Api(engine)
    image = engine.import_image("busybox")
    asked = [str(number % 8) if number % 5 else None for number in range(50)]
    ids = []
    for gpu in asked:
        body = {
            "Image": image,
            "Cmd": probe(["sleep", "300"]),
            "Env": [f"NVIDIA_VISIBLE_DEVICES={gpu}"] if gpu else [],
            "HostConfig": {"NetworkMode": "none", "Runtime": "gpushim"},
        }
        status, answer = api.post("/containers/create", body)
        assert status == 201, answer
        ids.append(answer["Id"])
    try:
        before = [line for line in dgx.log_lines() if line["msg"] == "refreshed"]
        dgx.forget()
        with ThreadPoolExecutor(50) as pool:
            results = list(pool.map(api.post, [f"/containers/{made}/start" for made in ids]))
        assert [result for result in results if result[0] != 204] == []
        lines = dgx.log_lines()
        assert len([line for line in lines if line["msg"] == "refreshed"]) == len(before) + 1
        granted = {line["id"]: line["grant"] for line in lines if "grant" in line}
        for made, gpu in zip(ids, asked, strict=True):
            indices = [g["index"] for g in granted[made]["gpus"]] if made in granted else []
            assert indices == ([int(gpu)] if gpu else [])
            assert (made in dgx.records()) == (gpu is not None)
        assert not list(Path(dgx.places.run).glob("**/*tmp*"))
    finally:
        engine.docker("rm", "--force", *ids)
