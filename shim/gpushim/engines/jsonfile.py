"""An engine's JSON configuration file: read with care, changed whole, backed up first."""

from __future__ import annotations

import difflib
import json
import os
import stat
import time
from typing import Any, NoReturn

from ..errors import GpushimError, harmless, why

_MAXIMUM_BYTES = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NEW_FILE_MODE = 0o644


class JsonFile:
    """A configuration file as it was found.

    path: where it really is, behind symbolic links; content: its bytes, None if there is no such
    file; text: those without a byte order mark, "{}" and a newline for a missing or empty file;
    data: the object in it; has_mark: whether it had a byte order mark.
    """

    __slots__ = ("content", "data", "has_mark", "path", "text")

    def __init__(
        self, path: str, content: bytes | None, text: str, data: dict[str, Any], has_mark: bool
    ) -> None:
        self.path = path
        self.content = content
        self.text = text
        self.data = data
        self.has_mark = has_mark


def read(path: str) -> JsonFile:
    """The file at `path`. Raises GpushimError, with line and column, for what is not JSON in UTF-8
    with an object at the top; nothing is changed then.
    """
    real = os.path.realpath(path)
    content = _content(real, path)
    if content is None:
        return JsonFile(real, None, "{}\n", {}, False)
    if b"\0" in content[:4] or content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise GpushimError(
            f"{path} is not UTF-8 but UTF-16 or UTF-32 text, which was left as it is.",
            "Save it as UTF-8 and try again.",
        )
    has_mark = content.startswith(_BYTE_ORDER_MARK)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise GpushimError(
            f"{path} is not UTF-8 text (line {line}) and was left as it is.",
            "Save it as UTF-8 and try again.",
        ) from error
    if not text.strip():
        return JsonFile(real, content, "{}\n", {}, has_mark)
    return JsonFile(real, content, text, _parse(text, path), has_mark)


def _content(real: str, path: str) -> bytes | None:
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise GpushimError(f"{path} is not a regular file.")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_MAXIMUM_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GpushimError(f"{path} can't be read: {why(error)}.") from error
    if len(content) > _MAXIMUM_BYTES:
        raise GpushimError(f"{path} is larger than 16 MiB, which no such file is.")
    return content


def _parse(text: str, path: str) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise GpushimError(f"{path} holds {constant}, which is not JSON; it was left as it is.")

    try:
        data = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise GpushimError(
            f"{path} is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno}); "
            "it was left as it is.",
            "Correct it first: an engine that is restarted with it does not start.",
        ) from error
    except ValueError as error:  # a number of thousands of digits
        raise GpushimError(
            f"{path} can't be read: {harmless(str(error))}; it was left as it is."
        ) from error
    except RecursionError as error:
        raise GpushimError(f"{path} is nested too deeply; it was left as it is.") from error
    if not isinstance(data, dict):
        raise GpushimError(f"{path} holds no JSON object at its top; it was left as it is.")
    return data


class FileChange:
    """What one file is to become: `before` and `after` are its bytes, None for no file."""

    __slots__ = ("after", "before", "path")

    def __init__(self, path: str, before: bytes | None, after: bytes | None) -> None:
        self.path = path
        self.before = before
        self.after = after

    def diff(self) -> str:
        """The change as a unified diff; "" if there is none."""
        if self.before == self.after:
            return ""
        names = [
            self.path if side is not None else "/dev/null" for side in (self.before, self.after)
        ]
        sides = [
            (side or b"").decode("utf-8", "replace").splitlines(keepends=True)
            for side in (self.before, self.after)
        ]
        lines = difflib.unified_diff(sides[0], sides[1], names[0], names[1])
        return "".join(
            line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
            for line in lines
        )

    def apply(self, backup: bool) -> str:
        """Make the change, atomically; returns the path of the backup, "" if none was made.

        The file keeps its mode, owner and security label. Raises GpushimError if it is not as it
        was when the change was planned, or can't be written; it is whole in any case.
        """
        if self.before == self.after:
            return ""
        if _content(self.path, self.path) != self.before:
            raise GpushimError(f"{self.path} was changed by somebody else meanwhile.", "Try again.")
        try:
            saved = self.back_up() if backup and self.before is not None else ""
            if self.after is None:
                os.unlink(self.path)
            else:
                _replace(self.path, self.after)
        except OSError as error:
            raise GpushimError(f"{self.path} can't be changed: {why(error)}.") from error
        return saved

    def back_up(self) -> str:
        """Keep what was there as a file beside it; returns its path. Raises OSError."""
        base = self.path + ".bak-gpushim-" + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        number = 0
        while True:
            target = f"{base}.{number}" if number else base
            try:
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                number += 1
                continue
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.before or b"")
                _dress(descriptor, os.stat(self.path), self.path)
                os.fsync(descriptor)
            return target


def _replace(path: str, content: bytes) -> None:
    """Put a file with `content` in place of that at `path`, which may be missing."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if status is None:
                os.fchmod(descriptor, _NEW_FILE_MODE)
            else:
                _dress(descriptor, status, path)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def _dress(descriptor: int, status: os.stat_result, path: str) -> None:
    """Give a new file the owner, mode and SELinux label of that at `path`."""
    os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    try:
        label = os.getxattr(path, "security.selinux")
        os.setxattr(descriptor, "security.selinux", label)
    except OSError:
        pass  # No SELinux here, or no labels on this file system.
