"""A running dockerd: which one uses a configuration file, with which options, and its reload."""

from __future__ import annotations

import os
import signal

from ..errors import GpushimError, why

DEFAULT_PID_FILE = "/var/run/docker.pid"
DEFAULT_CONFIG = "/etc/docker/daemon.json"

# dockerd refuses a setting that is both in the file and on its command line, and then does not
# start again (moby, daemon/config, findConfigurationConflicts).
_FLAG_OF = {"runtimes": "--add-runtime", "default-runtime": "--default-runtime"}


class Daemon:
    """A dockerd process: its pid and its command line."""

    __slots__ = ("arguments", "pid")

    def __init__(self, pid: int, arguments: list[str]) -> None:
        self.pid = pid
        self.arguments = arguments

    def options(self, name: str) -> list[str]:
        """The values of an option ("--config-file", "-H"), in the order in which they are given."""
        values = []
        for index, argument in enumerate(self.arguments):
            if argument.startswith(name + "="):
                values.append(argument[len(name) + 1 :])
            elif argument == name and index + 1 < len(self.arguments):
                values.append(self.arguments[index + 1])
        return values

    @property
    def config_file(self) -> str:
        """The daemon.json that it reads."""
        return next(reversed(self.options("--config-file")), "") or DEFAULT_CONFIG

    def uses(self, config: str) -> bool:
        """Whether `config` is its daemon.json."""
        return os.path.realpath(self.config_file) == os.path.realpath(config)

    def conflicts(self, members: list[str]) -> list[str]:
        """Those of its options that say the same as these members of daemon.json."""
        return [_FLAG_OF[member] for member in members if self.options(_FLAG_OF[member])]

    def reload(self) -> None:
        """Have it read its configuration again (SIGHUP); containers are not touched."""
        try:
            os.kill(self.pid, signal.SIGHUP)
        except OSError as error:
            raise GpushimError(
                f"dockerd (pid {self.pid}) could not be told to reload: {why(error)}.",
                "Run `systemctl reload docker`.",
            ) from error


def find(pid_file: str, proc: str = "/proc") -> Daemon | None:
    """The dockerd whose pid is in `pid_file`; None if none runs or another program has the pid."""
    try:
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read(32))
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read(64).strip()
        with open(f"{proc}/{pid}/cmdline", "rb") as raw:
            command = raw.read(1 << 20)
    except (OSError, ValueError):
        return None
    if pid <= 1 or name != "dockerd":
        return None
    return Daemon(pid, [os.fsdecode(word) for word in command.split(b"\0")[1:-1]])
