"""Spec files for tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

KIND = "vendor.com/class"


def spec(
    *names: str, kind: str = KIND, version: str = "1.1.0", edits: Any = None, **devices: Any
) -> dict[str, Any]:
    """A spec with devices that each set a variable, and those whose containerEdits are given."""
    made: dict[str, Any] = {
        "cdiVersion": version,
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"env": [f"DEVICE_{name}={kind}"]}} for name in names
        ]
        + [{"name": name, "containerEdits": given} for name, given in devices.items()],
    }
    if edits is not None:
        made["containerEdits"] = edits
    return made


def write(path: Path, data: Any) -> Path:
    """Writes a spec file; a text as it is, anything else as JSON. Its time is not a recent one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data, indent=1))
    age(path)
    os.chmod(path, 0o644)
    return path


def age(path: Path, seconds: float = 10.0) -> None:
    """Makes a file look as if it had been written some time ago."""
    facts = path.stat()
    time = facts.st_mtime_ns - int(seconds * 1e9)
    os.utime(path, ns=(time, time))
