"""Asking a fake host: the real pynvml in a process of its own, and the host's programs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.fakehost import FakeHost

CHILD = Path(__file__).with_name("nvml_child.py")


def ask(host: FakeHost, program: str) -> Any:
    """What a program answers that uses the real pynvml on a host."""
    result = subprocess.run(
        [sys.executable, str(CHILD), str(host.nvml)],
        input=textwrap.dedent(program),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def tool(host: FakeHost, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of the host, with an empty environment."""
    return subprocess.run(
        [str(host.root / command[0]), *command[1:]],
        capture_output=True, text=True, timeout=30, env={}, check=False,
    )  # fmt: skip


def numbers(path: Path) -> tuple[int, int]:
    """Major and minor of a device node."""
    status = path.lstat()
    assert stat.S_ISCHR(status.st_mode), path
    return os.major(status.st_rdev), os.minor(status.st_rdev)
