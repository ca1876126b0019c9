"""doctor's check of Docker: its configuration, and what a running dockerd goes by."""

from __future__ import annotations

import os

from ..engines import docker, dockerapi, dockerd, jsonfile
from ..errors import GpushimError
from ..places import Places
from . import docker_step
from .check_result import FAIL, INSTALL, OK, SKIP, WARN, Result
from .installation import Installation


def runtime_registered(places: Places, record: Installation | None) -> Result:
    """Docker's configuration names the launcher that is installed, and a running dockerd knows."""
    launcher = places.launcher
    default = places.root + dockerd.DEFAULT_CONFIG
    parts = record.docker if record is not None else []
    targets = [docker_step.Target(part.config, part.pid_file) for part in parts]
    if not targets and not os.path.exists(default):
        return Result(SKIP, f"There is no {default}.")
    if not targets:
        target = docker_step.Target(default, dockerd.DEFAULT_PID_FILE)
        return _registered(target, WARN, launcher)
    results = [_registered(target, FAIL, launcher) for target in targets]
    return next((result for result in results if result.status != OK), results[0])


def _registered(target: docker_step.Target, status: str, launcher: str) -> Result:
    """Whether one daemon.json names the launcher; `status` is for one that does not."""
    path, name = target.config, docker.RUNTIME_NAME
    try:
        settings = jsonfile.read(path).data
    except GpushimError as error:
        return Result(FAIL, error.sentence, error.hint)
    running = docker_step.daemons(target)
    entry = settings.get("runtimes")
    ours = entry.get(name) if isinstance(entry, dict) else None
    if not any(daemon.adds_runtime(name, launcher) for daemon in running):
        if ours is None:
            return Result(status, f"{path} has no runtime gpushim.", INSTALL)
        if not docker.is_ours(ours, launcher):
            seen = f"The runtime gpushim in {path} is not {launcher}."
            return Result(FAIL, seen, INSTALL)
    answers = [(daemon.pid, dockerapi.now(daemon, settings)) for daemon in running]
    known = [(pid, answer) for pid, answer in answers if answer is not None]
    for pid, answer in known:
        if answer.paths.get(name) != launcher:
            return Result(
                FAIL,
                f"dockerd (pid {pid}) does not know the runtime gpushim that is in {path}.",
                "Run `gpushimctl install`, which has it read the file; if it refuses, its log "
                "says why.",
            )
    if not known:
        return Result(OK, f"{path} has the runtime gpushim; no dockerd was asked.")
    return Result(OK, f"{path} has the runtime gpushim, and dockerd (pid {known[0][0]}) knows it.")
