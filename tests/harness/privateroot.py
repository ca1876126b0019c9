"""A root of its own that gpushimctl installs into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpushim.places import Places

Completed = subprocess.CompletedProcess[str]


class Root:
    """A private root, and gpushimctl working on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places = Places(str(path))

    def ctl(self, *arguments: str | Path) -> Completed:
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", str(self.path)]
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, encoding="utf-8", timeout=120
        )

    def well(self, *arguments: str | Path) -> str:
        done = self.ctl(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tree(self) -> dict[str, tuple[Any, ...]]:
        """All that is beneath the root, except for what a refresh writes."""
        found: dict[str, tuple[Any, ...]] = {}
        for directory, names, files in os.walk(self.path):
            for name in (*names, *files):
                path = Path(directory, name)
                status = path.lstat()
                if path.is_relative_to(self.places.run) and path.is_file():
                    continue
                content = path.read_bytes() if path.is_file() else b""
                times = () if path.is_dir() else (status.st_mtime_ns, status.st_ino)
                found[str(path)] = (oct(status.st_mode), content, *times)
        return found

    @property
    def record(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(Path(self.places.installation).read_text())
        return data
