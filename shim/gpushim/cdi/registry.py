"""All spec files of a machine, and which of them a device is taken from.

A device in a later directory replaces that of the same name in an earlier one. Two in the same
directory are a conflict, and then neither counts (CDI SPEC.md 1.1.0 and its reference
implementation). A spec file that is wrong costs its own devices only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ..errors import why
from .document import ENDINGS, SpecError
from .specfile import BrokenSpec, SpecFile, load


class Registry:
    """What the spec files of a machine say.

    specs: those that are right, in the order of their directories and names; devices: qualified
    name -> the spec that describes it; conflicts: qualified name -> paths of the files of one
    directory that all have it; errors: path -> what is wrong with that file (or directory).
    """

    __slots__ = ("conflicts", "devices", "errors", "specs")

    def __init__(self) -> None:
        self.specs: list[SpecFile] = []
        self.devices: dict[str, SpecFile] = {}
        self.conflicts: dict[str, list[str]] = {}
        self.errors: dict[str, BrokenSpec] = {}


def conflict(name: str, paths: Sequence[str]) -> str:
    """A sentence on a device that several files of the same directory describe."""
    return f"The CDI device {name} is described by several files: {', '.join(paths)}."


def read(directories: Sequence[str]) -> Registry:
    """What the spec files in `directories` say; later directories outrank earlier ones."""
    registry = Registry()
    for directory in directories:
        _add_directory(registry, directory)
    return registry


def _add_directory(registry: Registry, directory: str) -> None:
    here: dict[str, list[SpecFile]] = {}
    try:
        paths = spec_files(directory)
        if paths and os.stat(directory).st_mode & stat.S_IWOTH:
            reason = SpecError(
                f"The directory {directory} can be written by everybody, and what spec files say "
                "is done as root.",
                f"chmod o-w {directory}",
            )
            registry.errors[directory] = BrokenSpec(reason)
            return
    except OSError as error:
        reason = SpecError(f"The directory {directory} cannot be read: {why(error)}.")
        registry.errors[directory] = BrokenSpec(reason)
        return
    for path in paths:
        try:
            spec = load(path)
        except BrokenSpec as broken:
            registry.errors[path] = broken
            continue
        registry.specs.append(spec)
        for name in spec.devices:
            here.setdefault(f"{spec.kind}={name}", []).append(spec)
    for name, specs in here.items():
        registry.devices.pop(name, None)
        registry.conflicts.pop(name, None)
        if len(specs) == 1:
            registry.devices[name] = specs[0]
        else:
            registry.conflicts[name] = [spec.path for spec in specs]


def spec_files(directory: str) -> list[str]:
    """The paths of the spec files in a directory, in the order of their names.

    Those in directories beneath it do not count. Raises OSError; a directory that is not there
    has none.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    paths = [f"{directory}/{name}" for name in sorted(names) if name.endswith(ENDINGS)]
    return [path for path in paths if not os.path.isdir(path)]
