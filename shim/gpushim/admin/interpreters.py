"""The two Python interpreters of an installation: one for creating containers, one for the rest."""

from __future__ import annotations

import os
import subprocess
import sys

from ..errors import GpushimError, harmless

OLDEST = (3, 10)
# By its unversioned path, so that it is still there after the distribution's next release.
_DISTRIBUTION = "/usr/bin/python3"
_TIMEOUT = 30.0


def for_create() -> str:
    """The interpreter that containers are created with.

    The distribution's own where it is new enough (it starts the fastest and outlives virtual
    environments), else the one that this environment was made from. Raises GpushimError.
    """
    base = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    tried = []
    for path in (_DISTRIBUTION, base):
        found = version(path)
        if found >= OLDEST:
            return path
        tried.append(f"{path} is {'.'.join(map(str, found)) if found else 'not usable'}")
    raise GpushimError(
        f"No Python of version 3.10 or later was found to create containers with "
        f"({'; '.join(tried)}).",
        "Install Python 3.10 or later.",
    )


def version(path: str) -> tuple[int, ...]:
    """(3, 11) for the interpreter at `path`, run as the launcher runs it; () if it can't be run."""
    code = "import sys; print('%d %d' % sys.version_info[:2])"
    done = run([path, "-I", "-S", "-c", code])
    words = done.stdout.split() if done is not None and done.returncode == 0 else []
    return tuple(int(word) for word in words) if len(words) == 2 else ()


def code_directory() -> str:
    """The directory that holds the package gpushim, as the running program has it."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def for_refresh() -> str:
    """The interpreter of this environment. Raises GpushimError if gpushim can't be run by it."""
    python = sys.executable
    code = "import gpushim.launcher_settings, gpushim_specs"
    done = run([python, "-I", "-c", code])
    if done is None or done.returncode != 0:
        words = (done.stderr.strip().splitlines() or [""])[-1] if done else "it can't be started"
        raise GpushimError(
            f"{python} can't load gpushim on its own: {harmless(words)}.",
            "Install gpushim into an environment (python3 -m venv DIR && DIR/bin/pip install "
            "gpushim) and run DIR/bin/gpushimctl install.",
        )
    return python


def compile_package(python: str, code: str) -> str:
    """Compile the package's bytecode for `python`; "" if that worked, else why it did not.

    Without it each create compiles the modules anew, which takes tens of milliseconds.
    """
    done = run([python, "-I", "-S", "-m", "compileall", "-q", f"{code}/gpushim"])
    if done is not None and done.returncode == 0:
        done = run([python, "-I", "-S", f"{code}/gpushim/link.py", code])
    if done is not None and done.returncode == 0:
        return ""
    words = (done.stdout + done.stderr).strip().splitlines() if done else []
    return harmless(words[-1]) if words else f"{python} could not be run"


def run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program with a clean environment; None if it can't be run or takes half a minute."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            # dockerd's unit has no more than a PATH either.
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
