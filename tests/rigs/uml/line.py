"""The host's end of the line to a guest: a serial line of which both ends speak JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.images import ImageUnavailable

# The agent ends a program that is late, and it answers itself unless the guest stands still.
_MORE_SECONDS = 30
# How often it is asked whether the guest still runs.
_SECONDS = 1.0


class Line:
    """One end of a pair of sockets; `theirs` is for the guest's kernel.

    trouble: says what is wrong with the guest, and "" while nothing is.
    """

    def __init__(self, trouble: Callable[[], str]) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.settimeout(_SECONDS)
        self._trouble = trouble
        self._rest = b""

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()

    def wait(self, seconds: float) -> None:
        """Wait for the agent. Raises ImageUnavailable if there is none in time."""
        self.theirs.close()
        try:
            first = self._line(seconds)
        except RuntimeError as error:
            raise ImageUnavailable(f"user-mode Linux does not run here: {error}") from error
        assert first == b"ready", first

    def run(
        self, words: Sequence[str], input: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the guest.

        Raises subprocess.TimeoutExpired, and RuntimeError where the guest gives no answer.
        """
        order = {
            "argv": list(words),
            "input": input,
            "environment": dict(environment),
            "timeout": timeout,
        }
        self._ours.settimeout(timeout + _MORE_SECONDS)
        self._ours.sendall(json.dumps(order).encode() + b"\n")
        self._ours.settimeout(_SECONDS)
        answer: dict[str, Any] = json.loads(self._line(timeout + _MORE_SECONDS))
        if "timeout" in answer:
            raise subprocess.TimeoutExpired(list(words), timeout)
        return subprocess.CompletedProcess(
            list(words), answer["returncode"], answer["stdout"], answer["stderr"]
        )

    def _line(self, seconds: float) -> bytes:
        """The next line. Raises RuntimeError if there is none in time."""
        parts = [self._rest]
        deadline = time.monotonic() + seconds
        while b"\n" not in parts[-1]:
            try:
                parts.append(self._ours.recv(1 << 16))
                ended = not parts[-1]
            except TimeoutError:
                ended = bool(self._trouble())
            if ended or time.monotonic() > deadline:
                raise RuntimeError(self._trouble() or f"no answer in {seconds:g} seconds")
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line
