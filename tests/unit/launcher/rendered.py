"""The real launcher, rendered for a test, with a stand-in for the low-level runtime that dumps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpushim.admin.programs import fill_in

HERE = Path(__file__).parent
CODE = Path(__file__).resolve().parents[3] / "shim"
TEMPLATE = CODE / "gpushim" / "launcher.sh"


def build_dump(directory: Path) -> Path:
    """Compile the stand-in once."""
    program = directory / "dump"
    command = ["gcc", "-O1", "-o", str(program), str(HERE / "dump.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


class Dump:
    """What the stand-in saw."""

    def __init__(self, program: Path) -> None:
        def read(name: str) -> bytes:
            return Path(f"{program}.{name}").read_bytes()

        self.arguments = read("cmdline").split(b"\0")[:-1]
        entries = [entry for entry in read("environ").split(b"\0") if entry]
        self.environment = dict(entry.split(b"=", 1) for entry in entries)
        self.cwd = read("cwd")
        self.limits = read("limits")
        self.status = dict(
            line.split(":\t", 1) for line in read("status").decode().splitlines() if ":\t" in line
        )
        self.facts = dict(line.split(" ", 1) for line in read("facts").decode().splitlines())

    @property
    def descriptors(self) -> set[int]:
        return {int(word) for word in self.facts["fds"].split()}

    def ignores(self, signal: int) -> bool:
        return bool(int(self.status["SigIgn"], 16) >> (signal - 1) & 1)


class Launcher:
    """A launcher with places of its own in `directory`; its attributes may be changed before it
    is rendered by `install`."""

    def __init__(self, directory: Path, dump: Path) -> None:
        self.directory = directory
        self.program = directory / "bin" / "gpushim"
        self.low_level = directory / "bin" / "runc"
        self.other_low_level = ""
        self.family = "runc"
        self.python = sys.executable
        self.code = str(CODE)
        self.template = TEMPLATE.read_text()
        self.containers = directory / "run" / "gpushim" / "containers"
        self.docker = directory / "var" / "lib" / "docker"
        self.program.parent.mkdir(parents=True)
        shutil.copy(dump, self.low_level)

    def install(self) -> Launcher:
        values = {
            "ROOT": str(self.directory),
            "PYTHON": self.python,
            "CODE": self.code,
            "REFRESH_PYTHON": sys.executable,
            "LOW_LEVEL": str(self.low_level),
            "LOW_LEVEL_FAMILY": self.family,
            "OTHER_LOW_LEVEL": self.other_low_level,
            "CONTAINERS": str(self.containers),
            "SETTINGS": str(self.directory / "var/lib/gpushim/launcher.conf"),
            "CONFIG": str(self.directory / "etc/gpushim/config.toml"),
        }
        usual = "_docker=/var/lib/docker\n"
        assert usual in self.template
        text = self.template.replace(usual, f"_docker='{self.docker}'\n")
        self.program.write_text(fill_in(text, values))
        self.program.chmod(0o755)
        return self

    def call(
        self,
        *arguments: str | bytes | Path,
        environment: Mapping[str, str] | None = None,
        **how: object,
    ) -> subprocess.CompletedProcess[str]:
        self.forget()
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            [str(self.program), *arguments],
            env=dict(os.environ) if environment is None else dict(environment),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
            **how,
        )

    def forget(self) -> None:
        """Remove what an earlier call dumped."""
        for path in self.program.parent.glob("*.cmdline"):
            path.unlink()

    def reached(self, program: Path | None = None) -> Dump | None:
        """What reached the low-level runtime; None if nothing did."""
        program = program or self.low_level
        return Dump(program) if Path(f"{program}.cmdline").exists() else None

    def configure(self, text: str) -> Launcher:
        """Write the settings file, of `text` behind what every version has in it."""
        path = self.directory / "var/lib/gpushim/launcher.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"low_level='{self.low_level}'\nother_low_level=''\nlow_level_family='runc'\n{text}"
        )
        return self

    def stub_python(self) -> Launcher:
        """Let the stand-in take Python's place, too: then it is seen whether Python is started."""
        python = self.program.parent / "python"
        shutil.copy(self.low_level, python)
        self.python = str(python)
        return self

    def python_started(self) -> Dump | None:
        return self.reached(Path(self.python))


def words(values: Sequence[str | Path]) -> list[bytes]:
    """Arguments as they reach a program."""
    return [os.fsencode(value) for value in values]
