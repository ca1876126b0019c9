"""The installation record: what install made on this machine, for uninstall and for refresh."""

from __future__ import annotations

import json
import os
from typing import Any

from ..engines.docker import Former
from ..errors import GpushimError, why
from ..places import Places
from .files import write_if_changed

FORMAT = 1


class DockerPart:
    """What was done to one daemon.json.

    config: its path as it was given; file: where it really is; pid_file: of the dockerd that uses
    it; backups: copies of what was there before, the oldest first; former: see `docker.Former`.
    """

    __slots__ = ("backups", "config", "file", "former", "pid_file")

    def __init__(
        self, config: str, file: str, pid_file: str, backups: list[str], former: Former
    ) -> None:
        self.config = config
        self.file = file
        self.pid_file = pid_file
        self.backups = backups
        self.former = former

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "file": self.file,
            "pid_file": self.pid_file,
            "backups": self.backups,
            "former": self.former.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DockerPart:
        return cls(
            data["config"],
            data["file"],
            data["pid_file"],
            data["backups"],
            Former.from_json(data["former"]),
        )


class Installation:
    """What there is of gpushim on this machine.

    refresh_interpreter: has gpushim and its requirements in its environment; python: the one that
    containers are created with; code: the directory that holds the package; files: path -> sha256
    of what was written there, or "-> target" for a link; directories: those that were made, the
    outer ones first; docker: one part for each daemon.json that gpushim was registered in.
    """

    __slots__ = (
        "code",
        "directories",
        "docker",
        "files",
        "python",
        "refresh_interpreter",
        "version",
    )

    def __init__(self, version: str, refresh_interpreter: str, python: str, code: str) -> None:
        self.version = version
        self.refresh_interpreter = refresh_interpreter
        self.python = python
        self.code = code
        self.files: dict[str, str] = {}
        self.directories: list[str] = []
        self.docker: list[DockerPart] = []

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": self.version,
            "refresh_interpreter": self.refresh_interpreter,
            "python": self.python,
            "code": self.code,
            "files": self.files,
            "directories": self.directories,
            "docker": [part.to_json() for part in self.docker],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Installation:
        made = cls(data["version"], data["refresh_interpreter"], data["python"], data["code"])
        made.files = data["files"]
        made.directories = data["directories"]
        made.docker = [DockerPart.from_json(part) for part in data["docker"]]
        return made

    def docker_part(self, file: str) -> DockerPart | None:
        """What was done to the daemon.json that really is at `file`."""
        return next((part for part in self.docker if part.file == file), None)


def read(places: Places) -> Installation | None:
    """The record of this installation, None if there is none.

    Raises GpushimError if it can't be read, or a newer gpushim wrote it.
    """
    path = places.installation
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        sentence = f"The installation record {path} can't be read: {why(error)}."
        raise GpushimError(sentence) from error
    except ValueError as error:
        raise GpushimError(f"The installation record {path} is damaged.", _REPAIR) from error
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise GpushimError(
            f"The installation record {path} was written by a newer gpushim "
            f"({data.get('version', 'unknown')}).",
            "Use the gpushimctl of that version.",
        )
    try:
        return Installation.from_json(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise GpushimError(f"The installation record {path} is damaged.", _REPAIR) from error


_REPAIR = "Move it away and run `gpushimctl install` again."


def write(places: Places, installation: Installation) -> bool:
    """Keep the record; returns whether it differs from the one that was there."""
    text = json.dumps(installation.to_json(), indent=2) + "\n"
    return write_if_changed(places.installation, text.encode(), 0o644)


def require(places: Places) -> None:
    """Raises GpushimError if gpushim is not installed here."""
    if not os.path.lexists(places.installation):
        raise GpushimError(
            f"gpushim is not installed here (there is no {places.installation}).",
            "Run `gpushimctl install`.",
        )
