"""Edits applied to a spec: the one place where they become members of config.json.

Applying twice changes nothing. What the Edits do not name survives byte for byte.
"""

from __future__ import annotations

from gpushim.oci.edits import HOOK_STAGES
from gpushim.oci.jsonpatch import REMOVE, patch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.oci.edits import DeviceNode, Edits, Mount
    from gpushim.oci.jsonpatch import ListChange, Members, Patch

# How a device node is bound where mknod is not possible; runc does the same in a user namespace.
_NODE_OPTIONS = ["bind", "rprivate", "nosuid", "noexec"]


def apply(text: str, edits: Edits, whole: Members | None = None) -> str:
    """The spec `text` with `edits` applied. Raises ValueError if a member has the wrong type.

    whole: its members, if somebody has read them already.
    """
    change: Patch = {
        "process": {
            "env": environment(edits),
            "user": {"additionalGids": _gids(edits.additional_gids)},
        },
        "mounts": _mounts(edits),
        "linux": {
            "devices": _devices([] if edits.bind_devices else edits.device_nodes),
            "resources": {"devices": _rules(edits.device_nodes)},
        },
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


def _replace_by(key: str, wanted: list[dict[str, Any]]) -> ListChange:
    """Entries of the same `key` are taken out, ours are added behind the others.

    An entry that is there already as it is wanted stays where it is.
    """

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        ours = {_normal(entry[key]): entry for entry in wanted}
        kept = set()
        replaced: dict[int, Any] = {}
        for number, entry in enumerate(present):
            name = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue
            if name[-1:] == "/":
                name = _normal(name)
            if name not in ours:
                continue
            if entry == ours[name] and name not in kept:
                kept.add(name)
            else:
                replaced[number] = REMOVE
        return replaced, [entry for name, entry in ours.items() if name not in kept]

    return change


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
    return _replace_by("destination", wanted)


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "destination": mount.container_path,
        "type": "bind",
        "source": mount.host_path,
        "options": mount.options,
    }


def _devices(nodes: list[DeviceNode]) -> ListChange:
    return _replace_by(
        "path",
        [
            {
                "path": node.path,
                "type": "c",
                "major": node.major,
                "minor": node.minor,
                "fileMode": node.file_mode,
                "uid": node.uid,
                "gid": node.gid,
            }
            for node in nodes
        ],
    )


def _rules(nodes: list[DeviceNode]) -> ListChange:
    """Allow rules behind those that are there: the last that matches a device counts."""
    wanted = []
    for node in nodes:
        rule = {
            "allow": True,
            "type": "c",
            "major": node.major,
            "minor": node.minor,
            "access": node.permissions,
        }
        if rule not in wanted:
            wanted.append(rule)

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        # A rule that is there already, but before one that denies, would not count.
        tail = present[-len(wanted) :] if wanted else []
        if tail == wanted:
            return {}, []
        again = {number: REMOVE for number, rule in enumerate(present) if rule in wanted}
        return again, list(wanted)

    return change


def _hooks(edits: Edits, stage: str) -> ListChange:
    wanted = [
        {"path": hook.path, "args": hook.args, "env": hook.env}
        for hook in edits.hooks
        if hook.hook_name == stage
    ]

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        gone = {
            number: REMOVE
            for number, hook in enumerate(present)
            if isinstance(hook, dict)
            and str(hook.get("path")).rpartition("/")[2] in edits.remove_hooks
        }
        return gone, [hook for hook in wanted if hook not in present]

    return change
