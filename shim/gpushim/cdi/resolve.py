"""CDI names become Edits, all or nothing.

The rules are those of the Container Device Interface specification 1.1.0 and of its reference
implementation: for each device in order the edits of its whole spec, once, and then its own; what
the host alone can tell of a device node is taken from the node.
"""

from __future__ import annotations

import posix
from _stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISFIFO, S_ISLNK

from gpushim.cdi.state import current, features
from gpushim.errors import GpushimError, why
from gpushim.host.statefiles import own_places
from gpushim.oci.edits import NO_PERMISSIONS, DeviceNode, Edits, Hook, Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpushim.cdi.state import State
    from gpushim.oci.bundle import Bundle
    from gpushim.places import Places

_OUTDATED = "if that is outdated, generate it anew."
# The options of a bind mount -> the one that maps its owners into a user namespace.
_ID_MAPPED = {"bind": "idmap", "rbind": "ridmap"}


class Target:
    """The container that devices are for.

    uid, gid: of its process; user_namespace: whether its spec makes or joins one; binds_devices:
    whether its nodes are made by bind mounts; low_level: path of the low-level runtime.
    """

    __slots__ = ("binds_devices", "gid", "low_level", "uid", "user_namespace")

    def __init__(
        self, uid: int, gid: int, user_namespace: bool, binds_devices: bool, low_level: str
    ) -> None:
        self.uid = uid
        self.gid = gid
        self.user_namespace = user_namespace
        self.binds_devices = binds_devices
        self.low_level = low_level


def target(bundle: Bundle, binds_devices: bool, low_level: str) -> Target:
    """The facts of a spec that CDI asks for; odd values count as absent, as runc will judge them.

    binds_devices, low_level: see `Target`.
    """
    user = [bundle.section("process", "user", name) for name in ("uid", "gid")]
    uid, gid = (number if type(number) is int else 0 for number in user)
    user_namespace = any(
        isinstance(namespace, dict) and namespace.get("type") == "user"
        for namespace in bundle.items("linux", "namespaces")
    )
    return Target(uid, gid, user_namespace, binds_devices, low_level)


def resolve(names: Sequence[str], places: Places, given: Target) -> tuple[Edits, list[str]]:
    """What the devices with these qualified names change in a container, and warnings about them.

    Raises GpushimError, naming all devices that cannot be given and why; then nothing of any is.
    """
    wanted = list(dict.fromkeys(names))
    state = current(places, wanted)
    missing = [name for name in wanted if name not in state["devices"]]
    if missing:
        from gpushim.cdi.unresolvable import unresolvable

        raise unresolvable(missing, state)
    found = _Found(given)
    used: set[int] = set()
    for name in wanted:
        number = state["devices"][name]
        spec = state["specs"][number]
        if number not in used:
            used.add(number)
            found.add(spec["content"]["edits"], name, spec["path"])
        found.add(spec["content"]["devices"][name.partition("=")[2]], name, spec["path"])
    found.finish(places, state)
    return found.edits, found.warnings


class _Found:
    """Edits in the making. _sources: a field that not all runtimes know -> who asks for it."""

    __slots__ = ("_given", "_mounts", "_nodes", "_sources", "edits", "warnings")

    def __init__(self, given: Target) -> None:
        self.edits = Edits()
        self.edits.sort_mounts = True
        self.edits.bind_devices = given.binds_devices
        self.warnings: list[str] = []
        self._given = given
        self._nodes: dict[str, DeviceNode] = {}
        self._mounts: dict[str, Mount] = {}
        self._sources: dict[str, tuple[str, str]] = {}

    def add(self, data: dict[str, Any], name: str, path: str) -> None:
        """Adds a containerEdits of the state: that of the device `name`, from the file `path`."""
        edits = self.edits
        for entry in data.get("env", ()):
            variable, _, value = entry.partition("=")
            edits.env[variable] = value
        for node in data.get("deviceNodes", ()):
            self._nodes.pop(node["path"], None)
            self._nodes[node["path"]] = self._node(node, name, path)
        for mount in data.get("mounts", ()):
            self._mounts.pop(mount["containerPath"], None)
            self._mounts[mount["containerPath"]] = _mount(mount, name, path)
        for hook in data.get("hooks", ()):
            args = hook.get("args") or [hook["path"]]
            # Without an environment of its own, a hook would run with somebody else's.
            env = hook.get("env", [])
            edits.hooks.append(Hook(hook["hookName"], hook["path"], args, env, hook.get("timeout")))
        for gid in data.get("additionalGids", ()):
            if gid and gid not in edits.additional_gids:
                edits.additional_gids.append(gid)
        if "intelRdt" in data:
            edits.intel_rdt = data["intelRdt"]
            self._sources["intelRdt"] = (name, path)
        for device in data.get("netDevices", ()):
            self._add_net_device(device["hostInterfaceName"], device["name"], name, path)

    def _add_net_device(self, host: str, inside: str, name: str, path: str) -> None:
        known = self.edits.net_devices
        if known.get(host, inside) != inside or any(
            other != host and taken == inside for other, taken in known.items()
        ):
            raise GpushimError(
                f"The CDI device {name} ({path}) makes the network interface {host} the "
                f"container's {inside}, which contradicts another of the devices asked for.",
                "Ask for one of them only.",
            )
        known[host] = inside
        self._sources["netDevices"] = (name, path)

    def _node(self, data: dict[str, Any], name: str, path: str) -> DeviceNode:
        host_path = data.get("hostPath") or data["path"]
        kind, major, minor = data.get("type", ""), data.get("major", 0), data.get("minor", 0)
        there, numbers, reason = _look_at(host_path)
        is_complete = kind == "p" or (kind != "" and major != 0)
        if not there and (self._given.binds_devices or not is_complete):
            raise GpushimError(
                f"The CDI device {name} needs the device node {host_path}, which cannot be used: "
                f"{reason}.",
                f"{path} asks for it; {_OUTDATED}",
            )
        if there and kind and there != ("c" if kind == "u" else kind):
            raise GpushimError(
                f"The CDI device {name} needs {host_path} as a device node of type {kind}, and it "
                f"has the type {there}.",
                f"{path} asks for it; {_OUTDATED}",
            )
        if there and there != "p":
            if major and (major, minor) != numbers:
                self.warnings.append(
                    f"{path} has the numbers {major}:{minor} for {host_path}, which is "
                    f"{numbers[0]}:{numbers[1]} now; the container gets the latter."
                )
            major, minor = numbers
        permissions = data.get("permissions", "rwm")
        uid, gid = data.get("uid"), data.get("gid")
        return DeviceNode(
            data["path"],
            host_path,
            major,
            minor,
            data.get("fileMode"),
            uid if uid is not None else self._given.uid or None,
            gid if gid is not None else self._given.gid or None,
            "" if permissions == NO_PERMISSIONS else permissions,
            kind or there,
        )

    def finish(self, places: Places, state: State) -> None:
        """Puts the parts together, and refuses what the low-level runtime does not know."""
        edits, given = self.edits, self._given
        edits.device_nodes += self._nodes.values()
        edits.mounts += self._mounts.values()
        if edits.additional_gids and given.binds_devices:
            groups = ", ".join([str(gid) for gid in edits.additional_gids])
            self.warnings.append(
                f"The CDI devices ask for the groups {groups}, which are not the host's in a user "
                "namespace; they are left out."
            )
            edits.additional_gids = []
        newer = [(field, words) for field, words in _NEWER if _has(edits, field)]
        # Root of a user namespace may not map the owners of a mount.
        maps = given.user_namespace and bool(edits.mounts) and own_places(places) is places
        if not newer and not maps:
            return
        known = features(places, state, given.low_level)
        for field, words in newer:
            if not known.get(field):
                name, path = self._sources["netDevices" if field == "netDevices" else "intelRdt"]
                raise GpushimError(
                    f"The CDI device {name} ({path}) has {words}, which the low-level runtime "
                    f"{given.low_level} does not name among its features.",
                    "Upgrade it, or name another one in runtime.low-level-runtimes.",
                )
        for mount in edits.mounts if maps else ():
            _map_owners(mount, known)


def _mount(data: dict[str, Any], name: str, path: str) -> Mount:
    host_path, kind = data["hostPath"], data.get("type", "bind")
    if kind == "bind" and host_path.startswith("/"):
        # The low-level runtime would fail without a word of where the mount comes from.
        try:
            posix.stat(host_path)
        except OSError as error:
            raise GpushimError(
                f"The CDI device {name} needs {host_path}, which cannot be used: {why(error)}.",
                f"{path} asks for it; {_OUTDATED}",
            ) from None
    options = list(data.get("options", ()))
    if kind == "bind" and not any(option in options for option in _ID_MAPPED):
        options.append("bind")  # Its type alone makes no mount a bind mount.
    return Mount(host_path, data["containerPath"], options, kind)


# A feature (see `collect.known_features`) and what in a spec needs it.
_NEWER = (
    ("netDevices", "network interfaces (netDevices)"),
    ("schemata", "an intelRdt with schemata"),
    ("monitoring", "an intelRdt with enableMonitoring"),
)


def _has(edits: Edits, field: str) -> bool:
    if field == "netDevices":
        return bool(edits.net_devices)
    name = "enableMonitoring" if field == "monitoring" else field
    return bool(edits.intel_rdt and edits.intel_rdt.get(name))


def _map_owners(mount: Mount, known: dict[str, bool]) -> None:
    """Has the low-level runtime map the owners of a bind mount's files, if it can."""
    if mount.type not in ("bind", "none") or any(
        option in mount.options for option in _ID_MAPPED.values()
    ):
        return
    for option, mapped in _ID_MAPPED.items():
        if option in mount.options:
            if known.get(mapped):
                mount.options.append(mapped)
            return


def _look_at(path: str) -> tuple[str, tuple[int, int], str]:
    """Type ("c", "b", "p") and numbers of the node at `path`; "" and a reason if it is none."""
    try:
        found = posix.lstat(path)
    except OSError as error:
        return "", (0, 0), why(error)
    mode = found.st_mode
    numbers = posix.major(found.st_rdev), posix.minor(found.st_rdev)
    if S_ISCHR(mode):
        return "c", numbers, ""
    if S_ISBLK(mode):
        return "b", numbers, ""
    if S_ISFIFO(mode):
        return "p", (0, 0), ""
    if S_ISLNK(mode):
        return "", (0, 0), "it is a symbolic link"
    return "", (0, 0), "it is a folder" if S_ISDIR(mode) else "it is a file"
