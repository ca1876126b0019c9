"""Asks NVML what devices are used for, in a time that a create can spare.

A sick driver can hang any call for good, so a forked process asks, which keeps nothing of this one
open and is left behind if no signal ends it. A fork costs less than a program of its own would,
which had to start an interpreter.
"""

from __future__ import annotations

import posix
import select
import time

from gpushim.errors import harmless, why
from gpushim.host.deviceuse import DeviceUse, Reading, now
from gpushim.oci.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Targets = Sequence[tuple[str, str]]

DEADLINE_SECONDS = 1.0
_SIGKILL = 9
# Its end takes no time, unless it hangs in the driver, or was the last to use a GPU, which then
# takes a second to be shut down. Nobody need wait for that.
_EXIT_SECONDS = 0.05
_REAP_SECONDS = 0.05
_LONGEST_LINE = 1 << 20


class _Answers:
    """What one process said before it ended or was given up.

    ready: whether NVML was there; error: why not, or ""; lines: one for each target, in order.
    """

    __slots__ = ("error", "lines", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.error = ""
        self.lines: list[dict[str, Any]] = []


def read(library: str, targets: Targets, seconds: float = DEADLINE_SECONDS) -> Reading:
    """What devices are used for, as far as NVML tells in `seconds`.

    library: absolute path of libnvidia-ml.so.1; targets: UUID and bus id of each GPU, UUID and ""
    of each MIG device. One device may take half of the time that is left: then it is passed over.
    """
    reading = Reading(now())
    deadline = time.monotonic() + seconds
    left = list(targets)
    while left:
        answers = _ask(library, left, deadline)
        if not answers.ready:
            words = answers.error or f"no answer came in {seconds:g} seconds"
            reading.problems.append(f"NVML can't tell what {_number(left)} used for: {words}.")
            break
        for (uuid, _), line in zip(left, answers.lines, strict=False):
            _take(reading, uuid, line)
        left = left[len(answers.lines) :]
        if left:
            silent = left.pop(0)[0]
            reading.silent.append(silent)
            reading.problems.append(f"NVML gave no answer in time on what {silent} is used for.")
    return reading


def _number(targets: Targets) -> str:
    return targets[0][0] + " is" if len(targets) == 1 else f"{len(targets)} GPUs are"


def _take(reading: Reading, uuid: str, line: dict[str, Any]) -> None:
    if "use" in line:
        reading.devices[uuid] = DeviceUse.from_json(line["use"])
    else:
        reading.silent.append(uuid)
        words = harmless(str(line.get("failed")))
        reading.problems.append(f"NVML can't tell what {uuid} is used for: {words}.")


def _ask(library: str, targets: Targets, deadline: float) -> _Answers:
    answers = _Answers()
    try:
        reading, writing = posix.pipe()
    except OSError as error:
        answers.error = why(error)
        return answers
    try:
        try:
            pid = posix.fork()
        except OSError as error:
            answers.error = why(error)
            posix.close(writing)
            return answers
        if pid == 0:
            _be_the_asker(writing, library, targets)
        posix.close(writing)
        has_ended = _follow(reading, answers, len(targets), deadline)
        _end(pid, _EXIT_SECONDS if has_ended else 0.0)
    finally:
        posix.close(reading)
    return answers


def _be_the_asker(writing: int, library: str, targets: Targets) -> None:
    """The forked process; never returns."""
    try:
        _let_go(writing)
        from gpushim.host.nvml_calls import tell

        def say(line: dict[str, Any]) -> None:
            data = memoryview(dumps(line).encode("ascii") + b"\n")
            while data:
                data = data[posix.write(writing, data) :]

        tell(library, targets, say)
    except BaseException:
        pass  # it has nobody to tell but by its answers
    finally:
        posix._exit(0)


def _let_go(keep: int) -> None:
    """Closes all that the creating process has open, locks and the engine's pipes above all.

    The driver's library is given no environment, as with refresh.
    """
    for name in posix.listdir("/proc/self/fd"):
        if int(name) != keep:
            try:
                posix.close(int(name))
            except OSError:
                pass  # that of the listing itself
    for flags in (posix.O_RDONLY, posix.O_WRONLY, posix.O_WRONLY):
        posix.open("/dev/null", flags)
    for variable in posix.environ:
        posix.unsetenv(variable)


def _follow(reading: int, answers: _Answers, wanted: int, deadline: float) -> bool:
    """Takes answers until all are there; False if the process is to be given up."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    rest = b""
    # Until NVML is there at all, no device can be blamed.
    limit = deadline
    while len(answers.lines) < wanted and not answers.error:
        left = limit - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return False
        part = posix.read(reading, 1 << 16)
        if not part or len(rest) > _LONGEST_LINE:
            if not answers.ready:
                answers.error = "its process ended without a word"
            return False
        *lines, rest = (rest + part).split(b"\n")
        for text in lines:
            line = loads(text.decode("ascii"))
            if "ready" in line:
                answers.ready = True
            elif "error" in line:
                answers.error = harmless(line["error"])
            else:
                answers.lines.append(line)
        present = time.monotonic()
        limit = present + (deadline - present) / 2
    return True


def _end(pid: int, patience: float) -> None:
    """Waits until a process has ended; kills it when `patience` (seconds) is over.

    Where SIGCHLD is ignored the kernel has reaped it.
    """
    for seconds in (patience, _REAP_SECONDS):
        limit = time.monotonic() + seconds
        while True:
            try:
                if posix.waitpid(pid, posix.WNOHANG)[0]:
                    return
            except ChildProcessError:
                return
            if time.monotonic() >= limit:
                break
            time.sleep(0.0005)
        try:
            posix.kill(pid, _SIGKILL)
        except ProcessLookupError:
            return
