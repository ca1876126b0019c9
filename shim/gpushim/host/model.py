"""What this machine has, as plain values: GPUs, driver, files. Written by refresh, read by create.

Every class turns into JSON and back, since the snapshot file carries them between the two.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEALTHY = "ok"


class Gpu:
    """One GPU.

    index: position by PCI bus id, as NVML and nvidia-smi count; minor: of /dev/nvidia<minor>;
    uuid: "" while the driver does not know it; bus_id: 0000:07:00.0, lower case; numa_node: -1
    where unknown; health: "ok" or a few words on what is wrong. From NVML, None where it did not
    answer: memory (bytes in all), compute_capability ("8.0"), brand, mig_enabled.
    """

    __slots__ = (
        "brand",
        "bus_id",
        "compute_capability",
        "health",
        "index",
        "memory",
        "mig_enabled",
        "minor",
        "model",
        "numa_node",
        "uuid",
    )

    def __init__(
        self,
        index: int,
        uuid: str,
        minor: int,
        bus_id: str,
        model: str,
        numa_node: int = -1,
        health: str = HEALTHY,
        memory: int | None = None,
        compute_capability: str | None = None,
        brand: str | None = None,
        mig_enabled: bool | None = None,
    ) -> None:
        self.index = index
        self.uuid = uuid
        self.minor = minor
        self.bus_id = bus_id
        self.model = model
        self.numa_node = numa_node
        self.health = health
        self.memory = memory
        self.compute_capability = compute_capability
        self.brand = brand
        self.mig_enabled = mig_enabled

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Gpu:
        return cls(**data)


class ExtraMount:
    """A file of the driver that must have a fixed path in the container.

    capabilities: any of these driver capabilities calls for it.
    """

    __slots__ = ("capabilities", "container_path", "host_path")

    def __init__(self, host_path: str, container_path: str, capabilities: list[str]) -> None:
        self.host_path = host_path
        self.container_path = container_path
        self.capabilities = capabilities

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ExtraMount:
        return cls(**data)


class DriverTree:
    """An assembled driver tree for one set of capabilities.

    path: directory on the host with lib64, lib, bin, share, firmware; libraries and libraries32:
    file names in lib64 and lib in the order that ldconfig writes them in a loader cache.
    """

    __slots__ = ("libraries", "libraries32", "path")

    def __init__(self, path: str, libraries: list[str], libraries32: list[str]) -> None:
        self.path = path
        self.libraries = libraries
        self.libraries32 = libraries32

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DriverTree:
        return cls(**data)


class Inventory:
    """The machine as injection needs it.

    driver_version: of the kernel module ("550.163.01"); cuda_version: "12.4", None without NVML;
    trees: key of a capability set (`capability_key`) -> DriverTree; extra_mounts: files with fixed
    paths; sockets: absolute paths of IPC sockets that may exist (beneath the driver root) as
    [host path, container path]; modify_device_files: what the driver's params file says;
    mount_program: absolute path of mount(8), "" if there is none.
    """

    __slots__ = (
        "cuda_version",
        "driver_version",
        "extra_mounts",
        "gpus",
        "modify_device_files",
        "mount_program",
        "sockets",
        "trees",
    )

    def __init__(
        self,
        driver_version: str,
        gpus: list[Gpu],
        trees: dict[str, DriverTree],
        extra_mounts: list[ExtraMount],
        sockets: list[list[str]],
        modify_device_files: bool,
        mount_program: str,
        cuda_version: str | None = None,
    ) -> None:
        self.driver_version = driver_version
        self.gpus = gpus
        self.trees = trees
        self.extra_mounts = extra_mounts
        self.sockets = sockets
        self.modify_device_files = modify_device_files
        self.mount_program = mount_program
        self.cuda_version = cuda_version

    def to_json(self) -> dict[str, Any]:
        return {
            "driver_version": self.driver_version,
            "gpus": [gpu.to_json() for gpu in self.gpus],
            "trees": {key: tree.to_json() for key, tree in self.trees.items()},
            "extra_mounts": [mount.to_json() for mount in self.extra_mounts],
            "sockets": self.sockets,
            "modify_device_files": self.modify_device_files,
            "mount_program": self.mount_program,
            "cuda_version": self.cuda_version,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Inventory:
        return cls(
            driver_version=data["driver_version"],
            gpus=[Gpu.from_json(gpu) for gpu in data["gpus"]],
            trees={key: DriverTree.from_json(tree) for key, tree in data["trees"].items()},
            extra_mounts=[ExtraMount.from_json(mount) for mount in data["extra_mounts"]],
            sockets=data["sockets"],
            modify_device_files=data["modify_device_files"],
            mount_program=data["mount_program"],
            cuda_version=data["cuda_version"],
        )


def capability_key(capabilities: list[str]) -> str:
    """The name of a set of driver capabilities, the same in whatever order they are given."""
    return "+".join(sorted(set(capabilities))) or "none"
