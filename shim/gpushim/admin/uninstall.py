"""gpushimctl uninstall: undo what install did, Docker first: it must never name what is gone."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from .. import records
from ..engines import dockerd
from ..engines.docker import Former
from ..errors import GpushimError, why
from ..places import Places
from . import docker_step, files, installation, programs
from .installation import DockerPart, Installation
from .output import say, warn


def add(parser: argparse.ArgumentParser) -> None:
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "--keep-config", action="store_true", help="keep config.toml even if it was never edited"
    )
    kept.add_argument(
        "--purge", action="store_true", help="remove an edited config.toml and the log, too"
    )
    parser.add_argument(
        "--config", metavar="PATH", default="", help="Docker's configuration file (daemon.json)"
    )
    parser.add_argument(
        "--force", action="store_true", help="even while containers that need gpushim are there"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be changed, and change nothing"
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    """Exit status 1 also where all was removed and a running dockerd still knows the runtime."""
    if os.geteuid() != 0 and not places.root:
        raise GpushimError("Uninstalling gpushim needs root.", "Use sudo gpushimctl uninstall.")
    record = installation.read(places)
    parts = _docker_parts(arguments.config, places, record)
    plans = [docker_step.plan_unregister(part, places.launcher) for part in parts]
    paths = _paths(arguments, places, record)
    diff = "".join(plan.change.diff() for plan in plans)
    in_use = [path for path in (places.driver_trees, places.run) if os.path.lexists(path)]
    if not paths and not diff and not in_use:
        say("There is nothing to do: gpushim is not installed here.")
        return 0
    live = sorted(kept.data["id"] for kept in records.every(places.containers))
    if not arguments.force:
        registered = [part for part, plan in zip(parts, plans, strict=True) if plan.change.diff()]
        _refuse_for_containers(live, registered)
    # What live containers use stays the first time, and goes when nothing else is left.
    keeps = live and (diff or any(os.path.lexists(path) for path in _essential(places)))
    if not keeps:
        paths = in_use + paths
    if arguments.dry_run:
        for path in paths:
            say(f"Would remove {path}.")
        say(f"{diff}Nothing was changed.")
        return 0
    forgotten = [
        docker_step.unregister(part, plan, places.launcher)
        for part, plan in zip(parts, plans, strict=True)
    ]
    for path in paths:
        _remove(path)
    _remove_directories(places, record)
    say("gpushim is uninstalled." + _what_stays(places))
    if keeps:
        control = os.path.dirname(sys.executable) + "/gpushimctl"
        root = f" --root {places.root}" if places.root else ""
        say(
            f"{' and '.join(in_use)} stay, with records and driver files of the containers that "
            f"are still there ({', '.join(live)}). When those are gone, `{control}{root} "
            "uninstall` removes them; with --force it does so at once, and the containers lose the "
            "driver."
        )
    return 0 if all(forgotten) else 1


def _refuse_for_containers(live: list[str], parts: list[DockerPart]) -> None:
    """Raises GpushimError if there are containers that need the runtime.

    live: ids of those that have GPUs; the dockerds of `parts` are asked for all others, also
    stopped ones.
    """
    told = f"Containers that have GPUs from gpushim are there: {', '.join(live)}." if live else ""
    names = sorted({name for part in parts for name in docker_step.containers(part)})
    if names:
        told += f"{' ' if told else ''}Docker has containers of the runtime gpushim: "
        told += f"{', '.join(names)}."
    if told:
        raise GpushimError(
            told,
            "Remove them first (docker rm); with --force Docker can't start them any more, nor "
            "stop them properly.",
        )


def _essential(places: Places) -> tuple[str, ...]:
    """What is there as long as gpushim is installed."""
    return (places.launcher, places.launcher_settings, places.installation)


def _docker_parts(config: str, places: Places, record: Installation | None) -> list[DockerPart]:
    """The daemon.json files to clean: those on record, and without a record the usual one.

    config: one more, from the command line.
    """
    parts = list(record.docker) if record is not None else []
    if not config and parts:
        return parts
    chosen = os.path.abspath(config) if config else places.root + dockerd.DEFAULT_CONFIG
    real = os.path.realpath(chosen)
    if os.path.isfile(chosen) and not any(part.file == real for part in parts):
        former = Former(True, True, None, False, None)
        parts.append(DockerPart(chosen, real, dockerd.DEFAULT_PID_FILE, [], former))
    return parts


def _paths(arguments: argparse.Namespace, places: Places, record: Installation | None) -> list[str]:
    """What is to be removed, of what is there, but for the state that containers use.

    The installation record comes last.
    """
    listed = dict(record.files) if record is not None else {}
    config_digest = listed.pop(places.config, "")
    wanted = [path for path, digest in listed.items() if _is_still_ours(path, digest)]
    if record is None:
        wanted += [places.launcher, places.launcher_settings, programs.tmpfiles_path(places)]
    unedited = files.fingerprint(places.config) == config_digest
    if arguments.purge or (unedited and not arguments.keep_config):
        wanted.append(places.config)
    if arguments.purge:
        wanted.append(places.log)
    wanted.append(places.installation)
    return [path for path in dict.fromkeys(wanted) if os.path.lexists(path)]


def _is_still_ours(path: str, digest: str) -> bool:
    """Whether a file is as install wrote it; without a digest it is rewritten now and then."""
    if not os.path.lexists(path) or not digest or files.fingerprint(path) == digest:
        return True
    warn(f"{path} was changed by somebody else and stays.")
    return False


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        raise GpushimError(
            f"{path} can't be removed: {why(error)}.", "Run this again when that is dealt with."
        ) from error
    say(f"Removed {path}.")


def _remove_directories(places: Places, record: Installation | None) -> None:
    """Remove the directories that install made, if they are empty."""
    made = record.directories if record is not None else [places.etc, places.lib, places.log]
    for directory in reversed(made):
        try:
            os.rmdir(directory)
        except OSError:
            pass  # There is something in it that is not ours, or it is gone.


def _what_stays(places: Places) -> str:
    stays = [path for path in (places.config, places.default_log_file) if os.path.exists(path)]
    return f" {' and '.join(stays)} {'stays' if len(stays) == 1 else 'stay'}." if stays else ""
