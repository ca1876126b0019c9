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


class DeviceNode:
    """A device node in the container; major, minor and mode are those of the host's node.

    path: where the container sees it; host_path: the node on the host; file_mode: permission bits.
    """

    __slots__ = ("file_mode", "gid", "host_path", "major", "minor", "path", "permissions", "uid")

    def __init__(
        self,
        path: str,
        host_path: str,
        major: int,
        minor: int,
        file_mode: int = 0o666,
        uid: int = 0,
        gid: int = 0,
        permissions: str = "rw",
    ) -> None:
        self.path = path
        self.host_path = host_path
        self.major = major
        self.minor = minor
        self.file_mode = file_mode
        self.uid = uid
        self.gid = gid
        self.permissions = permissions


class Mount:
    """A bind mount; `options` are those of the OCI spec's mounts."""

    __slots__ = ("container_path", "host_path", "options")

    def __init__(self, host_path: str, container_path: str, options: list[str]) -> None:
        self.host_path = host_path
        self.container_path = container_path
        self.options = options


class Hook:
    """A hook of the OCI spec: hook_name is its stage, args[0] the program's name, env explicit."""

    __slots__ = ("args", "env", "hook_name", "path")

    def __init__(self, hook_name: str, path: str, args: list[str], env: list[str]) -> None:
        self.hook_name = hook_name
        self.path = path
        self.args = args
        self.env = env


class Edits:
    """What is to change in one container's spec.

    env: variable -> value, each present exactly once afterwards. The last three fields go beyond
    CDI: remove_hooks are base names of hook programs that are taken out, remove_env are variables
    that are taken out, and bind_devices makes nodes by bind mounts (in a user namespace mknod is
    not possible).
    """

    __slots__ = (
        "additional_gids",
        "bind_devices",
        "device_nodes",
        "env",
        "hooks",
        "mounts",
        "remove_env",
        "remove_hooks",
    )

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        self.device_nodes: list[DeviceNode] = []
        self.mounts: list[Mount] = []
        self.hooks: list[Hook] = []
        self.additional_gids: list[int] = []
        self.remove_hooks: list[str] = []
        self.remove_env: list[str] = []
        self.bind_devices = False

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the decision record and `gpushimctl explain`."""
        return {
            "env": [f"{name}={value}" for name, value in self.env.items()],
            "deviceNodes": [
                {
                    "path": node.path,
                    "hostPath": node.host_path,
                    "type": "c",
                    "major": node.major,
                    "minor": node.minor,
                    "fileMode": node.file_mode,
                    "permissions": node.permissions,
                    "uid": node.uid,
                    "gid": node.gid,
                }
                for node in self.device_nodes
            ],
            "mounts": [
                {
                    "hostPath": mount.host_path,
                    "containerPath": mount.container_path,
                    "options": mount.options,
                }
                for mount in self.mounts
            ],
            "hooks": [
                {
                    "hookName": hook.hook_name,
                    "path": hook.path,
                    "args": hook.args,
                    "env": hook.env,
                }
                for hook in self.hooks
            ],
            "additionalGids": self.additional_gids,
            "removeHooks": self.remove_hooks,
            "removeEnv": self.remove_env,
            "bindDevices": self.bind_devices,
        }
