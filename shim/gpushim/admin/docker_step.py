"""install's and uninstall's work on Docker: which daemon.json, its change, and the reload."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from ..engines import docker, dockerapi, dockerd, jsonfile
from ..errors import GpushimError
from ..places import Places
from .files import make_directory
from .installation import DockerPart, Installation
from .output import say, warn

_SNAP = "/var/snap/docker"


class Target:
    """One daemon.json to work on; pid_file: of the dockerd that is taken to use it."""

    __slots__ = ("config", "pid_file")

    def __init__(self, config: str, pid_file: str) -> None:
        self.config = config
        self.pid_file = pid_file


def target(places: Places, config: str, pid_file: str) -> Target | None:
    """The daemon.json that is meant; None, with a warning, where there is no Docker to register at.

    config and pid_file: as given on the command line, "" for the default. A private installation
    never touches the machine's own Docker unless told to.
    """
    chosen = os.path.abspath(config) if config else places.root + dockerd.DEFAULT_CONFIG
    if not config and not places.root and not _has_docker():
        if os.path.isdir(_SNAP):
            warn(
                "Docker was left alone: it is installed as a snap, which can't run a program "
                "from outside. Use your distribution's package of Docker, or --no-docker."
            )
        else:
            warn("Docker was left alone: there is none here. Run this again once there is.")
        return None
    if not config and places.root and not os.path.isfile(chosen):
        return None
    named = jsonfile.read(chosen).data.get("pidfile")
    if not pid_file:
        # A wrong guess does no harm: only a dockerd that uses this very file is told to reload.
        pid_file = named if isinstance(named, str) and named else dockerd.DEFAULT_PID_FILE
    return Target(chosen, pid_file)


def _has_docker() -> bool:
    found = shutil.which("dockerd", path=_search_path())
    return found is not None or os.path.isdir("/etc/docker")


def _search_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin"


def plan_register(
    where: Target, launcher: str, default: bool, known: Installation | None
) -> docker.Plan:
    """What is to change in daemon.json. Raises GpushimError if dockerd would not start with it."""
    file = jsonfile.read(where.config)
    part = known.docker_part(file.path) if known is not None else None
    former = part.former if part is not None else None
    running = daemons(where)
    by_flag = any(daemon.adds_runtime(docker.RUNTIME_NAME, launcher) for daemon in running)
    plan = docker.register(file, launcher, default, former, by_flag)
    if plan.change.diff():
        after = plan.change.after or b"{}"
        data = json.loads(after.decode())
        members = [name for name in _MEMBERS if data.get(name) != file.data.get(name)]
        conflicts = [flag for daemon in running for flag in daemon.conflicts(members)]
        if conflicts:
            raise GpushimError(
                f"dockerd was started with {' and '.join(dict.fromkeys(conflicts))}, and refuses "
                f"to have the same in {where.config} as well; nothing was changed.",
                "Take the option out of its unit (systemctl edit docker) and restart it, or name "
                f"gpushim there yourself: --add-runtime gpushim={launcher}. With --no-docker the "
                "rest is installed and Docker left alone.",
            )
        program = shutil.which("dockerd", path=_search_path())
        complaint = dockerd.complaint(program, after, where.config) if program else ""
        if complaint:
            raise GpushimError(
                f"dockerd does not start with {where.config}: {complaint}. Nothing was changed.",
                "Correct the file and run this again.",
            )
    return plan


def register(where: Target, plan: docker.Plan, launcher: str, record: Installation) -> None:
    """Carry the plan out, and add it to the record.

    Raises GpushimError if a running dockerd does not come to know the runtime.
    """
    record.directories += make_directory(os.path.dirname(plan.change.path))
    known = record.docker_part(plan.change.path)
    part = DockerPart(where.config, plan.change.path, where.pid_file, [], plan.former)
    if known is not None:
        part.backups = known.backups
        record.docker.remove(known)
    record.docker.append(part)
    saved = plan.change.apply(backup=True)
    if saved:
        part.backups.append(saved)
    for note in plan.notes:
        warn(note)
    running = daemons(where)
    changed = bool(plan.change.diff())
    if changed:
        copy = f" The former file is kept as {saved}." if saved else ""
        say(f"Registered the runtime gpushim in {where.config}.{copy}")
        if not running:
            say(_not_found(where) + " It will be read when dockerd starts.")
    elif any(daemon.adds_runtime(docker.RUNTIME_NAME, launcher) for daemon in running):
        say(f"dockerd has the runtime gpushim on its command line; {where.config} stays as it is.")
    else:
        say(f"The runtime gpushim is registered in {where.config} already.")
    settings = jsonfile.read(where.config).data
    default = settings.get("default-runtime")
    if default == docker.RUNTIME_NAME:
        say("gpushim is Docker's default runtime.")

    def knows(now: dockerapi.Runtimes) -> bool:
        return now.paths.get(docker.RUNTIME_NAME) == launcher and default in (None, now.default)

    for daemon in running:
        now = dockerapi.now(daemon, settings)
        if changed or (now is not None and not knows(now)):
            daemon.reload()
            done = dockerapi.wait_until(daemon, settings, knows)
            if done is False:
                raise GpushimError(_refusal(daemon, where.config), _AFTER_A_REFUSAL)
            _tell(daemon, done)


_MEMBERS = ("runtimes", "default-runtime")
_AFTER_A_REFUSAL = (
    "Its log says why (journalctl -u docker). All else is installed and stays: correct the file "
    "and run `gpushimctl install` again."
)


def plan_unregister(part: DockerPart, launcher: str) -> docker.Plan:
    former = docker.Former.from_json(part.former.to_json())
    program = former.entry.get("path") if isinstance(former.entry, dict) else None
    if isinstance(program, str) and program.startswith("/") and not os.path.exists(program):
        # Of another installation that has gone since: no container could be started with it.
        former.entry = None
    return docker.unregister(jsonfile.read(part.config), launcher, former)


def containers(part: DockerPart) -> list[str]:
    """Names of Docker's containers, also stopped ones, that it would run by gpushim."""
    settings = jsonfile.read(part.config).data
    found: list[str] = []
    for daemon in daemons(Target(part.config, part.pid_file)):
        found += dockerapi.containers(daemon, settings, docker.RUNTIME_NAME) or []
    return found


def unregister(part: DockerPart, plan: docker.Plan, launcher: str) -> bool:
    """Carry the plan out, so that a running dockerd forgets gpushim, too; whether it has.

    The way back needs no backup: those that install made are still there.
    """
    for note in plan.notes:
        warn(note)
    where = Target(part.config, part.pid_file)
    running = daemons(where)
    for daemon in running:
        if daemon.adds_runtime(docker.RUNTIME_NAME, launcher):
            warn(
                f"dockerd (pid {daemon.pid}) was started with --add-runtime "
                f"gpushim={launcher}: take that out of its unit (systemctl edit docker)."
            )
    change = plan.change
    if not change.diff():
        return True
    told = docker.told_off(plan) if running else None
    (told or change).apply(backup=False)
    say(f"Took the runtime gpushim out of {part.config}.")
    if not running:
        say(_not_found(where) + " One that runs needs a reload to forget the runtime.")
    settings = jsonfile.read(change.path).data
    results = [_have_forgotten(daemon, part.config, settings) for daemon in running]
    if told is not None and all(results):
        jsonfile.FileChange(change.path, told.after, change.after).apply(backup=False)
    return False not in results


def _have_forgotten(daemon: dockerd.Daemon, config: str, settings: dict[str, Any]) -> bool | None:
    """Have a dockerd read the file in which gpushim is not any more; None if it can't be asked."""

    def forgot(now: dockerapi.Runtimes) -> bool:
        return docker.RUNTIME_NAME not in (*now.paths, now.default)

    before = dockerapi.now(daemon, settings)
    daemon.reload()
    if before is not None and forgot(before):
        # What it never knew is no proof that it has read the file.
        say(f"dockerd (pid {daemon.pid}) did not know the runtime gpushim.")
        return True
    done = dockerapi.wait_until(daemon, settings, forgot)
    if done is False:
        warn(f"{_refusal(daemon, config)} Its log says why (journalctl -u docker).")
    else:
        _tell(daemon, done)
    return done


def _refusal(daemon: dockerd.Daemon, config: str) -> str:
    return (
        f"dockerd (pid {daemon.pid}) refused {config}: it goes by its former settings still, and "
        "would not start with this file either."
    )


def _not_found(where: Target) -> str:
    return (
        f"No dockerd was found by the pid file {where.pid_file} (name another with --pidfile), "
        f"nor one whose command line names {where.config}."
    )


def _tell(daemon: dockerd.Daemon, done: bool | None) -> None:
    """Say what came of a reload that was not refused."""
    if done:
        say(f"dockerd (pid {daemon.pid}) has read it: no restart is needed.")
    else:
        say(f"Told dockerd (pid {daemon.pid}) to read it; `docker info` shows whether it has.")


def daemons(where: Target) -> list[dockerd.Daemon]:
    """Each running dockerd that uses this daemon.json: by the pid file, and by command lines."""
    first = dockerd.find(where.pid_file)
    found = [first] if first is not None and first.uses(where.config) else []
    known = {daemon.pid for daemon in found}
    return found + [each for each in dockerd.using(where.config) if each.pid not in known]
