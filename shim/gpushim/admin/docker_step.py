"""install's and uninstall's work on Docker: which daemon.json, its change, and the reload."""

from __future__ import annotations

import os
import shutil

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
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin"
    return shutil.which("dockerd", path=path) is not None or os.path.isdir("/etc/docker")


def plan_register(
    where: Target, launcher: str, default: bool, known: Installation | None
) -> docker.Plan:
    """What is to change in daemon.json. Raises GpushimError if dockerd would not start with it."""
    file = jsonfile.read(where.config)
    part = known.docker_part(file.path) if known is not None else None
    plan = docker.register(file, launcher, default, part.former if part is not None else None)
    if plan.change.diff():
        daemon = _daemon(where)
        members = ["runtimes", "default-runtime"] if default else ["runtimes"]
        conflicts = daemon.conflicts(members) if daemon is not None else []
        if conflicts:
            raise GpushimError(
                f"dockerd was started with {' and '.join(conflicts)}, and refuses to have the "
                f"same in {where.config} as well; nothing was changed.",
                "Take the option out of its unit (systemctl edit docker) and restart it, or name "
                f"gpushim there yourself: --add-runtime gpushim={launcher}.",
            )
    return plan


def register(where: Target, plan: docker.Plan, record: Installation) -> None:
    """Carry the plan out, and add it to the record."""
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
    if not plan.change.diff():
        say(f"The runtime gpushim is registered in {where.config} already.")
        return
    copy = f" The former file is kept as {saved}." if saved else ""
    say(f"Registered the runtime gpushim in {where.config}.{copy}")
    daemon = _daemon(where)
    if daemon is None:
        say("No dockerd that uses it runs: it will be read at the next start.")
        return
    daemon.reload()
    settings = jsonfile.read(where.config).data
    path = settings["runtimes"][docker.RUNTIME_NAME]["path"]
    default = settings.get("default-runtime")

    def knows(now: dockerapi.Runtimes) -> bool:
        return now.paths.get(docker.RUNTIME_NAME) == path and default in (None, now.default)

    _tell(daemon, dockerapi.wait_until(daemon, settings, knows))


def plan_unregister(part: DockerPart, launcher: str) -> docker.Plan:
    return docker.unregister(jsonfile.read(part.config), launcher, part.former)


def unregister(part: DockerPart, plan: docker.Plan) -> None:
    """Carry the plan out, so that a running dockerd forgets gpushim, too.

    The way back needs no backup: those that install made are still there.
    """
    for note in plan.notes:
        warn(note)
    change = plan.change
    if not change.diff():
        return
    daemon = _daemon(Target(part.config, part.pid_file))
    told = docker.told_off(plan) if daemon is not None else None
    (told or change).apply(backup=False)
    say(f"Took the runtime gpushim out of {part.config}.")
    if daemon is None:
        return
    daemon.reload()
    settings = jsonfile.read(change.path).data

    def forgot(now: dockerapi.Runtimes) -> bool:
        return docker.RUNTIME_NAME not in (*now.paths, now.default)

    done = dockerapi.wait_until(daemon, settings, forgot)
    _tell(daemon, done)
    if told is not None and done:
        jsonfile.FileChange(change.path, told.after, change.after).apply(backup=False)


def _tell(daemon: dockerd.Daemon, done: bool | None) -> None:
    """Say what came of a reload."""
    if done:
        say(f"dockerd (pid {daemon.pid}) has read it: no restart is needed.")
    elif done is None:
        say(f"Told dockerd (pid {daemon.pid}) to read it; `docker info` shows whether it has.")
    else:
        warn(
            f"dockerd (pid {daemon.pid}) goes by its former settings still. Its log says why; "
            "restart it (systemctl restart docker) when that suits."
        )


def _daemon(where: Target) -> dockerd.Daemon | None:
    daemon = dockerd.find(where.pid_file)
    return daemon if daemon is not None and daemon.uses(where.config) else None
