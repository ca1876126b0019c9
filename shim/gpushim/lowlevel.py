"""Finds the low-level runtime that gpushim hands over to: never itself, never the vendor's."""

from __future__ import annotations

import os
import stat

from .errors import GpushimError, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RUNC = "runc"
CRUN = "crun"

# Where distributions and engines put a runtime that need not be on the PATH of an engine's unit.
DIRECTORIES = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/libexec",
    "/usr/libexec/crio",
    "/usr/libexec/podman",
    "/usr/lib/crio",
    "/usr/lib/podman",
    "/usr/lib/cri-o-runc/sbin",
    "/run/current-system/sw/bin",
)

# The launcher has this text in its first lines, so that a copy of it is known under any name.
LAUNCHER_MARK = b"gpushim launcher"
_MARK_WITHIN = 512
_VERSION_TIMEOUT = 5.0


def find(names: list[str], search_path: str, launcher: str) -> list[str]:
    """The usable low-level runtimes, best first, each program once; never an empty list.

    names: absolute paths, or names that are looked for in the directories of `search_path` (as in
    PATH; relative ones are left out) and then in DIRECTORIES; launcher: the path of gpushim's
    launcher, which may be missing. Raises GpushimError with what was refused and why.
    """
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    refused: list[str] = []
    for path in candidates(names, search_path):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            if path in names:
                refused.append(f"{path} does not exist")
            continue
        except OSError as error:
            refused.append(f"{path}: {why(error)}")
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        reason = refusal(path, status, launcher)
        if reason:
            refused.append(f"{path} {reason}")
        else:
            found.append(path)
    if not found:
        tried = f" ({'; '.join(refused)})" if refused else ""
        raise GpushimError(
            f"No usable low-level runtime was found for {', '.join(names)}{tried}.",
            "Install runc or crun, or name one by its absolute path in runtime.low-level-runtimes.",
        )
    return found


def candidates(names: list[str], search_path: str) -> Iterator[str]:
    """Each path at which one of `names` may be, in order."""
    given = [directory for directory in search_path.split(":") if directory.startswith("/")]
    for name in names:
        if name.startswith("/"):
            yield name
        else:
            for directory in (*given, *DIRECTORIES):
                yield directory.rstrip("/") + "/" + name


def refusal(path: str, status: os.stat_result, launcher: str) -> str:
    """Why the program at `path` (whose stat result is given) can't be used; "" if it can."""
    names = (path.rpartition("/")[2], os.path.realpath(path).rpartition("/")[2])
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if not os.access(path, os.X_OK):
        return "is not executable"
    if any(ord(character) < 32 for character in path):
        return "has control characters in its path"
    if any(name.startswith("nvidia-") for name in names):
        return "is the vendor's runtime, which would hand over to another one itself"
    try:
        ours = os.stat(launcher)
        if (ours.st_dev, ours.st_ino) == (status.st_dev, status.st_ino):
            return "is gpushim itself"
    except OSError:
        pass  # Not installed yet: its text still tells a copy.
    if _is_launcher(path):
        return "is gpushim itself"
    return ""


def _is_launcher(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return LAUNCHER_MARK in file.read(_MARK_WITHIN)
    except OSError:
        return False  # Executable but not readable: a program, since a script must be readable.


def family(path: str) -> str:
    """Whose command line and state files the runtime at `path` has: "runc" or "crun".

    It is asked for its version, which a link or wrapper can't hide; one that does not say is known
    by its name, and otherwise taken for a runc.
    """
    first_line = version(path).partition("\n")[0]
    for text in (first_line, path.rpartition("/")[2], os.path.realpath(path).rpartition("/")[2]):
        if text.startswith(CRUN):
            return CRUN
        if RUNC in text:
            return RUNC
    return RUNC


def version(path: str) -> str:
    """What `path --version` prints; "" if it fails or takes longer than five seconds."""
    import subprocess

    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            timeout=_VERSION_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
