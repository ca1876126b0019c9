"""A machine with two GPUs, gpushim on it, and the stand-in in the low-level runtime's place."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from gpushim.admin.interpreters import for_create

from tests.fakehost import Description, FakeHost, build
from tests.harness.installed import Installed
from tests.unit.launcher.rendered import CODE, Dump


class Machine:
    """A fake host, a private installation on it, and bundles whose root is a plain directory."""

    def __init__(self, base: Path, dump: Path) -> None:
        self.host: FakeHost = build(base / "host", Description(gpus=2))
        self.low_level = base / "runc"
        shutil.copy(dump, self.low_level)
        self.base = base
        runtimes = f'[runtime]\nlow-level-runtimes = ["{self.low_level}"]\n'
        self.installed = Installed(base / "root", runtimes + self.host.toml())
        self.python = for_create()

    def bundle(self, *environment: str) -> Path:
        path = self.base / "bundle"
        (path / "rootfs" / "etc").mkdir(parents=True, exist_ok=True)
        spec = {
            "ociVersion": "1.0.2",
            "process": {"env": list(environment)},
            "root": {"path": "rootfs"},
        }
        (path / "config.json").write_text(json.dumps(spec))
        return path

    def call(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Call gpushim as an engine does."""
        for path in self.base.glob("runc.*"):
            path.unlink()
        return subprocess.run(
            [str(self.installed.launcher), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
        )

    def reached(self) -> Dump | None:
        """What reached the low-level runtime by the last call."""
        return Dump(self.low_level) if Path(f"{self.low_level}.cmdline").exists() else None

    def imports(self, *arguments: str) -> set[str]:
        """The modules that a call imports where install has not put them into one file."""
        stat = Path("/proc/self/stat").read_text().strip()
        words = [str(self.installed.root), str(self.low_level), "runc", stat, "", *arguments]
        bare = _imported([self.python, "-I", "-S", "-X", "importtime", "-c", "pass"])
        # Not by entry.py, which would take the modules from the one file that install made.
        code = "import sys; sys.path.insert(0, sys.argv[1]); from gpushim.main import main; "
        code += "main(sys.argv[2:])"
        timed = [self.python, "-I", "-S", "-X", "importtime", "-c", code, str(CODE)]
        return _imported([*timed, *words]) - bare


def _imported(command: list[str]) -> set[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}
