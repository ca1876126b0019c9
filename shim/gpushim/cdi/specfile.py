"""One spec file, read and found right: its kind, its devices, and what each changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .document import Document, Place, SpecError, read
from .rules import SPEC, clean, shape_problems, spec_problems


class SpecFile:
    """A spec file that can be used.

    kind: "vendor/class"; version: of CDI, as it says; edits: containerEdits for whoever gets any
    of its devices; devices: name -> containerEdits; places: name -> where it stands in the file.
    Edits are in CDI's own form, without members that are null or empty.
    """

    __slots__ = ("devices", "edits", "kind", "path", "places", "version")

    def __init__(self, path: str, spec: dict[str, Any]) -> None:
        self.path = path
        self.kind: str = spec["kind"]
        self.version: str = spec["cdiVersion"].removeprefix("v")
        self.edits: dict[str, Any] = spec.get("containerEdits", {})
        self.devices: dict[str, dict[str, Any]] = {
            device["name"]: device["containerEdits"] for device in spec["devices"]
        }
        self.places: dict[str, Place] = {
            device["name"]: ("devices", number, "name")
            for number, device in enumerate(spec["devices"])
        }


class BrokenSpec(SpecError):
    """A spec file that is wrong; kind: of the devices that it would describe, "" if unknown."""

    def __init__(self, error: SpecError, kind: str = "") -> None:
        super().__init__(error.sentence, error.hint)
        self.kind = kind


def load(path: str) -> SpecFile:
    """The spec file at `path`. Raises BrokenSpec with the first thing that is wrong in it."""
    try:
        document = read(path)
    except SpecError as error:
        raise BrokenSpec(error) from None
    for place, reason in problems(document):
        raise BrokenSpec(document.error(place, reason), _kind(document.data))
    return SpecFile(path, clean(document.data, SPEC, document.is_yaml))


def problems(document: Document) -> Iterator[tuple[Place, str]]:
    """All that is wrong with a spec: where in it, and what."""
    found = False
    for problem in shape_problems(document.data, document.is_yaml):
        found = True
        yield problem
    if not found:
        yield from spec_problems(clean(document.data, SPEC, document.is_yaml))


def _kind(data: Any) -> str:
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else ""
