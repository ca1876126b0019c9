"""gpushimctl run: wait until GPUs are free, then start a container that has them.

It waits as an ordinary client process, before the engine knows of a container, so nothing of the
engine blocks meanwhile. The command takes this process's place then: signals and exit status are
its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Sequence
from typing import NoReturn

from ..allocate import turn
from ..errors import GpushimError, why
from ..places import Places
from ..request.keys import variable_name
from . import progress, ticket_options
from .output import warn

EPILOG = """\
examples:
  gpushimctl run --gpus 2 -- docker run --rm IMAGE
  gpushimctl run --memory 20g --priority 10 -- podman run IMAGE
  gpushimctl run --gpus 8 --wait 2h -- docker create --name train IMAGE

exit status: the command's own; 75 if the time to wait was over first; 1 for what a sentence on
standard error tells; 2 for a wrong command line; 127 if there is no such command"""

# For how long GPUs are kept for a container that was made by `create`, until it is started.
CREATED_SECONDS = 600.0

# Options before the command's verb that have a value in the next word (docker(1), podman(1)).
_VALUES = {
    "docker": (
        *("--config", "-c", "--context", "-H", "--host", "-l", "--log-level"),
        *("--tlscacert", "--tlscert", "--tlskey"),
    ),
    "podman": (
        *("--cdi-spec-dir", "--cgroup-manager", "--config", "--conmon", "-c", "--connection"),
        *("--events-backend", "--hooks-dir", "--identity", "--imagestore", "--log-level"),
        *("--module", "--network-cmd-path", "--network-config-dir", "--out", "--root"),
        *("--runroot", "--runtime", "--runtime-flag", "--ssh", "--storage-driver"),
        *("--storage-opt", "--tmpdir", "--url", "--volumepath"),
    ),
}
_VERBS = ("run", "create")
# Options of sudo(8) that have no value and change nothing of what is said here.
_SUDO_OPTIONS = ("-n", "--non-interactive", "-E", "--preserve-env", "-H", "--set-home")


def add(parser: argparse.ArgumentParser) -> None:
    ticket_options.add(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="docker run or podman run (or create), with their options",
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    at = place_of_options(words)
    if shutil.which(words[0]) is None:
        warn(f"There is no program {words[0]} here.")
        return 127
    machine = ticket_options.Machine(places, "run")
    asked = ticket_options.asked_by(arguments, "run", machine.config)
    is_created = words[at - 1] == "create"
    keep = CREATED_SECONDS if is_created else 0.0
    ticket, found = ticket_options.wait(places, machine, asked, keep)
    until = f" for {keep / 60:g} minutes, until the container is started" if is_created else ""
    warn(f"{progress.names_of(found)} kept by ticket {ticket.id}{until}.")
    try:
        _become([*words[:at], *_variables(ticket.id, asked.texts), *words[at:]])
    except OSError as error:
        turn.give_back(places, ticket)
        raise GpushimError(f"{words[0]} can't be started: {why(error)}.") from None


def _variables(ticket: str, texts: dict[str, str]) -> list[str]:
    """The options that give a container its ticket, and what it needs when it is started again."""
    said = {"ticket": ticket, **texts}
    return [word for key in said for word in ("-e", f"{variable_name(key)}={said[key]}")]


def place_of_options(words: Sequence[str]) -> int:
    """Where in a command the options of `run` or `create` begin.

    Raises GpushimError for a command that no variable can be given to in this way.
    """
    rest = 0
    if words and os.path.basename(words[0]) == "sudo":
        rest = 1
        while words[rest : rest + 1] and words[rest] in _SUDO_OPTIONS:
            rest += 1
    engine = os.path.basename(words[rest]) if rest < len(words) else ""
    if engine in _VALUES:
        rest += 1
        while words[rest : rest + 1] and words[rest].startswith("-"):
            rest += 2 if words[rest] in _VALUES[engine] else 1
        if words[rest : rest + 1] == ["container"]:
            rest += 1
        if rest < len(words) and words[rest] in _VERBS:
            return rest + 1
    if not words:
        raise GpushimError(
            "There is no command to run.", "Write it behind --, as in: -- docker run IMAGE"
        )
    raise GpushimError(
        "Only the commands run and create of docker and podman can be handed their GPUs, and "
        f"this is '{' '.join(words[: rest + 1])}'.",
        "For anything else, 'gpushimctl reserve' waits in the same way and prints a ticket to put "
        "into a label, a variable or an annotation.",
    )


def _become(words: list[str]) -> NoReturn:
    """Executes a command in this process's place. Raises OSError."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores them, and its children would.
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvpe(words[0], words, _environment())


def _environment() -> dict[str, str]:
    """This process's environment without the LC_CTYPE that Python may add (PEP 538)."""
    found = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")
    except OSError:
        return found
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        found.pop("LC_CTYPE", None)
    return found
