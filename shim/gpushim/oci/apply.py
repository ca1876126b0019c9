"""Edits applied to a spec: the one place where they become members of config.json.

Applying twice changes nothing. What the Edits do not name survives byte for byte.
"""

from __future__ import annotations

from gpushim.oci.edits import CAPABILITY_SETS, HOOK_STAGES
from gpushim.oci.entries import normal, replace_by
from gpushim.oci.jsonpatch import REMOVE, Before, Value, patch, read

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    resources: Patch = {"devices": _rules(edits.device_nodes, removed)}
    for section, members in edits.resources.items():
        resources[section] = {name: Value(value) for name, value in members.items()}
    linux: Patch = {
        "devices": replace_by("path", nodes, edits.remove_devices),
        "resources": resources,
    }
    if edits.memory_policy is not None:
        linux["memoryPolicy"] = Value(edits.memory_policy)
    if edits.intel_rdt is not None:
        linux["intelRdt"] = Value(edits.intel_rdt)
    if edits.net_devices:
        linux["netDevices"] = {
            host: Value({"name": name}) for host, name in edits.net_devices.items()
        }
    change: Patch = {
        "process": {
            **process(edits),
            "user": {"additionalGids": _gids(edits.additional_gids)},
        },
        "mounts": _mounts(edits),
        "linux": linux,
        "hooks": {stage: _hooks(edits, stage) for stage in HOOK_STAGES},
    }
    return patch(text, change, whole)


def process(edits: Edits) -> Patch:
    """The changes that hold for every process of the container, those of later execs, too."""
    change: Patch = {"env": environment(edits)}
    if edits.drop_capabilities:
        without = _without(edits.drop_capabilities)
        change["capabilities"] = dict.fromkeys(CAPABILITY_SETS, without)
    if edits.no_new_privileges:
        change["noNewPrivileges"] = Value(True)
    return change


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


def _without(names: list[str]) -> ListChange:
    """Takes entries out; runc reads the names of capabilities in any case."""
    return lambda present: (
        {n: REMOVE for n, it in enumerate(present) if isinstance(it, str) and it.upper() in names},
        [],
    )


def _gids(gids: list[int]) -> ListChange:
    return lambda present: ({}, [gid for gid in dict.fromkeys(gids) if gid not in present])


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
    change = replace_by("destination", wanted, edits.remove_mounts, edits.sort_mounts)
    if not edits.tmpfs_sizes:
        return change
    ours = [normal(mount["destination"]) for mount in wanted]
    sizes = {path: size for path, size in edits.tmpfs_sizes.items() if path not in ours}
    return _resized(change, sizes)


def _resized(change: ListChange, sizes: dict[str, int]) -> ListChange:
    """`change`, and the size option of each tmpfs at one of the destinations in `sizes`."""

    def both(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        replaced, appended = change(present)
        for number, mount in enumerate(present):
            if not isinstance(mount, dict) or mount.get("type") != "tmpfs":
                continue
            size = sizes.get(normal(str(mount.get("destination"))))
            options = mount.get("options") or []
            if size is None or not isinstance(options, list) or replaced.get(number) is REMOVE:
                continue
            kept = [option for option in options if not str(option).startswith("size=")]
            if [*kept, f"size={size}"] != options:
                before = replaced.get(number, Before([])).values
                replaced[number] = Before(before, {**mount, "options": [*kept, f"size={size}"]})
        return replaced, appended

    return both


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
    gone = {normal(path) for path in paths}
    linux = whole.plain().get("linux")
    present = linux.get("devices") if isinstance(linux, dict) else None
    removed: list[tuple[Any, Any, Any]] = []
    kept: list[tuple[Any, Any, Any]] = []
    for device in present if isinstance(present, list) else []:
        if isinstance(device, dict) and isinstance(device.get("path"), str):
            numbers = (_kind(device.get("type")), device.get("major"), device.get("minor"))
            is_gone = normal(device["path"]) in gone and device not in ours
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
