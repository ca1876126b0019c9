"""What a CDI spec may hold: types, fields and meaning (CDI SPEC.md 1.1.0).

Written out because the JSON Schema tells less (it knows neither the versions nor what two values
have to do with each other) and takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..oci.edits import HOOK_STAGES, NO_PERMISSIONS
from .document import Place
from .names import device_problem, kind_problem
from .version import VERSIONS, minimum_version

Problem = tuple[Place, str]

# A shape is "text", "flag", the bounds of a whole number, [the shape of each element], a dictionary
# of fields, or _MAP for any fields with texts.
_UINT32 = (0, 0xFFFFFFFF)
_MAP = "texts by name"
_NODE = {
    "path": "text",
    "hostPath": "text",
    "type": "text",
    "major": _UINT32,
    "minor": _UINT32,
    "fileMode": _UINT32,
    "permissions": "text",
    "uid": _UINT32,
    "gid": _UINT32,
}
_MOUNT = {"hostPath": "text", "containerPath": "text", "type": "text", "options": ["text"]}
_HOOK = {
    "hookName": "text",
    "path": "text",
    "args": ["text"],
    "env": ["text"],
    "timeout": (1, 0x7FFFFFFF),
}
_INTEL_RDT = {
    "closID": "text",
    "l3CacheSchema": "text",
    "memBwSchema": "text",
    "schemata": ["text"],
    "enableMonitoring": "flag",
}
_NET_DEVICE = {"hostInterfaceName": "text", "name": "text"}
EDITS: dict[str, Any] = {
    "env": ["text"],
    "deviceNodes": [_NODE],
    "mounts": [_MOUNT],
    "hooks": [_HOOK],
    "additionalGids": [_UINT32],
    "intelRdt": _INTEL_RDT,
    "netDevices": [_NET_DEVICE],
}
_DEVICE = {"name": "text", "annotations": _MAP, "containerEdits": EDITS}
SPEC: dict[str, Any] = {
    "cdiVersion": "text",
    "kind": "text",
    "annotations": _MAP,
    "devices": [_DEVICE],
    "containerEdits": EDITS,
}


def clean(value: Any, shape: Any, numbers_as_text: bool) -> Any:
    """`value` without members that are null or empty, of a shape that holds.

    numbers_as_text: whether a whole number stands where a text should, as YAML has an unquoted 0.
    """
    if shape == "text":
        return str(value) if numbers_as_text else value
    if shape == _MAP:
        return {name: clean(inner, "text", numbers_as_text) for name, inner in value.items()}
    if isinstance(shape, list):
        return [clean(inner, shape[0], numbers_as_text) for inner in value]
    if not isinstance(shape, dict):
        return value
    made = {
        name: clean(inner, shape[name], numbers_as_text)
        for name, inner in value.items()
        if inner is not None
    }
    # A flag that is off says nothing, but the number 0 is one.
    return {name: inner for name, inner in made.items() if inner or type(inner) is int}


def shape_problems(
    value: Any, numbers_as_text: bool, shape: Any = None, place: Place = ()
) -> Iterator[Problem]:
    """What has the wrong type, is out of bounds or is not known, from the top downwards.

    A member that is null counts as absent. numbers_as_text: see `clean`.
    """
    shape = SPEC if shape is None else shape
    if shape == "text":
        if isinstance(value, str):
            yield from _text_problems(value, place)
        elif not (numbers_as_text and isinstance(value, int) and not isinstance(value, bool)):
            yield place, f"{_what(value)} stands where a text should (quotes make one)"
    elif shape == "flag":
        if not isinstance(value, bool):
            yield place, f"{_what(value)} stands where true or false should"
    elif isinstance(shape, tuple):
        if not isinstance(value, int) or isinstance(value, bool):
            yield place, f"{_what(value)} stands where a whole number should"
        elif not shape[0] <= value <= shape[1]:
            yield place, f"{value} is not between {shape[0]} and {shape[1]}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield place, f"{_what(value)} stands where a list should"
        else:
            for number, inner in enumerate(value):
                yield from shape_problems(inner, numbers_as_text, shape[0], (*place, number))
    elif not isinstance(value, dict):
        yield place, f"{_what(value)} stands where an object should"
    else:
        for name, inner in value.items():
            if not isinstance(name, str):
                yield place, f"{name!r} is no name of a field"
            elif shape == _MAP:
                yield from shape_problems(inner, numbers_as_text, "text", (*place, name))
            elif name not in shape:
                yield (*place, name), f"there is no such field ({', '.join(shape)} are known)"
            elif inner is not None:
                yield from shape_problems(inner, numbers_as_text, shape[name], (*place, name))


def _text_problems(text: str, place: Place) -> Iterator[Problem]:
    if "\0" in text:
        yield place, "the character NUL ends a text for the kernel"
    try:
        text.encode()
    except UnicodeEncodeError:
        yield place, "half of a surrogate pair is no character"


def _what(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, (int, float)):
        return "a number"
    return {type(None): "null", list: "a list", dict: "an object"}.get(type(value), "this")


def spec_problems(spec: dict[str, Any]) -> Iterator[Problem]:
    """What is wrong with a spec (as `clean` gives it) whose shape is right."""
    yield from _version_problems(spec)
    kind = spec.get("kind", "")
    reason = kind_problem(kind) if kind else "the kind of the devices is missing"
    if reason:
        yield ("kind",), reason
    yield from _annotation_problems(spec.get("annotations", {}), ("annotations",))
    devices = spec.get("devices", [])
    if not devices:
        yield ("devices",), "there is no device"
    seen: set[str] = set()
    for number, device in enumerate(devices):
        place: Place = ("devices", number)
        name = device.get("name", "")
        reason = device_problem(name) if name else "the name of the device is missing"
        if reason:
            yield (*place, "name"), reason
        elif name in seen:
            yield (*place, "name"), f"there are two devices {name!r}"
        seen.add(name)
        yield from _annotation_problems(device.get("annotations", {}), (*place, "annotations"))
        edits = device.get("containerEdits")
        if not edits:
            yield (*place, "containerEdits"), f"the device {name!r} changes nothing"
        else:
            yield from edit_problems(edits, (*place, "containerEdits"))
    yield from edit_problems(spec.get("containerEdits", {}), ("containerEdits",))


def _version_problems(spec: dict[str, Any]) -> Iterator[Problem]:
    declared = spec.get("cdiVersion", "").removeprefix("v")
    if not declared:
        yield ("cdiVersion",), "the version of the specification is missing"
    elif declared not in VERSIONS:
        yield ("cdiVersion",), f"{declared!r} is no version of CDI ({', '.join(VERSIONS)})"
    else:
        version, feature = minimum_version(spec)
        if VERSIONS.index(declared) < VERSIONS.index(version):
            yield ("cdiVersion",), f"{declared} has no {feature}, which needs {version}"


def _annotation_problems(annotations: dict[str, str], place: Place) -> Iterator[Problem]:
    """Names as Kubernetes has them for annotations, which CDI SPEC.md refers to."""
    for key in annotations:
        prefix, slash, name = key.rpartition("/")
        edges = name[:1] + name[-1:]
        inner = name.replace("-", "").replace("_", "").replace(".", "")
        fits = len(name) <= 63 and edges.isalnum() and inner.isalnum() and name.isascii()
        if not fits or (slash and not 0 < len(prefix) <= 253):
            yield (*place, key), "this is no name of an annotation"


def edit_problems(edits: dict[str, Any], place: Place) -> Iterator[Problem]:
    """What is wrong with a containerEdits whose shape is right."""
    yield from _env_problems(edits.get("env", []), (*place, "env"))
    for number, node in enumerate(edits.get("deviceNodes", [])):
        yield from _node_problems(node, (*place, "deviceNodes", number))
    for number, mount in enumerate(edits.get("mounts", [])):
        for field in ("hostPath", "containerPath"):
            if field not in mount:
                yield (*place, "mounts", number), f"the mount has no {field}"
    for number, hook in enumerate(edits.get("hooks", [])):
        yield from _hook_problems(hook, (*place, "hooks", number))
    group = edits.get("intelRdt", {}).get("closID", "x")
    # It names a directory beneath /sys/fs/resctrl, or the root one.
    if group != "/" and (
        group in (".", "..") or len(group) >= 4096 or "/" in group or "\n" in group
    ):
        yield (*place, "intelRdt", "closID"), f"{group[:80]!r} is no name of a directory, nor /"
    seen: dict[str, set[str]] = {field: set() for field in _NET_DEVICE}
    for number, device in enumerate(edits.get("netDevices", [])):
        for field in _NET_DEVICE:
            at = (*place, "netDevices", number)
            name = device.get(field, "")
            if not name:
                yield at, f"the network interface has no {field}"
            elif name in seen[field]:
                yield (*at, field), f"there are two network interfaces {name!r}"
            seen[field].add(name)


def _env_problems(env: list[str], place: Place) -> Iterator[Problem]:
    for number, entry in enumerate(env):
        if entry.find("=") <= 0:
            yield (*place, number), f"{entry!r} is not of the form NAME=value"


def _node_problems(node: dict[str, Any], place: Place) -> Iterator[Problem]:
    if "path" not in node:
        yield place, "the device node has no path"
    if node.get("type", "c") not in ("b", "c", "u", "p"):
        yield (*place, "type"), f"{node['type']!r} is no type of device node (b, c, u or p)"
    permissions = node.get("permissions", "")
    if permissions != NO_PERMISSIONS and permissions.strip("rwm"):
        yield (
            (*place, "permissions"),
            f"{permissions!r} is neither made of r, w and m, nor {NO_PERMISSIONS!r}",
        )


def _hook_problems(hook: dict[str, Any], place: Place) -> Iterator[Problem]:
    name = hook.get("hookName", "")
    if name not in HOOK_STAGES:
        yield (*place, "hookName"), f"{name!r} is none of {', '.join(HOOK_STAGES)}"
    path = hook.get("path", "")
    if not path.startswith("/"):
        yield (*place, "path"), f"the hook's program, {path!r}, is not an absolute path"
    yield from _env_problems(hook.get("env", []), (*place, "env"))
