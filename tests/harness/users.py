"""Other users of this machine, as far as a test needs them: numbers, without names or homes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

ALICE, BOB = 61001, 61002


def as_user(uid: int, function: Callable[[], Any]) -> Any:
    """What a function returns in a process of another user, as JSON; an error is its text."""
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(theirs, json.dumps(function()).encode())
        except BaseException as error:
            os.write(theirs, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(mine, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


class Processes:
    """Processes of other users that do nothing, until `close`."""

    def __init__(self) -> None:
        self._made: list[subprocess.Popen[bytes]] = []

    def of(self, uid: int) -> int:
        """Starts one, and returns its pid."""
        self._made.append(subprocess.Popen(["sleep", "300"], user=uid, group=uid, extra_groups=[]))
        return self._made[-1].pid

    def close(self) -> None:
        for process in self._made:
            process.kill()
            process.wait()
