"""The command line that an engine gives to a low-level runtime, by runc's grammar.

Global options come before the command, the command's own behind it; a value follows its option as
the next argument or after `=`; one dash is as good as two (runc uses Go's flag package). The
launcher reads the same grammar in sh; a test holds the two and both runtimes' help together.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Options that take a value, of runc and crun together. Global ones first, then for the commands
# that may need a change; an option that is in no list takes none.
GLOBAL_VALUES = ("cgroup-manager", "criu", "log", "log-format", "root", "rootless")
COMMAND_VALUES = {
    "create": (
        "b", "bundle", "config", "console-socket", "f", "pid-file", "pidfd-socket", "preserve-fds",
    ),
    "run": (
        "b", "bundle", "config", "console-socket", "f", "pid-file", "pidfd-socket", "preserve-fds",
    ),
    "restore": (
        "b", "bundle", "console-socket", "empty-ns", "image-path", "lsm-mount-context",
        "lsm-profile", "manage-cgroups-mode", "pid-file", "work-path",
    ),
    "exec": (
        "additional-gids", "apparmor", "c", "cap", "cgroup", "console-socket", "cwd", "e", "env",
        "g", "p", "pid-file", "pidfd-socket", "preserve-fds", "process", "process-label", "u",
        "user",
    ),
}  # fmt: skip


class Invocation:
    """One command line, taken apart.

    command: "" if there is none; container_id: the first argument behind it that is no option, or
    ""; bundle, config, process: as given ("" where not given); root, log, log_format: global
    options. What follows a command that needs no change is not looked at.
    """

    __slots__ = (
        "bundle",
        "command",
        "config",
        "container_id",
        "log",
        "log_format",
        "process",
        "root",
    )

    def __init__(self) -> None:
        self.command = ""
        self.container_id = ""
        self.bundle = ""
        self.config = ""
        self.process = ""
        self.root = ""
        self.log = ""
        self.log_format = ""


def parse(arguments: list[str]) -> Invocation:
    """Takes the arguments behind the program's name apart; nothing in them is an error here.

    runc gathers options from anywhere behind create, run and restore, but exec's end at the id,
    since what follows belongs to the program that it starts.
    """
    invocation = Invocation()
    values: tuple[str, ...] = GLOBAL_VALUES
    wants = ""
    ended = False  # by --, behind which nothing is an option until the command has been read
    for argument in arguments:
        if wants:
            _keep(wants, argument, invocation)
            wants = ""
        elif argument == "--" and not ended:
            ended = True
        elif len(argument) > 1 and argument[0] == "-" and not ended:
            dashes = 2 if argument[1] == "-" else 1
            name, equals, value = argument[dashes:].partition("=")
            if not equals and name in values:
                wants = name
            elif name.startswith("b/"):
                # crun's getopt takes a value that is joined to its letter.
                invocation.bundle = argument[dashes + 1 :]
            else:
                _keep(name, value, invocation)
        elif not invocation.command:
            invocation.command = argument
            values = COMMAND_VALUES.get(argument, ())
            ended = False
            if argument not in COMMAND_VALUES:
                break
        else:
            invocation.container_id = invocation.container_id or argument
            if invocation.command == "exec":
                break
    return invocation


def _keep(name: str, value: str, invocation: Invocation) -> None:
    if name in ("b", "bundle"):
        invocation.bundle = value
    elif name in ("f", "config"):
        invocation.config = value
    elif name in ("p", "process"):
        invocation.process = value
    elif name == "root":
        invocation.root = value
    elif name == "log":
        invocation.log = value
    elif name == "log-format":
        invocation.log_format = value


def is_name(container_id: str) -> bool:
    """Whether an id may name a container, and so a file: what runc and crun refuse is none."""
    return container_id not in ("", ".", "..") and "/" not in container_id


def state_root(
    invocation: Invocation, family: str, environment: Mapping[str, str], uid: int
) -> str:
    """Where the low-level runtime keeps its containers' state, as its own defaults have it.

    runc as root takes /run/runc whatever the environment says; crun takes $XDG_RUNTIME_DIR for
    root, too (runc main.go, crun src/crun.c; both tried).
    """
    if invocation.root:
        return invocation.root
    runtime_dir = environment.get("XDG_RUNTIME_DIR", "")
    if runtime_dir and (family == "crun" or uid != 0):
        return f"{runtime_dir}/{family}"
    return f"/run/{family}"
