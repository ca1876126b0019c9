"""gpushim's own log: JSON lines, one write each, bounded in size, never fatal.

One line per create that concerned gpushim, with the request, the decision, the edits and the time
that each step took. Calls that are handed on write nothing.
"""

from __future__ import annotations

import posix
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Gathers what is to be said about one call and writes it as one line at its end.

    Times are milliseconds since the log was opened. `append` writes a line to a file and tells
    whether that worked; a log that cannot be written is never an error.
    """

    __slots__ = ("_append", "_started", "fields", "level", "max_size", "path", "steps", "warnings")

    def __init__(self, append: Callable[[str, str], bool]) -> None:
        self._append = append
        self._started = time.monotonic()
        self.path = ""
        self.level = "info"
        self.max_size = 0
        self.fields: dict[str, Any] = {}
        self.steps: dict[str, float] = {}
        self.warnings: list[str] = []

    def step(self, name: str) -> None:
        """Notes that the step `name` is done."""
        self.steps[name] = round((time.monotonic() - self._started) * 1000, 3)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)

    def write(self, level: str, message: str, encode: Callable[[Any], str]) -> None:
        """Writes the gathered line at `level`, if the log is set to hold such lines."""
        if not self.path or LEVELS.index(level) < LEVELS.index(self.level):
            return
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "level": level,
            "msg": message,
            **self.fields,
        }
        if self.warnings:
            line["warnings"] = self.warnings
        line["steps_ms"] = self.steps
        self._make_room()
        self._append(self.path, encode(line))

    def _make_room(self) -> None:
        """Moves a log that has grown past its size aside, over the one that was moved before."""
        try:
            if self.max_size and posix.stat(self.path).st_size > self.max_size:
                posix.replace(self.path, self.path + ".1")
        except OSError:
            pass
