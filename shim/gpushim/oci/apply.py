"""Edits applied to a spec: the one place where they become members of config.json.

Applying twice changes nothing. What the Edits do not name survives byte for byte.
"""

from __future__ import annotations

from gpushim.oci.edits import HOOK_STAGES
from gpushim.oci.jsonpatch import REMOVE, Before, Value, patch, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpushim.oci.edits import DeviceNode, Edits, Hook, Mount
    from gpushim.oci.jsonpatch import ListChange, Members, Patch

# How a device node is bound where mknod is not possible; runc does the same in a user namespace.
_NODE_OPTIONS = ["bind", "rprivate", "nosuid", "noexec"]


def apply(text: str, edits: Edits, whole: Members | None = None) -> str:
    """The spec `text` with `edits` applied. Raises ValueError if a member has the wrong type.

    whole: its members, if somebody has read them already.
    """
    whole = whole or read(text)
    nodes = [_device(node) for node in edits.device_nodes if not edits.bind_devices]
    removed = _rules_to_remove(whole, edits.remove_devices, nodes) if edits.remove_devices else []
    linux: Patch = {
        "devices": _replace_by("path", nodes, edits.remove_devices),
        "resources": {"devices": _rules(edits.device_nodes, removed)},
    }
    if edits.intel_rdt is not None:
        linux["intelRdt"] = Value(edits.intel_rdt)
    if edits.net_devices:
        linux["netDevices"] = {
            host: Value({"name": name}) for host, name in edits.net_devices.items()
        }
    change: Patch = {
        "process": {
            "env": environment(edits),
            "user": {"additionalGids": _gids(edits.additional_gids)},
        },
        "mounts": _mounts(edits),
        "linux": linux,
        "hooks": {stage: _hooks(edits, stage) for stage in HOOK_STAGES},
    }
    return patch(text, change, whole)


def environment(edits: Edits) -> ListChange:
    """The change of a list of NAME=value: each of our variables once, where it stood last.

    A variable that is both to be set and to be taken out is set.
    """
    removed = [name for name in edits.remove_env if name not in edits.env]
    names = (*edits.env, *removed)

    def change(entries: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        places: dict[str, list[int]] = {}
        # A container may have thousands of variables, so most are passed over at once.
        for number in [
            n for n, it in enumerate(entries) if isinstance(it, str) and it.startswith(names)
        ]:
            name = entries[number].partition("=")[0]
            if name in names:
                places.setdefault(name, []).append(number)
        replaced: dict[int, Any] = {
            number: REMOVE for name in removed for number in places.get(name, ())
        }
        appended = []
        for name, value in edits.env.items():
            entry = f"{name}={value}"
            found = places.get(name)
            if not found:
                appended.append(entry)
                continue
            replaced.update(dict.fromkeys(found[:-1], REMOVE))
            if entries[found[-1]] != entry:
                replaced[found[-1]] = entry
        return replaced, appended

    return change


def _gids(gids: list[int]) -> ListChange:
    return lambda present: ({}, [gid for gid in dict.fromkeys(gids) if gid not in present])


def _replace_by(
    key: str, wanted: list[dict[str, Any]], removed: Iterable[str], sort: bool = False
) -> ListChange:
    """Entries of the same `key` are taken out, ours are added behind the others.

    An entry that is there already as it is wanted stays where it is. removed: values of `key`
    whose entries are taken out; sort: ours go before present ones that lie beneath them.
    """

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        ours = {_normal(entry[key]): entry for entry in wanted}
        gone = {_normal(name) for name in removed}
        kept = set()
        replaced: dict[int, Any] = {}
        others: list[tuple[int, str]] = []
        for number, entry in enumerate(present):
            name = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue
            if name[-1:] == "/":
                name = _normal(name)
            if name not in ours:
                if name in gone:
                    replaced[number] = REMOVE
                elif sort:
                    others.append((number, name))
            elif entry == ours[name] and name not in kept:
                kept.add(name)
            else:
                replaced[number] = REMOVE
        added = {name: entry for name, entry in ours.items() if name not in kept}
        if sort:
            return _put_in(added, others, replaced)
        return replaced, list(added.values())

    return change


def _put_in(
    added: dict[str, Any], others: list[tuple[int, str]], replaced: dict[int, Any]
) -> tuple[dict[int, Any], list[Any]]:
    """A change in which each added mount covers nothing and is covered by nothing that is there.

    CDI wants all mounts in the order of their depth, of which only this matters: a mount comes
    after those that it lies in, and before those that lie in it. Those that are there stay in
    their order. others: index and destination of each of them.
    """
    appended = []
    for name in sorted(added, key=_depth):
        behind = [number for number, other in others if _lies_in(name, other)]
        last = behind[-1] if behind else -1
        before = [number for number, other in others if number > last and _lies_in(other, name)]
        if before:
            replaced.setdefault(before[0], Before([])).values.append(added[name])
        else:
            appended.append(added[name])
    return replaced, appended


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


def _lies_in(path: str, directory: str) -> bool:
    return path != directory and path.startswith(directory.rstrip("/") + "/")


def _normal(path: str) -> str:
    """A path as a mount or device names it, without a slash at its end."""
    return path.rstrip("/") or "/"


def _mounts(edits: Edits) -> ListChange:
    wanted = [_mount(mount) for mount in edits.mounts]
    if edits.bind_devices:
        wanted += [
            {
                "destination": node.path,
                "type": "bind",
                "source": node.host_path,
                "options": _NODE_OPTIONS,
            }
            for node in edits.device_nodes
        ]
    return _replace_by("destination", wanted, edits.remove_mounts, edits.sort_mounts)


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "destination": mount.container_path,
        "type": mount.type,
        "source": mount.host_path,
        "options": mount.options,
    }


def _device(node: DeviceNode) -> dict[str, Any]:
    made: dict[str, Any] = {"path": node.path, "type": node.type}
    if node.type != "p":
        made["major"] = node.major
        made["minor"] = node.minor
    if node.file_mode is not None:
        made["fileMode"] = node.file_mode
    if node.uid is not None:
        made["uid"] = node.uid
    if node.gid is not None:
        made["gid"] = node.gid
    return made


def _rules_to_remove(
    whole: Members, paths: list[str], ours: list[dict[str, Any]]
) -> list[tuple[Any, Any, Any]]:
    """Kind, major and minor of devices that are taken out, unless a node that stays has them, too.

    paths: of those devices; ours: nodes as they are wanted, which stay. What the patch will refuse
    for its type is passed over here.
    """
    gone = {_normal(path) for path in paths}
    linux = whole.plain().get("linux")
    present = linux.get("devices") if isinstance(linux, dict) else None
    removed: list[tuple[Any, Any, Any]] = []
    kept: list[tuple[Any, Any, Any]] = []
    for device in present if isinstance(present, list) else []:
        if isinstance(device, dict) and isinstance(device.get("path"), str):
            numbers = (_kind(device.get("type")), device.get("major"), device.get("minor"))
            is_gone = _normal(device["path"]) in gone and device not in ours
            (removed if is_gone else kept).append(numbers)
    return [numbers for numbers in removed if numbers not in kept]


def _kind(type: Any) -> Any:
    """The kind of device that a rule is about: the kernel knows blocks and characters only."""
    return "c" if type == "u" else type


def _rules(nodes: list[DeviceNode], removed: list[tuple[Any, Any, Any]]) -> ListChange:
    """Allow rules behind those that are there: the last that matches a device counts.

    removed: kind, major and minor of the devices whose allow rules are taken out.
    """
    wanted: list[dict[str, Any]] = []
    for node in nodes:
        # A FIFO needs no rule, and runc refuses one that allows nothing.
        if node.type == "p" or not node.permissions:
            continue
        rule = {
            "allow": True,
            "type": _kind(node.type),
            "major": node.major,
            "minor": node.minor,
            "access": node.permissions,
        }
        if rule not in wanted:
            wanted.append(rule)

    def is_removed(rule: Any) -> bool:
        return (
            isinstance(rule, dict)
            and rule.get("allow") is True
            and (_kind(rule.get("type")), rule.get("major"), rule.get("minor")) in removed
        )

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        # A rule that is there already, but before one that denies, would not count.
        tail = present[-len(wanted) :] if wanted else []
        settled = len(present) - len(wanted) if tail == wanted else len(present)
        again = {}
        for number, rule in enumerate(present[:settled]):
            if (tail != wanted and rule in wanted) or (removed and is_removed(rule)):
                again[number] = REMOVE
        return again, [] if tail == wanted else list(wanted)

    return change


def _hooks(edits: Edits, stage: str) -> ListChange:
    wanted = [_hook(hook) for hook in edits.hooks if hook.hook_name == stage]

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        gone = {
            number: REMOVE
            for number, hook in enumerate(present)
            if isinstance(hook, dict)
            and str(hook.get("path")).rpartition("/")[2] in edits.remove_hooks
        }
        return gone, [hook for hook in wanted if hook not in present]

    return change


def _hook(hook: Hook) -> dict[str, Any]:
    made: dict[str, Any] = {"path": hook.path, "args": hook.args, "env": hook.env}
    if hook.timeout is not None:
        made["timeout"] = hook.timeout
    return made
