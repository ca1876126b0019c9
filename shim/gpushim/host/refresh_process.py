"""Starts a refresh as a child process, with the interpreter that gpushim was installed with.

The create path's own interpreter knows none of the packages that a refresh needs, and its
environment is the engine's.
"""

from __future__ import annotations

from ..errors import GpushimError, why
from ..oci import jsontext
from . import bounded, procfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODULE = "gpushim.refresh"
# Until the child has read the configuration and says how long it may take.
_START_SECONDS = 60.0
_HINT = "`gpushimctl refresh` does the same and shows more."


def interpreter(installation: str) -> str:
    """The absolute path of the interpreter, from the installation record.

    Raises GpushimError if the record does not tell.
    """
    hint = "Run `gpushimctl install` again."
    text = procfiles.text(installation)
    if text is None:
        raise GpushimError(
            f"The record of gpushim's installation, {installation}, can't be read.", hint
        )
    try:
        path = jsontext.loads(text)["refresh_interpreter"]
    except (ValueError, KeyError, TypeError):
        path = None
    if not isinstance(path, str) or not path.startswith("/"):
        raise GpushimError(
            f"The record of gpushim's installation, {installation}, names no interpreter.", hint
        )
    return path


def run(program: str, arguments: list[str], lock: int | None) -> dict[str, Any]:
    """The child's result: {"snapshot": ..., "kept": bool}.

    program: the interpreter; lock: the locked descriptor that says that a refresh is running,
    which the child holds too, so that the lock outlives this process if it is killed. Raises
    GpushimError for what the child failed with, or if it fails to end.
    """
    results: list[dict[str, Any]] = []

    def on_line(line: str) -> float | None:
        if not line.startswith("{"):
            return None
        try:
            data = jsontext.loads(line)
        except ValueError:
            return None
        results.append(data)
        limit = data.get("limit")
        return limit if isinstance(limit, float) else None

    try:
        command = [
            program,
            "-I",
            "-m",
            _MODULE,
            *arguments,
            *(["--lock"] if lock is not None else []),
        ]
        outcome = bounded.run(command, _START_SECONDS, on_line, lock)
    except OSError as error:
        raise GpushimError(
            f"{program}, which gpushim was installed with, can't be started: {why(error)}.",
            "Run `gpushimctl install` again.",
        ) from error
    result = results[-1] if results else {}
    if "sentence" in result:
        raise GpushimError(result["sentence"], result["hint"])
    if "snapshot" in result:
        return result
    if outcome.status is None:
        raise GpushimError("The refresh of this machine's inventory did not end in time.", _HINT)
    words = f": {outcome.last_words}" if outcome.last_words else ""
    raise GpushimError(
        f"The refresh of this machine's inventory failed (status {outcome.status}){words}.", _HINT
    )
