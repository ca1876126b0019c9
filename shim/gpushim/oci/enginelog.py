"""An error in the log file that the engine asked for, in the form that runc writes.

Docker and containerd read the last error line of it; without one they show exit status 127 and a
text about a missing log.json (tried on Docker 20.10 to 28.5).
"""

from __future__ import annotations

import posix
import time

from gpushim.oci.jsontext import dumps


def write_error(path: str, log_format: str, message: str) -> bool:
    """Appends one error line to `path` ("json", else logrus' text form); False if it can't be."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if log_format == "json":
        line = dumps({"level": "error", "msg": message, "time": stamp})
    else:
        line = f'time="{stamp}" level=error msg={dumps(message)}'
    return append_line(path, line)


def append_line(path: str, line: str, mode: int = 0o640) -> bool:
    """Appends `line` to the file with one write, so that lines of two writers never mix."""
    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NONBLOCK
    try:
        descriptor = posix.open(path, flags, mode)
    except OSError:
        return False
    try:
        posix.write(descriptor, (line + "\n").encode("utf-8", "replace"))
    except OSError:
        return False
    finally:
        posix.close(descriptor)
    return True
