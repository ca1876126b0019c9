"""gpushimctl explain: what a container asked for, what it was given, and what that changed.

And what its cgroup allows and uses. Or why it was refused: refusals are kept for a while.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
from typing import Any

from .. import records, refusals
from ..errors import GpushimError, why
from ..host.statefiles import own_places
from ..oci.bundle import load
from ..places import Places
from ..request.dockerrecord import name_by_spec
from . import explain_cgroup
from .explain_text import tell
from .output import print_json, say


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "container",
        metavar="CONTAINER",
        help="a container's id or the beginning of it, its name (Docker), or a bundle directory",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--no-diff", action="store_true", help="leave out what changed in config.json"
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    data = find(arguments.container, places)
    before, after = (None, None) if "sentence" in data else specs(data)
    data = {**data, "cgroup": explain_cgroup.reading(data, after)}
    if arguments.json:
        print_json({**data, "before": before, "after": after})
        return 0
    try:
        lines = tell(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise GpushimError(
            f"The record of {data['id']} was written by another version of gpushim.",
            "explain --json shows it as it is.",
        ) from error
    for line in lines:
        say(line)
    if not (arguments.no_diff or "sentence" in data):
        say("")
        say(diff(before, after).rstrip("\n") or "config.json of the bundle is not there any more.")
    return 0


def find(name: str, places: Places) -> dict[str, Any]:
    """The decision record of a live container. Raises GpushimError if it is none or several.

    name: an id, the beginning of one, a name that Docker knows it by, or a path of a bundle (with
    a slash in it).
    """
    if not name:
        raise GpushimError("The container to explain has no name.", _HOW_TO_NAME)
    places = own_places(places)
    every = [record.data for record in records.every(places.containers)]
    refused = refusals.every(places.refusals)
    if "/" in name or name == ".":
        directory = os.path.realpath(name)
        found = [data for data in every if data.get("bundle") == directory]
        if not found:
            found = [from_bundle(directory)]
    else:
        found = [data for data in every if data["id"] == name]
        found = found or [data for data in every if docker_name(data) == name]
        found = found or [data for data in every if data["id"].startswith(name)]
        # Of several refusals of one name, the latest comes first.
        found = found or [data for data in refused if name in (data["id"], data.get("name"))][:1]
        found = found or [data for data in refused if data["id"].startswith(name)]
    if not found and os.geteuid() != 0:
        raise GpushimError(
            f"No container {name} of yours was given GPUs by gpushim or refused lately, and what "
            "was decided for those of others can be read by root only.",
            f"Use sudo gpushimctl explain {name}.",
        )
    if not found:
        there = ", ".join(sorted(_shown(data) for data in every)) or "none"
        lately = ", ".join(_shown(data) for data in refused[:8])
        raise GpushimError(
            f"There is no live container {name} that was given GPUs by gpushim, nor one that was "
            "refused lately.",
            f"Those that were given GPUs: {there}."
            + (f" Lately refused or left without: {lately}." if lately else "")
            + " A container that asks for nothing is on no record.",
        )
    if len(found) > 1:
        there = ", ".join(
            f"{data['id']} (state in {data['state_root']})" if "state_root" in data else data["id"]
            for data in found
        )
        raise GpushimError(f"{name} means several containers: {there}.", "Give more of the id.")
    return found[0]


_HOW_TO_NAME = "Give its id, the beginning of it, its name (Docker), or a bundle directory."


def _shown(data: dict[str, Any]) -> str:
    """A container's id as people know it, with its name if it has one."""
    name = docker_name(data)
    return f"{data['id'][:12]} ({name})" if name else str(data["id"][:12])


def docker_name(data: dict[str, Any]) -> str:
    """The name that Docker knows the container by; "" if it is not Docker's."""
    if data.get("name"):
        return str(data["name"])
    _, spec = specs(data) if data.get("config") else (None, None)
    return name_by_spec(spec, data["id"]) if isinstance(spec, dict) else ""


def from_bundle(directory: str) -> dict[str, Any]:
    """What can be told of a bundle that no live container's record names."""
    try:
        bundle = load(directory, "config.json")
    except OSError as error:
        raise GpushimError(f"{directory}/config.json can't be read: {why(error)}.") from error
    if bundle.written is None:
        raise GpushimError(
            f"{directory} was not changed by gpushim: config.json is as the engine made it.",
            "A container is given GPUs if it asks for them, by NVIDIA_VISIBLE_DEVICES for one.",
        )
    return {"id": None, "bundle": bundle.directory, "config": bundle.config_path}


def specs(data: dict[str, Any]) -> tuple[Any, Any]:
    """The bundle's spec before and after gpushim; None where it is not there any more."""
    directory, path = data["bundle"], data["config"]
    try:
        bundle = load(directory, path)
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            after = json.load(file)
        before = json.loads(bundle.text) if bundle.written is not None else after
    except (OSError, ValueError, GpushimError):
        return None, None
    return before, after


def diff(before: Any, after: Any) -> str:
    """The difference of two specs, laid out one value a line."""
    if before is None or after is None:
        return ""
    texts = [json.dumps(side, indent=2).splitlines(keepends=True) for side in (before, after)]
    lines = difflib.unified_diff(
        texts[0], texts[1], "config.json before gpushim", "config.json after gpushim"
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
