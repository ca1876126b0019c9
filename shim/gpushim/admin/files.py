"""Files that install makes: written whole, only where they differ, and known by their digest."""

from __future__ import annotations

import hashlib
import os

from ..errors import GpushimError, why


def write_if_changed(path: str, content: bytes, mode: int) -> bool:
    """Make the file at `path` hold `content` with `mode`; returns whether anything was changed.

    A link there is replaced and not followed. Raises GpushimError.
    """
    try:
        if not os.path.islink(path) and _holds(path, content, mode):
            return False
        temporary = f"{path}.{os.getpid()}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, mode)
            os.rename(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise GpushimError(f"{path} can't be written: {why(error)}.") from error
    return True


def _holds(path: str, content: bytes, mode: int) -> bool:
    try:
        status = os.stat(path)
        if status.st_size != len(content) or (status.st_mode & 0o7777) != mode:
            return False
        with open(path, "rb") as file:
            return file.read() == content
    except FileNotFoundError:
        return False


def link_if_changed(path: str, target: str) -> bool:
    """Make `path` a symbolic link to `target`; returns whether anything was changed."""
    try:
        if os.path.islink(path) and os.readlink(path) == target:
            return False
        temporary = f"{path}.{os.getpid()}.tmp"
        os.symlink(target, temporary)
        try:
            os.rename(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise GpushimError(f"The link {path} can't be made: {why(error)}.") from error
    return True


def fingerprint(path: str) -> str:
    """The sha256 of a file, "-> target" for a link; "" if there is nothing or it can't be read."""
    try:
        if os.path.islink(path):
            return "-> " + os.readlink(path)
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def make_directory(path: str, mode: int = 0o755) -> list[str]:
    """Make a directory and those above it; returns what was made, the outermost first.

    One that is there already stays as it is. Raises GpushimError.
    """
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    made = []
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
            # The umask is whoever's calls install; other users must be able to look in here.
            os.chmod(directory, mode)
        except FileExistsError:
            continue
        except OSError as error:
            raise GpushimError(f"The directory {directory} can't be made: {why(error)}.") from error
        made.append(directory)
    return made
