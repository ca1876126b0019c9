"""From the launcher's exec to the low-level runtime's: which path a call takes, and how it fails.

The launcher starts this only for calls that may need a change. The one place where errors become
a line in the engine's log, stderr, a line in gpushim's own log and an exit status.
"""

from __future__ import annotations

import _signal  # signal itself imports enum
import posix
import sys

from gpushim.errors import GpushimError, harmless
from gpushim.log import Log
from gpushim.oci.enginelog import append_line, write_error
from gpushim.oci.handover import Given, become
from gpushim.oci.invocation import Invocation, is_name, parse
from gpushim.oci.jsontext import dumps
from gpushim.places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Call:
    """One call of the runtime.

    arguments: as the engine gave them; low_level: path of the low-level runtime, family: "runc" or
    "crun"; given: what has to be as it was when that takes over; state_root: what
    `decision.state_root_of` found, "" as long as nobody asked.
    """

    __slots__ = (
        "arguments",
        "family",
        "given",
        "invocation",
        "log",
        "low_level",
        "places",
        "state_root",
    )

    def __init__(
        self, arguments: list[str], places: Places, low_level: str, family: str, given: Given
    ) -> None:
        self.arguments = arguments
        self.places = places
        self.low_level = low_level
        self.family = family
        self.given = given
        self.state_root = ""
        self.invocation: Invocation = parse(arguments)
        self.log = Log(append_line)
        self.log.path = places.default_log_file

    @property
    def own(self) -> Places:
        """Where this user's records of containers are: at `places` for root."""
        from gpushim.host.statefiles import own_places

        return own_places(self.places)


def main(words: list[str]) -> NoReturn:
    """words: root, low-level runtime, its family, /proc stat line, =LC_CTYPE or "", arguments."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        # Ctrl-C ends this as it ends runc, and not with a traceback.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    root, low_level, family, stat, lc_ctype, *arguments = words
    given = Given(stat, lc_ctype[1:] if lc_ctype else None)
    call = Call(arguments, Places(root), low_level, family, given)
    try:
        _prepare(call)
        become(low_level, arguments, given)
    except GpushimError as error:
        _keep_refusal(call, error)
        _fail(call, str(error), error.exit_status)
    except OSError as error:
        _fail(call, f"{low_level} cannot be executed: {harmless(str(error))}.", 1)
    except Exception as error:
        _fail(call, _internal(error), 1)


def _prepare(call: Call) -> None:
    """Makes the changes that the call needs, if any."""
    if sys.version_info < (3, 10):  # noqa: UP036 - it may have been replaced
        version = ".".join(str(part) for part in sys.version_info[:2])
        raise GpushimError(
            f"gpushim needs Python 3.10 or later, and {sys.executable} is {version}.",
            "Run 'gpushimctl install' again.",
        )
    if not is_name(call.invocation.container_id):
        return  # The low-level runtime refuses it, and says best why.
    command = call.invocation.command
    if command == "exec":
        from gpushim.execute import execute

        execute(call)
    elif command == "restore":
        from gpushim.restore import restore

        restore(call)
    else:
        from gpushim.create import create

        create(call)


def _internal(error: Exception) -> str:
    """A fault of gpushim's own, in one line that a bug report can use."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        file = trace.tb_frame.f_code.co_filename.rpartition("/gpushim/")[2]
        where = f" ({file}, line {trace.tb_lineno})"
    return harmless(
        f"gpushim failed by a fault of its own: {type(error).__name__}: {error}{where}. "
        "Please report it; a container that asks for no GPU is not concerned."
    )


def _keep_refusal(call: Call, error: GpushimError) -> None:
    """Keeps why a container was refused, for `gpushimctl explain`."""
    if call.invocation.command not in ("create", "run"):
        return
    from gpushim import refusals

    data = {
        "name": call.log.fields.get("name", ""),
        "sentence": error.sentence,
        "hint": error.hint,
        "request": call.log.fields.get("request"),
        "warnings": call.log.warnings,
        "bundle": call.invocation.bundle,
    }
    try:
        refusals.write(call.own.refusals, call.invocation.container_id, data)
    except OSError:
        pass  # the sentence itself reaches the engine


def _fail(call: Call, message: str, status: int) -> NoReturn:
    invocation = call.invocation
    shown = f"gpushim: {message}"
    if invocation.log:
        write_error(invocation.log, invocation.log_format, shown)
    try:
        posix.write(2, (shown + "\n").encode("utf-8", "replace"))
    except OSError:
        pass
    call.log.fields.setdefault("id", invocation.container_id)
    call.log.write("error", message, dumps)
    posix._exit(status)
