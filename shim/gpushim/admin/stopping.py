"""Stops containers: asks them to end, gives them time, and then kills them.

Docker is asked to, so that its restart policy keeps still; all others by their low-level runtime.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..allocate.lease import Lease
from ..allocate.liveness import Roots, lives
from ..engines import dockerapi, dockerd
from ..host.bounded import ENVIRONMENT

ENDED, KILLED, LIVES = "ended", "killed", "lives"

_POLL_SECONDS = 0.1
# A killed container is gone at once, unless a process of it hangs in a driver.
_INIT_SECONDS, _KILL_SECONDS = 2.0, 10.0
_CALL_SECONDS = 30.0
_MOST_AT_ONCE = 32


def stop(leases: Sequence[Lease], grace: float) -> list[str]:
    """Stops the containers of these leases, all at once.

    grace: seconds that each has to end by itself. Returns for each whether it ended by itself, was
    killed, or lives nevertheless.
    """
    if not leases:
        return []
    with ThreadPoolExecutor(min(len(leases), _MOST_AT_ONCE)) as pool:
        return list(pool.map(lambda lease: _stop(lease, grace), leases))


def _stop(lease: Lease, grace: float) -> str:
    began = time.monotonic()
    if lease.engine == "docker" and lease.owner == 0 and _by_docker(lease, grace):
        if _is_gone(lease, _KILL_SECONDS):
            return ENDED if time.monotonic() - began < grace else KILLED
    elif _by_runtime(lease, "TERM") and _is_gone(lease, grace):
        return ENDED
    # The second for a container that shares its PID namespace, whose others outlive its init.
    for words, patience in ((("KILL",), _INIT_SECONDS), (("KILL", "--all"), _KILL_SECONDS)):
        was_done = _by_runtime(lease, *words)
        if _is_gone(lease, patience if was_done else 0.0):
            return KILLED
    return LIVES


def _is_gone(lease: Lease, seconds: float) -> bool:
    """Whether a container is gone within this time."""
    until = time.monotonic() + seconds
    while lives(lease, Roots()):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _by_docker(lease: Lease, grace: float) -> bool:
    for daemon in dockerd.running():
        for path in dockerapi.sockets(daemon, _settings(daemon)):
            if dockerapi.knows(path, lease.id):
                return dockerapi.stop(path, lease.id, max(round(grace), 0))
    return False


def _settings(daemon: dockerd.Daemon) -> dict[str, Any]:
    """What is in a dockerd's configuration file; {} where it has none that can be read."""
    try:
        with open(daemon.config_file, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _by_runtime(lease: Lease, *words: str) -> bool:
    """Whether the low-level runtime could do `kill ID WORDS`.

    As the lease's owner: what a user's lease names as its runtime is no program for root.
    """
    if not lease.runtime.startswith("/"):
        return False
    command = [lease.runtime, "--root", lease.state_root, "kill"]
    command += [*(word for word in words if word.startswith("-")), "--", lease.id]
    command += [word for word in words if not word.startswith("-")]
    how: dict[str, Any] = {}
    if lease.owner != os.geteuid():
        try:
            group = pwd.getpwuid(lease.owner).pw_gid
        except KeyError:
            return False
        how = {"user": lease.owner, "group": group, "extra_groups": []}
    try:
        done = subprocess.run(
            command,
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_CALL_SECONDS,
            **how,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
