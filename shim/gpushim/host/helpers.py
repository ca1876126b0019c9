"""The few programs of the host that refresh runs: modprobe and nvidia-modprobe."""

from __future__ import annotations

import os
import stat

from ..errors import harmless, why
from . import bounded


def find(directories: list[str], name: str) -> str:
    """The absolute path of the first executable regular file of that name, "" if there is none."""
    for directory in directories:
        path = os.path.join(directory, name)
        if os.path.isabs(path) and is_program(path):
            return path
    return ""


def is_program(path: str) -> bool:
    """Whether this is a regular file that may be executed."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)


def run(arguments: list[str], limit: float) -> str:
    """Run a helper; "" if it succeeded, else a clause on what went wrong.

    arguments[0] is an absolute path; limit: seconds.
    """
    name = " ".join([os.path.basename(arguments[0]), *arguments[1:]])
    try:
        outcome = bounded.run(arguments, limit)
    except OSError as error:
        return f"{arguments[0]} can't be started: {why(error)}"
    if outcome.status == 0:
        return ""
    if outcome.status is None:
        return f"`{name}` did not end within {limit:g} seconds"
    if outcome.status < 0:
        return f"`{name}` was ended by signal {-outcome.status}"
    words = f": {harmless(outcome.last_words)}" if outcome.last_words else ""
    return f"`{name}` failed (status {outcome.status}){words}"
