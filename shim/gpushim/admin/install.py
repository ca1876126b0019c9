"""gpushimctl install: put the launcher and its surroundings in place and register with Docker.

All that can be refused is found out before anything is changed; what is then done is recorded for
uninstall, also where a step in the middle fails. A second install changes nothing.
"""

from __future__ import annotations

import argparse
import os

from .. import __version__, config_file, launcher_settings, lowlevel
from ..allocate import leaselock
from ..config import Config
from ..config_keys import configured
from ..engines.docker import Plan
from ..engines.jsonfile import FileChange
from ..engines.swarm import check_slots
from ..errors import GpushimError, harmless, why
from ..places import Places
from . import (
    config_text,
    docker_step,
    dry_run,
    files,
    install_options,
    installation,
    interpreters,
    programs,
    swarm_step,
)
from .installation import Installation
from .output import say, warn

add = install_options.add


class Prepared:
    """All that was found out and decided before the first change."""

    __slots__ = (
        *("code", "config", "config_change", "docker", "keeps_config"),
        *("known", "launcher", "note", "plan", "python", "refresh"),
    )

    def __init__(self, arguments: argparse.Namespace, places: Places) -> None:
        """Raises GpushimError for whatever stands in the way."""
        if os.geteuid() != 0 and not places.root:
            raise GpushimError("Installing gpushim needs root.", "Use sudo gpushimctl install.")
        self.known = installation.read(places)
        self.config = _configuration(arguments, places)
        self.config_change = _config_change(self.config, places)
        self.keeps_config = self.config_change is not None and _is_edited(places, self.known)
        self.note = _note_on_all(arguments, _effective(self.config, places))
        self.python = interpreters.for_create()
        self.refresh = interpreters.for_refresh()
        self.code = interpreters.code_directory()
        names = _effective(self.config, places).texts("runtime.low-level-runtimes")
        found = lowlevel.find(names, os.environ.get("PATH", ""), places.launcher)
        settings = launcher_settings.chosen(found)
        self.launcher = programs.launcher(places, self.python, self.code, self.refresh, settings)
        self.docker: docker_step.Target | None = None
        self.plan: Plan | None = None
        if not arguments.no_docker:
            self.docker = docker_step.target(places, arguments.config, arguments.pidfile)
        if self.docker is not None:
            self.plan = docker_step.plan_register(
                self.docker, places.launcher, arguments.default, self.known
            )


def _configuration(arguments: argparse.Namespace, places: Places) -> bytes | None:
    """What is to be in config.toml; None if the file that is there stays."""
    source = arguments.config_from
    if source:
        if not os.path.isfile(source):
            raise GpushimError(f"There is no file {source} to take the configuration from.")
        config_file.read(source)
        with open(source, "rb") as file:
            return file.read()
    changed = config_text.FOR_DEFAULT_RUNTIME if arguments.default else None
    sets_nothing = _holds(places.config, config_text.default_file())
    if os.path.lexists(places.config) and not (arguments.default and sets_nothing):
        return None
    return config_text.default_file(changed).encode()


def _holds(path: str, text: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == text.encode()
    except OSError:
        return False


def _note_on_all(arguments: argparse.Namespace, config: Config) -> str:
    """What a default runtime does with images that have NVIDIA_VISIBLE_DEVICES=all in them."""
    if not arguments.default:
        return ""
    if config.text("request.all-from-environment") == "none":
        return (
            "NVIDIA_VISIBLE_DEVICES=all, which images of CUDA have in them, is no request "
            "(request.all-from-environment is none). Ask by --gpus, by -e GPUSHIM_GPUS=all, or by "
            "the label or annotation gpushim.gpus."
        )
    return (
        "NVIDIA_VISIBLE_DEVICES=all, which images of CUDA have in them, gives each of their "
        'containers all GPUs. To have them ask, set all-from-environment = "none" in the section '
        "[request] of the configuration."
    )


def _config_change(config: bytes | None, places: Places) -> FileChange | None:
    """How an existing config.toml changes; None if it does not, or there is none."""
    if config is None or not os.path.isfile(places.config):
        return None
    with open(places.config, "rb") as file:
        change = FileChange(places.config, file.read(), config)
    return change if change.before != change.after else None


def _is_edited(places: Places, known: Installation | None) -> bool:
    """Whether config.toml is somebody's work, and not as an earlier install wrote it."""
    written = known.files.get(places.config) if known is not None else None
    return files.fingerprint(places.config) != written


def _effective(content: bytes | None, places: Places) -> Config:
    """The configuration that will hold; the defaults, with a warning, if the file is wrong."""
    if content is not None:
        return configured(config_file.parse(content, places.config), places.config)
    try:
        return config_file.read(places.config)
    except GpushimError as error:
        warn(f"{error} Until it is right, containers that ask for GPUs are refused.")
        return configured()


def run(arguments: argparse.Namespace, places: Places) -> int:
    """A service of Swarm can't name a runtime, so that the default has to be gpushim."""
    swarm = arguments.swarm or arguments.swarm_slots
    arguments.default = arguments.default or bool(swarm)
    check_slots(arguments.swarm_slots)
    prepared = Prepared(arguments, places)
    if arguments.dry_run:
        dry_run.show(prepared, places)
        if swarm and prepared.docker is not None:
            swarm_step.preview(prepared.docker, places, arguments.swarm_slots)
        return 0
    record = Installation(__version__, prepared.refresh, prepared.python, prepared.code)
    if prepared.known is not None:
        record.files = dict(prepared.known.files)
        record.directories = list(prepared.known.directories)
        record.docker = list(prepared.known.docker)
    try:
        _place(prepared, places, record)
        _register(prepared, places, record)
        if swarm:
            _join_swarm(arguments, prepared, places, record)
    except GpushimError:
        if os.path.isdir(places.lib):
            installation.write(places, record)
        warn(
            "The installation is not complete. Run it again once the reason below is dealt with, "
            "or undo it with `gpushimctl uninstall`."
        )
        raise
    if prepared.note:
        say(prepared.note)
    say(f"gpushim {__version__} is installed.")
    return 0


def _place(prepared: Prepared, places: Places, record: Installation) -> None:
    """Make directories and files, and try the launcher."""
    for directory in dry_run.directories(places):
        # In those of leases and tickets every user may write, and nobody remove another's.
        is_shared = directory in (places.leases, places.queue)
        made = files.make_directory(directory, 0o1777 if is_shared else 0o755)
        record.directories += [path for path in made if path not in record.directories]
    leaselock.make_places(places)
    if prepared.config is not None:
        if prepared.config_change is not None and prepared.keeps_config:
            say(f"The edited {places.config} is kept as {_back_up(prepared.config_change)}.")
        _put(record, places.config, prepared.config.decode(), 0o644)
    for problem in launcher_settings.write(places, os.environ.get("PATH", "")):
        warn(problem)
    record.files[places.launcher_settings] = ""
    _put(record, programs.tmpfiles_path(places), programs.tmpfiles(places), 0o644)
    problem = interpreters.compile_package(prepared.python, prepared.code)
    if problem:
        warn(f"The bytecode of {prepared.code}/gpushim was not compiled ({problem}): {_SLOWER}")
    _put(record, places.launcher, prepared.launcher, 0o755)
    _try_launcher(places.launcher)
    _place_control(prepared, places, record)
    installation.write(places, record)
    _first_refresh(places)


def _back_up(change: FileChange) -> str:
    try:
        return change.back_up()
    except OSError as error:
        raise GpushimError(f"{change.path} can't be copied: {why(error)}.") from error


_SLOWER = "creating a container with GPUs takes longer than it need."


def _put(record: Installation, path: str, text: str, mode: int) -> None:
    if files.write_if_changed(path, text.encode(), mode):
        say(f"Wrote {path}.")
    record.files[path] = files.fingerprint(path)


def _try_launcher(launcher: str) -> None:
    """Run the launcher as dockerd would. Raises GpushimError if it does not work."""
    done = interpreters.run([launcher, "--version"])
    if done is None or done.returncode != 0:
        words = harmless((done.stderr if done else "") or "it can't be executed")
        raise GpushimError(
            f"The launcher {launcher} does not work: {words}.",
            "Is its file system mounted noexec?",
        )


def _place_control(prepared: Prepared, places: Places, record: Installation) -> None:
    """Put gpushimctl beside the launcher, unless it is there already or is somebody else's."""
    path = places.bin + "/gpushimctl"
    link = programs.control_link(places, prepared.refresh)
    if link and os.path.realpath(path) == os.path.realpath(link):
        if os.path.islink(path):
            record.files[path] = files.fingerprint(path)
        return
    if os.path.lexists(path) and path not in record.files and not _is_control(path):
        warn(f"{path} is another program and was left as it is.")
        return
    if link:
        if files.link_if_changed(path, link):
            say(f"Linked {path} to {link}.")
        record.files[path] = files.fingerprint(path)
    else:
        _put(record, path, programs.control_wrapper(places, prepared.refresh), 0o755)


def _is_control(path: str) -> bool:
    """Whether this is a gpushimctl of an earlier installation, also one whose target has gone."""
    if os.path.islink(path):
        return os.path.basename(os.readlink(path)) == "gpushimctl"
    try:
        with open(path, "rb") as file:
            return programs.CONTROL_MARK.encode() in file.read(512)
    except OSError:
        return False


def _first_refresh(places: Places) -> None:
    from . import refresh

    try:
        say(refresh.summary(refresh.refresh_now(places)))
    except GpushimError as error:
        warn(f"No GPU can be given to a container yet: {error}")


def _join_swarm(
    arguments: argparse.Namespace, prepared: Prepared, places: Places, record: Installation
) -> None:
    if prepared.docker is None:
        raise GpushimError("There is no Docker here whose swarm could hand out GPUs.")
    swarm_step.register(prepared.docker, places, arguments.swarm_slots, record)
    installation.write(places, record)
    swarm_step.restart(prepared.docker, arguments.restart)


def _register(prepared: Prepared, places: Places, record: Installation) -> None:
    if prepared.docker is None or prepared.plan is None:
        say("No runtime was registered with Docker.")
    else:
        docker_step.register(prepared.docker, prepared.plan, places.launcher, record)
    installation.write(places, record)
