"""Edits: what is to change in a spec, in the terms of CDI's containerEdits.

The one currency between those that decide (injection, CDI, limits) and the one function that
applies. Field names are CDI's (CDI SPEC.md 1.1.0, containerEdits), so that the same Edits can be
printed as a CDI spec; what CDI cannot express has a name of its own and says so.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The stages of a container at which the OCI runtime specification has hooks (config.md, "POSIX-
# platform Hooks").
HOOK_STAGES = (
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
)

# The sets of capabilities that a process has (config.md, "Linux Process").
CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")

# CDI's word for a device node that brings no device rule with it.
NO_PERMISSIONS = "none"


class DeviceNode:
    """A device node in the container; major, minor and mode are those of the host's node.

    path: where the container sees it; host_path: the node on the host; type: "c", "b", "u" (a
    character device, as mknod(1) calls an unbuffered one) or "p" (a FIFO, which has no numbers);
    file_mode: permission bits, and owner: None leaves them to the low-level runtime; permissions:
    what the container's device rules allow, "" for a node without a rule of its own.
    """

    __slots__ = (
        "file_mode",
        "gid",
        "host_path",
        "major",
        "minor",
        "path",
        "permissions",
        "type",
        "uid",
    )

    def __init__(
        self,
        path: str,
        host_path: str,
        major: int,
        minor: int,
        file_mode: int | None = 0o666,
        uid: int | None = 0,
        gid: int | None = 0,
        permissions: str = "rw",
        type: str = "c",
    ) -> None:
        self.path = path
        self.host_path = host_path
        self.major = major
        self.minor = minor
        self.file_mode = file_mode
        self.uid = uid
        self.gid = gid
        self.permissions = permissions
        self.type = type

    def to_json(self) -> dict[str, Any]:
        """As a CDI spec has it; there "" for the permissions would mean all of them."""
        data: dict[str, Any] = {
            "path": self.path,
            "hostPath": self.host_path,
            "type": self.type,
            "major": self.major,
            "minor": self.minor,
            "permissions": self.permissions or NO_PERMISSIONS,
        }
        optional = {"fileMode": self.file_mode, "uid": self.uid, "gid": self.gid}
        return data | {name: value for name, value in optional.items() if value is not None}


class Mount:
    """A mount; `type` and `options` are those of the OCI spec's mounts."""

    __slots__ = ("container_path", "host_path", "options", "type")

    def __init__(
        self, host_path: str, container_path: str, options: list[str], type: str = "bind"
    ) -> None:
        self.host_path = host_path
        self.container_path = container_path
        self.options = options
        self.type = type

    def to_json(self) -> dict[str, Any]:
        """As a CDI spec has it, in which a mount without a type is a bind mount."""
        data = {
            "hostPath": self.host_path,
            "containerPath": self.container_path,
            "options": self.options,
        }
        return data if self.type == "bind" else {**data, "type": self.type}


class Hook:
    """A hook of the OCI spec: hook_name is its stage, args[0] the program's name, env explicit.

    timeout: seconds, None for no limit.
    """

    __slots__ = ("args", "env", "hook_name", "path", "timeout")

    def __init__(
        self,
        hook_name: str,
        path: str,
        args: list[str],
        env: list[str],
        timeout: int | None = None,
    ) -> None:
        self.hook_name = hook_name
        self.path = path
        self.args = args
        self.env = env
        self.timeout = timeout

    def to_json(self) -> dict[str, Any]:
        """As a CDI spec has it."""
        data: dict[str, Any] = {
            "hookName": self.hook_name,
            "path": self.path,
            "args": self.args,
            "env": self.env,
        }
        return data if self.timeout is None else {**data, "timeout": self.timeout}


class Edits:
    """What is to change in one container's spec.

    env: variable -> value, each present exactly once afterwards; intel_rdt: what linux.intelRdt
    becomes (members as in the OCI spec), None to leave it; net_devices: name of a network
    interface on the host -> its name in the container.

    The other fields go beyond CDI. What is taken out if it is there: remove_env, variables;
    remove_hooks, base names of hook programs; remove_devices, container paths of device nodes,
    together with exactly the rules that allow them; remove_mounts, destinations. What is both
    taken out and added is there afterwards. bind_devices makes nodes by bind mounts (in a user
    namespace mknod is not possible). sort_mounts: our mounts go before present ones that lie
    beneath them, as CDI wants it, and not behind all others.

    Limits, whose members are what the OCI spec has (config-linux.md): resources, section of
    linux.resources ("memory", "unified") -> member -> value; memory_policy: what
    linux.memoryPolicy becomes; tmpfs_sizes: destination of a tmpfs that is mounted already -> its
    size in bytes; drop_capabilities: names that go out of each of the process's sets;
    no_new_privileges: whether the process is denied what setuid programs would give it.
    """

    __slots__ = (
        "additional_gids",
        "bind_devices",
        "device_nodes",
        "drop_capabilities",
        "env",
        "hooks",
        "intel_rdt",
        "memory_policy",
        "mounts",
        "net_devices",
        "no_new_privileges",
        "remove_devices",
        "remove_env",
        "remove_hooks",
        "remove_mounts",
        "resources",
        "sort_mounts",
        "tmpfs_sizes",
    )

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        self.device_nodes: list[DeviceNode] = []
        self.mounts: list[Mount] = []
        self.hooks: list[Hook] = []
        self.additional_gids: list[int] = []
        self.intel_rdt: dict[str, Any] | None = None
        self.net_devices: dict[str, str] = {}
        self.remove_env: list[str] = []
        self.remove_hooks: list[str] = []
        self.remove_devices: list[str] = []
        self.remove_mounts: list[str] = []
        self.bind_devices = False
        self.sort_mounts = False
        self.resources: dict[str, dict[str, Any]] = {}
        self.memory_policy: dict[str, Any] | None = None
        self.tmpfs_sizes: dict[str, int] = {}
        self.drop_capabilities: list[str] = []
        self.no_new_privileges = False

    def extend(self, other: Edits) -> None:
        """Adds what `other` changes; where both set the same, `other` wins."""
        self.env.update(other.env)
        for name in ("device_nodes", "mounts", "hooks", "additional_gids"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("remove_env", "remove_hooks", "remove_devices", "remove_mounts"):
            getattr(self, name).extend(getattr(other, name))
        self.net_devices.update(other.net_devices)
        for section, members in other.resources.items():
            self.resources.setdefault(section, {}).update(members)
        if other.memory_policy is not None:
            self.memory_policy = other.memory_policy
        self.tmpfs_sizes.update(other.tmpfs_sizes)
        self.drop_capabilities.extend(other.drop_capabilities)
        self.no_new_privileges = self.no_new_privileges or other.no_new_privileges
        if other.intel_rdt is not None:
            self.intel_rdt = other.intel_rdt
        self.bind_devices = self.bind_devices or other.bind_devices
        self.sort_mounts = self.sort_mounts or other.sort_mounts

    def container_edits(self) -> dict[str, Any]:
        """As a CDI spec's containerEdits: what CDI can express, without members that are empty."""
        data = {
            "env": [f"{name}={value}" for name, value in self.env.items()],
            "deviceNodes": [node.to_json() for node in self.device_nodes],
            "mounts": [mount.to_json() for mount in self.mounts],
            "hooks": [hook.to_json() for hook in self.hooks],
            "additionalGids": self.additional_gids,
            "intelRdt": self.intel_rdt,
            "netDevices": [
                {"hostInterfaceName": host, "name": name} for host, name in self.net_devices.items()
            ],
        }
        return {name: value for name, value in data.items() if value}

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the decision record and `gpushimctl explain`."""
        always: dict[str, Any] = {
            "env": [],
            "deviceNodes": [],
            "mounts": [],
            "hooks": [],
            "additionalGids": [],
        }
        return {
            **always,
            **self.container_edits(),
            "removeEnv": self.remove_env,
            "removeHooks": self.remove_hooks,
            "removeDevices": self.remove_devices,
            "removeMounts": self.remove_mounts,
            "bindDevices": self.bind_devices,
            **self._limits(),
        }

    def _limits(self) -> dict[str, Any]:
        """Members for limits; most containers have none of them."""
        data = {
            "resources": self.resources,
            "memoryPolicy": self.memory_policy,
            "tmpfsSizes": self.tmpfs_sizes,
            "dropCapabilities": self.drop_capabilities,
            "noNewPrivileges": self.no_new_privileges,
        }
        return {name: value for name, value in data.items() if value}
