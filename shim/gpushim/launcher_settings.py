"""What the launcher needs of the configuration, as shell assignments in a file that it sources.

The file's modification time is made that of the configuration file, so the launcher sees with one
test that the configuration was edited, and then runs this module to write the file anew:

    python -I -m gpushim.launcher_settings --root ROOT
"""

from __future__ import annotations

import json
import os
import shlex
import sys

from . import config_file
from .config import Config
from .config_keys import configured
from .errors import GpushimError, why
from .lowlevel import family, find
from .places import Places

_HEADER = "# Written by gpushim from config.toml, whose time this file has. Edit that one.\n"
_NAMES = ("low_level", "other_low_level", "low_level_family")
# These are in the file only where the configuration is not the default one. Their names begin with
# an underscore as the launcher's own do: a variable of its caller's must not be altered.
_FURTHER = ("_docker", "_docker_records", "_triggers", "_no_request")
_DOCKER_CONFIG = "/etc/docker/daemon.json"
# Annotations that begin like this start Python by the launcher's own list.
_KNOWN_PREFIX = "cdi.k8s.io"


def shell_quote(text: str) -> str:
    """`text` as one word of a POSIX shell, always in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def chosen(runtimes: list[str]) -> dict[str, str]:
    """The settings for usable low-level runtimes, best first.

    low_level: the one that is used; low_level_family: runc or crun; other_low_level: the first of
    the other family, "" if there is none (a container whose state it holds may still be there).
    """
    families = [family(path) for path in runtimes]
    other = [path for path, kind in zip(runtimes, families, strict=True) if kind != families[0]]
    return {
        "low_level": runtimes[0],
        "other_low_level": other[0] if other else "",
        "low_level_family": families[0],
    }


def further(config: Config) -> dict[str, str]:
    """The settings by which the launcher tells what may be a request; none by default.

    _triggers: how an entry of a spec begins, as its text has it, that may be one beside those that
    the launcher knows, one a line; _docker_records: "" if Docker's records are not to be read;
    _no_request: the values of NVIDIA_VISIBLE_DEVICES that ask for nothing, as an extended regular
    expression (POSIX) for a whole value, for when Python is missing.
    """
    settings: dict[str, str] = {}
    variables = [f'"{name}=' for name in config.texts("request.swarm-resource")]
    prefixes = config.texts("cdi.annotation-prefixes")
    annotations = [f'"{name}' for name in prefixes if not name.startswith(_KNOWN_PREFIX)]
    if variables or annotations:
        settings["_triggers"] = "\n".join([*variables, *annotations])
    if not config.flag("request.docker-records"):
        settings["_docker_records"] = ""
    if config.text("request.visible-devices") == "ignore":
        settings["_no_request"] = ".*"
    elif config.text("request.all-from-environment") == "none":
        settings["_no_request"] = "(void|all)?"
    return settings


def docker_data_root(places: Places) -> dict[str, str]:
    """The setting _docker, if Docker's own configuration names another data root than its default.

    It saves the launcher a search for the records of Docker's containers; where the configuration
    changes later, or cannot be read, it still finds them.
    """
    try:
        data = json.loads(_content(places.root + _DOCKER_CONFIG))
        found = data.get("data-root") if isinstance(data, dict) else None
        if not isinstance(found, str) or b"\0" in os.fsencode(found) or found[:1] != "/":
            return {}
    except (ValueError, RecursionError):
        return {}
    return {"_docker": found.rstrip("/")}


def render(settings: dict[str, str]) -> str:
    """The file's text; of the settings that `further` makes it has those that are there."""
    names = [*_NAMES, *(name for name in _FURTHER if name in settings)]
    return _HEADER + "".join(f"{name}={shell_quote(settings[name])}\n" for name in names)


def parse(text: str) -> dict[str, str]:
    """What `render` made, now or in an earlier version; an empty dictionary for anything else."""
    settings: dict[str, str] = {}
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in (*_NAMES, *_FURTHER):
            settings[name] = value
    return settings if settings.keys() >= set(_NAMES) else {}


def in_use(places: Places) -> str:
    """The low-level runtime that the launcher goes by; "" if there are no settings."""
    return _former(places).get("low_level", "")


def problem(config: Config, places: Places, search_path: str) -> str:
    """A sentence if the configuration names no usable low-level runtime; "" if it does."""
    try:
        find(_names(config), search_path, places.launcher)
    except GpushimError as error:
        former = in_use(places)
        return f"{error} Until then containers go on with {former}." if former else str(error)
    return ""


def write(places: Places, search_path: str) -> list[str]:
    """Write the settings anew; returns what was wrong with the configuration, in sentences.

    With a configuration that is wrong, or names no usable runtime, the former values stay (or
    those of the default configuration, if there are none), and the file still gets the time of the
    configuration file: it is read again when it has been edited. Raises GpushimError when there
    is no usable low-level runtime at all, or the file can't be written.
    """
    # The time comes first: an edit while the file is read is then seen by the next look.
    time = _modified(places.config)
    problems: list[str] = []
    try:
        config = config_file.read(places.config)
        settings = {
            **chosen(find(_names(config), search_path, places.launcher)),
            **further(config),
            **docker_data_root(places),
        }
    except GpushimError as error:
        problems.append(str(error))
        settings = _former(places) or chosen(
            find(_names(configured()), search_path, places.launcher)
        )
    _replace(places.launcher_settings, render(settings), time)
    return problems


def _names(config: Config) -> list[str]:
    return config.texts("runtime.low-level-runtimes")


def _former(places: Places) -> dict[str, str]:
    return parse(_content(places.launcher_settings).decode("utf-8", "surrogateescape"))


def _content(path: str) -> bytes:
    """The file's first 64 KiB; empty if it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16)
    except OSError:
        return b""


def _modified(path: str) -> int:
    """Modification time in nanoseconds; 0 if there is no such file."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _replace(path: str, text: str, time: int) -> None:
    """Write the file whole, mode 0644, with the modification time `time` (nanoseconds).

    One that is like that already is left alone.
    """
    content = text.encode("utf-8", "surrogateescape")
    if _modified(path) == time and _content(path) == content:
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.utime(file.fileno(), ns=(time, time))
        os.rename(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise GpushimError(f"The launcher's settings {path} can't be written: {why(error)}.") from (
            error
        )


def main(arguments: list[str]) -> int:
    """`--root ROOT` or nothing. Exit status 1 if nothing could be written."""
    root = arguments[1] if len(arguments) == 2 and arguments[0] == "--root" else ""
    if arguments and not (len(arguments) == 2 and arguments[0] == "--root"):
        print("usage: python -m gpushim.launcher_settings [--root ROOT]", file=sys.stderr)
        return 2
    try:
        problems = write(Places(root), os.environ.get("PATH", ""))
    except GpushimError as error:
        print(f"gpushim: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"gpushim: {problem}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
