"""An installation of gpushim beneath a root of its own, made by the real installer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpushim.places import Places


class Installed:
    """A private installation; its launcher stands where a low-level runtime would.

    ``configuration`` is its config.toml. Docker knows nothing of it. Calls of the runtime are
    made on ``launcher``; ``ctl`` runs its gpushimctl.
    """

    def __init__(self, root: Path, configuration: str = "") -> None:
        self.root = root
        self.places = Places(str(root))
        self.launcher = Path(self.places.launcher)
        root.mkdir(parents=True, exist_ok=True)
        file = root / "wanted.toml"
        file.write_text(configuration)
        self.ctl("install", "--no-docker", "--config-from", file)

    def ctl(self, *arguments: str | Path) -> str:
        """What a verb of gpushimctl prints; the test fails if the verb does."""
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", str(self.root)]
        done = subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def log(self) -> str:
        """gpushim's own log until now."""
        path = Path(self.places.default_log_file)
        return path.read_text() if path.exists() else ""
