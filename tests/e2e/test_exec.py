"""Processes that are started later in a container with GPUs: they see what the first one sees."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Bundle, PrivateDockerd, Runtime
from tests.harness.dockered import Detached
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, outcomes, probe, variables

pytestmark = pytest.mark.docker

OURS = ("NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def files_of(engine: PrivateDockerd) -> set[str]:
    """Every file that the engine and gpushim keep while containers run."""
    return {
        os.path.join(directory, name)
        for top in (engine.exec_root, engine.run)
        for directory, _, names in os.walk(top)
        for name in names
        if "/rootfs/" not in directory
    }


def descriptors(engine: PrivateDockerd) -> int:
    """How many files all processes of the engine have open."""
    count = 0
    for pid in engine.processes():
        try:
            count += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return count


def test_what_a_later_process_sees(dgx: Machine, engine: PrivateDockerd) -> None:
    look = probe(["open", *NODES], ["dlopen", "libcuda.so.1"], ["env"])
    with Detached(engine, gpus="1,3") as container:
        for options in (
            [],
            ["--user=1000"],
            ["--workdir=/tmp"],
            ["--env=NVIDIA_VISIBLE_DEVICES=all"],
            ["--env=CUDA_DEVICE_ORDER=FASTEST_FIRST", "--env=A=b c"],
            ["--env=CUDA_VISIBLE_DEVICES=3"],
        ):
            seen = container.exec(*options, *look)
            assert devices(seen) == dict.fromkeys([*CONTROL, dgx.node(1), dgx.node(3)], "ENXIO")
            assert outcomes(seen)["libcuda.so.1"].startswith("/usr/local/nvidia/")
            names = [line.partition("=")[0] for line in seen.splitlines() if "=" in line]
            assert [names.count(name) for name in OURS] == [1, 1]
            found = variables(seen)
            assert found["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(1, 3)
            if "--env=A=b c" in options:
                assert found["A"] == "b c"
                assert found["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
            if options == ["--env=CUDA_VISIBLE_DEVICES=3"]:
                # 3 counts as the host does; in the container there are 0 and 1.
                assert found["CUDA_VISIBLE_DEVICES"] == dgx.uuids(3)


def test_statuses_input_and_terminals(engine: PrivateDockerd) -> None:
    with Detached(engine, gpus="1") as container:
        done = engine.docker("exec", container.id, *probe(["exit", "9"]))
        assert done.returncode == 9
        assert engine.docker("exec", container.id, "/no/such").returncode in (126, 127)
        given = engine.docker("exec", "-i", container.id, "cat", input="through\n")
        assert given.stdout == "through\n"
        command = f"docker exec -it {container.id} sh -c 'tty; echo $NVIDIA_VISIBLE_DEVICES'"
        shown = subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            env={**engine.client_environment(), "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "/dev/pts/" in shown.stdout
        assert "GPU-" in shown.stdout
        engine.docker("exec", "--detach", container.id, "sh", "-c", "env >/tmp/env", check=True)
        seen = ""
        for _ in range(100):
            seen = container.exec("cat", "/tmp/env")
            if "GPU-" in seen:
                break
            time.sleep(0.05)
        assert "NVIDIA_VISIBLE_DEVICES=GPU-" in seen


def test_a_health_check(engine: PrivateDockerd) -> None:
    check = "case $NVIDIA_VISIBLE_DEVICES in GPU-*) nvidia-smi -L;; *) exit 1;; esac"
    options = ["--health-interval=100ms", "--health-retries=1", f"--health-cmd={check}"]
    with Detached(engine, *options, gpus="1,3") as container:
        log: list[dict[str, str]] = []
        for _ in range(200):
            shown = json.loads(engine.docker("inspect", container.id).stdout)[0]
            log = shown["State"]["Health"]["Log"]
            if log:
                break
            time.sleep(0.05)
        assert log[0]["Output"].count("GPU ") == 2
        assert shown["State"]["Health"]["Status"] == "healthy"


def test_a_hundred_execs_leave_nothing(dgx: Machine, engine: PrivateDockerd) -> None:
    with Detached(engine, gpus="1") as container:
        for number in range(102):
            done = engine.docker("exec", container.id, *probe(["exit", "0"]))
            assert done.returncode == 0, done.stderr
            if number == 1:
                # The first ones may open what stays open, and the engine tidies up a bit later.
                time.sleep(0.5)
                before = files_of(engine), descriptors(engine), len(dgx.installed.log)
        for _ in range(100):
            after = files_of(engine), descriptors(engine), len(dgx.installed.log)
            if after[0] <= before[0]:
                break
            time.sleep(0.05)
    assert after[0] <= before[0]
    assert after[1] < before[1] + 50
    assert after[2] == before[2]


def test_into_a_container_without_gpus(dgx: Machine, engine: PrivateDockerd) -> None:
    with Detached(engine, image="busybox") as container:
        assert container.id not in dgx.records()
        seen = container.exec(*probe(["env"]))
        assert not any(name in variables(seen) for name in OURS)


class Process:
    """A process file as an engine brings it, for a container under plain runc."""

    def __init__(self, runtime: Runtime, bundle: Bundle) -> None:
        self.runtime, self.bundle = runtime, bundle
        self.path = runtime.directory / "process.json"

    def exec(self, text: str | bytes, *options: str) -> str:
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.path.chmod(0o640)
        os.chown(self.path, 7, 8)
        result = self.runtime.call("exec", *options, "--process", self.path, self.bundle.id)
        return result.stdout + result.stderr


@pytest.fixture
def process(gpushim: Runtime, make_bundle: Callable[..., Bundle]) -> Process:
    bundle = make_bundle("busybox", probe(["sleep", "100"]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    gpushim.create(bundle).check()
    gpushim.start(bundle.id).check()
    return Process(gpushim, bundle)


def test_the_engines_process_file(dgx: Machine, process: Process) -> None:
    """Replaced beside itself, with its owner; bytes that are no UTF-8 survive."""
    content = {**process.bundle.config["process"], "args": probe(["env"]), "env": ["PATH=/bin"]}
    text = json.dumps(content).replace("PATH=/bin", 'PATH=/bin","ODD=\xff","UNI=\u00e9')
    seen = process.exec(text.encode("latin-1"))
    assert f"NVIDIA_VISIBLE_DEVICES={dgx.uuids(1)}\n" in seen
    facts = os.stat(process.path)
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (7, 8, 0o600)
    assert b"ODD=\xff" in process.path.read_bytes()
    assert [path.name for path in process.path.parent.glob("process*")] == ["process.json"]
    # Once more, with what gpushim wrote: nothing is added twice.
    before = process.path.read_bytes()
    process.exec(before)
    assert process.path.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"env":7,"args":["/bin/true"],"cwd":"/"}', "\x00" * 9]
)
def test_a_process_file_that_is_none(process: Process, runc: Runtime, text: str) -> None:
    """The low-level runtime says what is wrong with it, and the file stays."""
    seen = process.exec(text)
    assert "gpushim" not in seen
    assert "Traceback" not in seen
    assert process.path.read_text() == text


def test_a_process_file_that_cannot_be_replaced(dgx: Machine, process: Process) -> None:
    """The process starts without the variables, as where Python is gone; the log says so."""
    content = {**process.bundle.config["process"], "args": probe(["env"]), "env": ["A=b"]}
    full = process.runtime.directory / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", full], check=True)
    try:
        process.path = full / "process.json"
        seen = process.exec(json.dumps(content)[:4000])
    finally:
        subprocess.run(["umount", full], check=True)
    assert "A=b\n" in seen
    assert "has not got the GPUs' variables" in dgx.log_lines()[-1]["warnings"][-1]


def test_a_process_file_on_standard_input(process: Process) -> None:
    """It can't be replaced for the low-level runtime, and nothing else of that name may be."""
    content = {**process.bundle.config["process"], "args": probe(["env"]), "env": ["A=b"]}
    given = process.runtime.directory / "given.json"
    given.write_text(json.dumps(content))
    command = [*process.runtime.command, f"--root={process.runtime.root}", "exec"]
    command += ["--process", "/dev/stdin", process.bundle.id]
    before = os.stat(given).st_ino
    with given.open("rb") as file:
        from_file = subprocess.run(command, capture_output=True, timeout=60, stdin=file)
    from_pipe = subprocess.run(command, capture_output=True, timeout=60, input=given.read_bytes())
    for done in (from_file, from_pipe):
        assert done.returncode == 0, done.stderr
        assert b"A=b\n" in done.stdout
    assert os.stat(given).st_ino == before
    assert given.read_text() == json.dumps(content)


def test_a_name_that_another_container_had(
    dgx: Machine, process: Process, make_bundle: Callable[..., Bundle]
) -> None:
    """What is on record of a container with GPUs is not true of the next one of its name."""
    name = process.bundle.id
    process.runtime.delete(name, "--force").check()
    process.bundle = make_bundle("busybox", probe(["sleep", "100"]))
    process.bundle.id = name
    process.runtime.create(process.bundle).check()
    process.runtime.start(name).check()
    assert name not in dgx.records()
    content = {**process.bundle.config["process"], "args": probe(["env"]), "env": ["A=b"]}
    assert "NVIDIA_VISIBLE_DEVICES" not in process.exec(json.dumps(content))


def test_without_a_record(dgx: Machine, process: Process) -> None:
    """A record that is gone or damaged is no reason to refuse a process."""
    directory = Path(dgx.places.containers, process.bundle.id)
    content = json.dumps({**process.bundle.config["process"], "args": probe(["env"])})
    for damage in ("", "{", '{"format":1}', '{"format":99}'):
        for record in directory.glob("*.json"):
            record.write_text(damage)
        seen = process.exec(content)
        assert "PATH=" in seen
        assert "gpushim:" not in seen
