"""gpushimctl cdi show NAME: what a device changes in a container, and which file says so."""

from __future__ import annotations

import argparse
from typing import Any

from .. import config_file
from ..allocate.names import how_to_ask, matching, table
from ..cdi.collect import plain, problems
from ..cdi.document import read as read_document
from ..cdi.names import parse_qualified
from ..cdi.registry import Registry, read
from ..cdi.specfile import SpecFile
from ..cdi.unresolvable import unresolvable
from ..errors import GpushimError
from ..places import Places
from ..request.request import ALL
from ..request.wanted import named
from ..snapshot import load
from .output import print_json, say, warn


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help="vendor/class=device; without vendor and class a device of cdi.default-kind",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    config = config_file.read(places.config)
    name = arguments.name
    if "=" not in name:
        name = f"{config.text('cdi.default-kind')}={name}"
    parse_qualified(name)
    directories = config.texts("cdi.spec-dirs")
    registry = read(directories)
    if name not in registry.devices:
        state = plain(registry)
        wanted = named([name], "", config)
        if wanted.cdi or name in registry.conflicts:
            raise unresolvable([name], {"spec_dirs": directories, **state})
        return _show_own(name, wanted.names, arguments.json, places, problems(state))
    spec = registry.devices[name]
    device = name.partition("=")[2]
    line = read_document(spec.path).line(spec.places[device])
    if arguments.json:
        print_json(
            {
                "name": name,
                "spec": spec.path,
                "line": line,
                "cdiVersion": spec.version,
                "outranked": _outranked(registry, spec, device),
                "specEdits": spec.edits,
                "deviceEdits": spec.devices[device],
            }
        )
        return 0
    say(f"CDI device {name}")
    say(f"  from: {spec.path}, line {line} (CDI {spec.version})")
    for path in _outranked(registry, spec, device):
        say(f"  outranks: {path}")
    for heading, edits in (
        ("Changes for any device of this file:", spec.edits),
        ("Changes for this device:", spec.devices[device]),
    ):
        if edits:
            say("\n".join([heading, *[f"  {line}" for line in edit_lines(edits)]]))
    return 0


def _show_own(name: str, own: list[str], as_json: bool, places: Places, wrong: list[str]) -> int:
    """Tell of a name that means a GPU by itself, in no need of a spec file.

    own: what it is called without the kind, [] for the driver's files alone; wrong: what is
    wrong with spec files. Raises GpushimError if the machine is known and has no such GPU.
    """
    snapshot = load(places)
    gpus = snapshot.inventory.gpus if snapshot is not None else []
    word = own[0] if own else ""
    is_mig = word.startswith("MIG-") or ":" in word
    if gpus and word not in ("", ALL) and not matching(word, gpus):
        raise GpushimError(
            f"{name} is no {'MIG device' if is_mig else 'GPU'} of this machine: {table(gpus)}.",
            how_to_ask(word, gpus),
        )
    if not word:
        is_what = "the driver's files without a GPU"
    elif word == ALL:
        is_what = "each GPU of this machine"
    else:
        is_what = f"a {'MIG device' if is_mig else 'GPU'} of this machine"
    note = (
        f"{name} is {is_what}, which gpushim gives without a spec file; `gpushimctl cdi generate` "
        "prints one for engines without gpushim."
    )
    if as_json:
        print_json({"name": name, "spec": None, "note": note})
        return 0
    say(note)
    for problem in wrong:
        warn(problem)
    return 0


def _outranked(registry: Registry, spec: SpecFile, device: str) -> list[str]:
    """Paths of the files that describe the device, too, and do not count."""
    return [
        other.path
        for other in registry.specs
        if other is not spec and other.kind == spec.kind and device in other.devices
    ]


def edit_lines(edits: dict[str, Any]) -> list[str]:
    """A containerEdits (without empty members), each change in a line."""
    lines = [f"environment {entry}" for entry in edits.get("env", [])]
    lines += [_node_line(node) for node in edits.get("deviceNodes", [])]
    for mount in edits.get("mounts", []):
        options = ",".join(mount.get("options", []))
        lines.append(
            f"mount {mount['hostPath']} at {mount['containerPath']}"
            + (f" as {mount['type']}" if "type" in mount else "")
            + (f" ({options})" if options else "")
        )
    for hook in edits.get("hooks", []):
        timeout = f" (at most {hook['timeout']} s)" if "timeout" in hook else ""
        words = " ".join([hook["path"], *hook.get("args", [])[1:]])
        lines.append(f"hook {hook['hookName']}: {words}{timeout}")
    lines += [f"extra group {gid}" for gid in edits.get("additionalGids", []) if gid]
    for name, value in edits.get("intelRdt", {}).items():
        lines.append(f"intelRdt {name}: {', '.join(value) if isinstance(value, list) else value}")
    lines += [
        f"network interface {device['hostInterfaceName']} as {device['name']}"
        for device in edits.get("netDevices", [])
    ]
    return lines


def _node_line(node: dict[str, Any]) -> str:
    facts = [node.get("permissions", "rwm")]
    if "major" in node:
        facts.insert(0, f"{node['major']}:{node.get('minor', 0)}")
    if "fileMode" in node:
        facts.append(f"mode {node['fileMode']:04o}")
    facts += [f"{field} {node[field]}" for field in ("uid", "gid") if field in node]
    host = node.get("hostPath", node["path"])
    source = f" from {host}" if host != node["path"] else ""
    return f"device {node['path']}{source} ({', '.join(facts)})"
