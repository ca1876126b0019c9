"""A running dockerd: which one uses a configuration file, with which options, and its reload."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile

from ..errors import GpushimError, harmless, why

DEFAULT_PID_FILE = "/var/run/docker.pid"
DEFAULT_CONFIG = "/etc/docker/daemon.json"

_VALIDATION_TIMEOUT = 10.0
# With its containers, each of which has ten seconds to end.
_RESTART_TIMEOUT = 180.0

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

    def adds_runtime(self, name: str, path: str) -> bool:
        """Whether it was started with the runtime `name`, run by `path`, on its command line."""
        return f"{name}={path}" in self.options("--add-runtime")

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
    except (OSError, ValueError):
        return None
    return _process(pid, proc)


def running(proc: str = "/proc") -> list[Daemon]:
    """Every dockerd that runs."""
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdecimal())
    except OSError:
        return []
    found = (_process(pid, proc) for pid in pids)
    return [daemon for daemon in found if daemon is not None]


def using(config: str, proc: str = "/proc") -> list[Daemon]:
    """Every running dockerd whose command line leads to the file `config`.

    A path there counts as that process sees it: one in a container has files of its own.
    """
    return [daemon for daemon in running(proc) if _sees(daemon, config, proc)]


def _sees(daemon: Daemon, config: str, proc: str) -> bool:
    path = daemon.config_file
    view = f"{proc}/{daemon.pid}/root" if path.startswith("/") else f"{proc}/{daemon.pid}/cwd/"
    try:
        return os.path.samefile(view + path, config)
    except OSError:
        return False


def _process(pid: int, proc: str) -> Daemon | None:
    """The dockerd that has this pid; None for any other process."""
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read(64).strip()
        with open(f"{proc}/{pid}/cmdline", "rb") as raw:
            command = raw.read(1 << 20)
    except OSError:
        return None
    if pid <= 1 or name != "dockerd":
        return None
    return Daemon(pid, [os.fsdecode(word) for word in command.split(b"\0")[1:-1]])


def unit_of(daemon: Daemon, proc: str = "/proc") -> str:
    """The unit of systemd that a dockerd is, by its control group; "" if it is none.

    One that runs in a container of its own has a path with more behind the unit's name.
    """
    try:
        with open(f"{proc}/{daemon.pid}/cgroup", encoding="utf-8", errors="replace") as file:
            paths = [line.rstrip("\n").split(":", 2)[-1] for line in file]
    except OSError:
        return ""
    units = [path.rpartition("/")[2] for path in paths]
    return next((unit for unit in units if unit.endswith(".service")), "")


def restart(unit: str) -> None:
    """Restart a unit by systemctl(1). Raises GpushimError if that fails."""
    try:
        done = subprocess.run(
            ["systemctl", "restart", unit],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_RESTART_TIMEOUT,
        )
        reason = harmless(done.stderr.strip()) if done.returncode else ""
    except OSError as error:
        reason = why(error)
    except subprocess.TimeoutExpired:
        reason = f"it took longer than {_RESTART_TIMEOUT:.0f} seconds"
    if reason:
        raise GpushimError(
            f"{unit} could not be restarted: {reason}.", f"See `journalctl -u {unit}`."
        )


def complaint(program: str, content: bytes, path: str) -> str:
    """Why a dockerd would not start with `content` as its file `path`; "" if it does not complain.

    program: of dockerd. It can check a file since version 23 (--validate); an older one, or one
    that can't be run, has no complaint.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(content)
        file.flush()
        try:
            done = subprocess.run(
                [program, "--validate", "--config-file", file.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_VALIDATION_TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        words = harmless(done.stderr + done.stdout)
        # Whatever is not about this file is no reason to refuse it.
        if done.returncode == 0 or file.name not in words:
            return ""
        return words.replace(file.name, path).rstrip(".")
