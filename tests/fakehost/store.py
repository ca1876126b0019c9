"""What a fake host remembers of itself, in var/lib/fakehost, so that any process can control it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .description import Description, from_json, to_json
from .render import MODULES, STORE
from .state import Load, Running
from .tree import write_file

FORMAT = 1


def save(root: Path, description: Description, running: Running) -> None:
    """Writes description and running state as JSON."""
    data = {
        "format": FORMAT,
        "description": to_json(description),
        "running": asdict(running),
    }
    write_file(root / STORE / "host.json", json.dumps(data, indent=1).encode())


def load(root: Path) -> tuple[Description, Running]:
    """Reads what `save` wrote."""
    data: dict[str, Any] = json.loads((root / STORE / "host.json").read_text())
    if data["format"] != FORMAT:
        raise ValueError(f"{root} is a fake host of format {data['format']}, not {FORMAT}")
    running = data["running"]
    loads = {}
    for uuid, entry in running.pop("loads").items():
        entry["processes"] = [tuple(process) for process in entry["processes"]]
        loads[uuid] = Load(**entry)
    return from_json(data["description"]), Running(loads=loads, **running)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """One change of a host at a time, whoever makes it."""
    with open(root / STORE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def loaded_modules(root: Path) -> set[str]:
    """NVIDIA's modules that the host has at the moment; the fake modprobe may have loaded them."""
    return {module for module in MODULES if (root / "sys/module" / module).is_dir()}


def run_ldconfig(root: Path) -> None:
    """Makes etc/ld.so.cache as the machine's ldconfig does; without one the file is left out."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if Path(program).exists():
            subprocess.run([program, "-r", str(root)], capture_output=True, check=False)
            return
