"""gpushimctl cdi validate: whether spec files are right, by the JSON Schema and by CDI's rules."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from gpushim_specs import load
from jsonschema import Draft7Validator

from ..cdi.document import ENDINGS, Document, Place, SpecError, read
from ..cdi.registry import conflict
from ..cdi.registry import read as read_registry
from ..cdi.rules import SPEC, clean
from ..cdi.specfile import problems
from ..places import Places
from .cdi_list import spec_directories
from .output import print_json, say, warn


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="spec files; without any those of the configured directories (cdi.spec-dirs)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = "exit status: 0 if all are right, 1 if one is not or two contradict each other"


def run(arguments: argparse.Namespace, places: Places) -> int:
    conflicts: dict[str, list[str]] = {}
    files: list[str] = arguments.files
    if not files:
        registry = read_registry(spec_directories(places))
        conflicts = registry.conflicts
        files = sorted({*registry.errors, *(spec.path for spec in registry.specs)})
    found = {path: check(path) for path in files}
    is_right = not conflicts and not any(found.values())
    if arguments.json:
        print_json(
            {
                "valid": is_right,
                "files": [{"path": path, "problems": texts} for path, texts in found.items()],
                "conflicts": conflicts,
            }
        )
        return 0 if is_right else 1
    for texts in found.values():
        for text in texts:
            warn(text)
    for name, where in conflicts.items():
        warn(conflict(name, where))
    good = sum(not texts for texts in found.values())
    if is_right:
        say(f"{good} spec file{'' if good == 1 else 's'} checked, nothing is wrong.")
    else:
        say(f"{len(found)} spec file{'' if len(found) == 1 else 's'} checked, {good} right.")
    return 0 if is_right else 1


def check(path: str) -> list[str]:
    """A sentence, with the line, for all that is wrong with a spec file."""
    if not path.endswith(ENDINGS):
        return [f"{path} is read by no engine: the names of spec files end with .json or .yaml."]
    try:
        document = read(path)
    except SpecError as error:
        return [str(error)]
    return [str(document.error(place, reason)) for place, reason in all_problems(document)]


def all_problems(document: Document) -> Iterable[tuple[Place, str]]:
    """What the rules find, and, where they find nothing, what the JSON Schema does."""
    return list(problems(document)) or schema_problems(clean(document.data, SPEC, document.is_yaml))


def schema_problems(data: Any) -> Iterator[tuple[Place, str]]:
    """What the JSON Schema finds in a spec."""
    for error in Draft7Validator(load("cdi")).iter_errors(data):
        yield tuple(error.absolute_path), error.message
