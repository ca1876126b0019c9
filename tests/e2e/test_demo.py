"""The demo runs on this machine, and every expectation in it holds."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.demo"]


def abandoned() -> set[Path]:
    """Directories of the demo and of a dockerd that no process holds any more."""
    found = set()
    for parent in ("/var/tmp", "/run"):
        for kind in ("demo", "docker"):
            for path in Path(parent).glob(f"gpushim-harness-{kind}-*"):
                if not is_held(path):
                    found.add(path)
    return found


def is_held(path: Path) -> bool:
    """Whether its process lives; those of tests that run beside this one come and go."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


@pytest.mark.docker
def test_every_expectation_of_the_demo_holds(template: Callable[[str], Path]) -> None:
    template("debian")  # Building it takes longer than the demo may.
    before = abandoned()
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    for line in (
        "has read it: no restart is needed",
        "is refused: EPERM",
        "libcuda.so.1 -> /usr/local/nvidia/lib64/libcuda.so.1",
        "Asked for: ",
        "gpushim: GPUs were asked for by environment NVIDIA_VISIBLE_DEVICES=",
        "daemon.json is byte for byte as it was",
        "all that was started has ended, all that was made is gone",
    ):
        assert line in " ".join(done.stdout.split()), line
    assert done.stdout.rstrip().endswith("expectations held.")
    assert abandoned() <= before


@pytest.mark.docker
def test_a_demo_that_is_ended_leaves_nothing(template: Callable[[str], Path]) -> None:
    template("debian")
    before = abandoned()
    with subprocess.Popen(
        COMMAND, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("A container on GPU"):
                process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert abandoned() <= before
