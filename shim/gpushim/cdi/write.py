"""Edits as a CDI spec: the document and its text, and which driver trees such specs need.

For the administration and for refresh, never for a create.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..oci.edits import Edits
from ..oci.files import read_small
from .document import MAXIMUM_BYTES
from .registry import spec_files
from .version import minimum_version

FORMATS = ("json", "yaml")


def document(
    kind: str, devices: Sequence[tuple[Sequence[str], Edits]], common: Edits
) -> dict[str, Any]:
    """A spec of `kind`, of the oldest version of CDI that has all that it uses.

    devices: the names of each, which are devices of their own in CDI, and what it needs; common:
    what all of them need. The order of members is that of CDI SPEC.md.
    """
    spec: dict[str, Any] = {
        "cdiVersion": "",
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": container_edits(edits)}
            for names, edits in devices
            for name in names
        ],
        "containerEdits": container_edits(common),
    }
    spec["cdiVersion"] = minimum_version(spec)[0]
    return spec


def container_edits(edits: Edits) -> dict[str, Any]:
    """Edits for a spec that outlives the boot: without the numbers of device nodes, which change.

    Who resolves such a spec takes type and numbers from the host's node. Mode and owner are left
    out, too, for a node that everybody may use.
    """
    found = edits.container_edits()
    if "deviceNodes" in found:
        found["deviceNodes"] = [_node(node) for node in found["deviceNodes"]]
    return found


def _node(node: dict[str, Any]) -> dict[str, Any]:
    kept = {"path": node["path"]}
    if node["hostPath"] != node["path"]:
        kept["hostPath"] = node["hostPath"]
    if node.get("fileMode", 0o666) & 0o006 != 0o006:
        kept.update((name, node[name]) for name in ("fileMode", "gid") if name in node)
    return {**kept, "permissions": node["permissions"]}


def as_text(spec: dict[str, Any], form: str) -> str:
    """The spec as a file's text; form: one of FORMATS."""
    return as_yaml(spec) if form == "yaml" else json.dumps(spec, indent=2) + "\n"


def as_yaml(spec: dict[str, Any]) -> str:
    """As YAML in which every text that a reader could take for a number stands in quotes.

    Readers of YAML 1.1 take "0:1" for one, and those of 1.2 do not.
    """
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc] # the package has no types
        def ignore_aliases(self, data: object) -> bool:
            return True  # a list that is used twice is written twice, for readers' sake

    def text(dumper: Any, data: str) -> Any:
        style = None if re.fullmatch(r"[A-Za-z/][\w./ =-]*", data, re.ASCII) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    written = yaml.dump(spec, Dumper=Dumper, sort_keys=False, width=1 << 20, allow_unicode=False)
    return str(written)


def named_trees(directories: Iterable[str], driver_trees: str) -> set[str]:
    """The driver trees that spec files in these directories name, be they sound or not.

    They must not be collected, though no container may use them at the moment. driver_trees: the
    directory that holds them, a directory for each version.
    """
    tree = re.compile(re.escape(driver_trees.encode()) + rb"/[^/\s\"']+/[^/\s\"',=]+")
    found: set[str] = set()
    for directory in directories:
        for path in _paths(directory):
            try:
                data = read_small(path, MAXIMUM_BYTES)
            except OSError:
                continue
            found.update(os.fsdecode(match) for match in tree.findall(data))
    return found


def _paths(directory: str) -> list[str]:
    try:
        return spec_files(directory)
    except OSError:
        return []
