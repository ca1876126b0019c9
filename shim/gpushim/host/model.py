"""What this machine has, as plain values: GPUs, driver, files. Written by refresh, read by create.

Every class turns into JSON and back, since the snapshot file carries them between the two.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEALTHY = "ok"


class MigDevice:
    """One MIG device: a compute instance of a GPU instance (NVIDIA's MIG user guide).

    index: m in the name "g:m", as nvidia-smi -L and NVML count beneath their GPU; profile: as
    nvidia-smi -L has it ("1g.10gb", "1c.3g.40gb"); memory: bytes, None where NVML does not tell;
    gpu_instance and compute_instance: their ids; gpu_instance_minor and compute_instance_minor:
    minor numbers of the two nodes nvidia-caps/nvidia-cap<minor>, -1 where the driver lists none.
    """

    __slots__ = (
        "compute_instance",
        "compute_instance_minor",
        "gpu_instance",
        "gpu_instance_minor",
        "index",
        "memory",
        "profile",
        "uuid",
    )

    def __init__(
        self,
        index: int,
        uuid: str,
        profile: str,
        memory: int | None,
        gpu_instance: int,
        compute_instance: int,
        gpu_instance_minor: int,
        compute_instance_minor: int,
    ) -> None:
        self.index = index
        self.uuid = uuid
        self.profile = profile
        self.memory = memory
        self.gpu_instance = gpu_instance
        self.compute_instance = compute_instance
        self.gpu_instance_minor = gpu_instance_minor
        self.compute_instance_minor = compute_instance_minor

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MigDevice:
        return cls(**data)


class Gpu:
    """One GPU.

    index: position by PCI bus id, as NVML and nvidia-smi count; minor: of /dev/nvidia<minor>;
    uuid: "" while the driver does not know it; bus_id: 0000:07:00.0, lower case; numa_node: -1
    where unknown; health: "ok" or a few words on what is wrong. From NVML, None where it did not
    answer: memory (bytes in all), reserved (what of it the driver keeps for itself),
    compute_capability ("8.0"), brand, mig_enabled; mig_devices: in the order of their index.
    """

    __slots__ = (
        "brand",
        "bus_id",
        "compute_capability",
        "health",
        "index",
        "memory",
        "mig_devices",
        "mig_enabled",
        "minor",
        "model",
        "numa_node",
        "reserved",
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
        mig_devices: list[MigDevice] | None = None,
        reserved: int | None = None,
    ) -> None:
        self.index = index
        self.uuid = uuid
        self.minor = minor
        self.bus_id = bus_id
        self.model = model
        self.numa_node = numa_node
        self.health = health
        self.memory = memory
        self.reserved = reserved
        self.compute_capability = compute_capability
        self.brand = brand
        self.mig_enabled = mig_enabled
        self.mig_devices = mig_devices or []

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__}
        return {**data, "mig_devices": [device.to_json() for device in self.mig_devices]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Gpu:
        gpu = cls(**data)
        if gpu.mig_devices:
            gpu.mig_devices = [MigDevice.from_json(device) for device in data["mig_devices"]]
        return gpu


class ExtraMount:
    """A file of the driver that must have a fixed path in the container.

    capabilities: any of these driver capabilities calls for it; in_tree: path in a driver tree of
    what is to be mounted in its place, "" where the file is fit for containers as it is.
    """

    __slots__ = ("capabilities", "container_path", "host_path", "in_tree")

    def __init__(
        self, host_path: str, container_path: str, capabilities: list[str], in_tree: str = ""
    ) -> None:
        self.host_path = host_path
        self.container_path = container_path
        self.capabilities = capabilities
        self.in_tree = in_tree

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
    mount_program: absolute path of mount(8), "" if there is none; mig_config_minor and
    mig_monitor_minor: of the nodes nvidia-caps/nvidia-cap<minor> that allow to partition GPUs and
    to watch all of a GPU's MIG devices, -1 where the driver lists none; topology: for each two
    GPUs, by their indices, how well they are connected: larger is better, 0 on the diagonal (see
    `host.topology`); cpus: NUMA node in decimal -> its processors as the kernel lists them;
    memory_policies: path of a low-level runtime -> modes of NUMA memory policies that it and the
    kernel know, asked for only where there are several nodes; nvml: absolute path of the driver's
    libnvidia-ml.so.1, "" where it is not installed.
    """

    __slots__ = (
        "cpus",
        "cuda_version",
        "driver_version",
        "extra_mounts",
        "gpus",
        "memory_policies",
        "mig_config_minor",
        "mig_monitor_minor",
        "modify_device_files",
        "mount_program",
        "nvml",
        "sockets",
        "topology",
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
        mig_config_minor: int = -1,
        mig_monitor_minor: int = -1,
        topology: list[list[int]] | None = None,
        cpus: dict[str, str] | None = None,
        memory_policies: dict[str, list[str]] | None = None,
        nvml: str = "",
    ) -> None:
        self.driver_version = driver_version
        self.gpus = gpus
        self.trees = trees
        self.extra_mounts = extra_mounts
        self.sockets = sockets
        self.modify_device_files = modify_device_files
        self.mount_program = mount_program
        self.cuda_version = cuda_version
        self.mig_config_minor = mig_config_minor
        self.mig_monitor_minor = mig_monitor_minor
        self.topology = topology or []
        self.cpus = cpus or {}
        self.memory_policies = memory_policies or {}
        self.nvml = nvml

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
            "mig_config_minor": self.mig_config_minor,
            "mig_monitor_minor": self.mig_monitor_minor,
            "topology": self.topology,
            "cpus": self.cpus,
            "memory_policies": self.memory_policies,
            "nvml": self.nvml,
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
            mig_config_minor=data["mig_config_minor"],
            mig_monitor_minor=data["mig_monitor_minor"],
            topology=data["topology"],
            cpus=data["cpus"],
            memory_policies=data["memory_policies"],
            nvml=data["nvml"],
        )


def capability_key(capabilities: list[str]) -> str:
    """The name of a set of driver capabilities, the same in whatever order they are given."""
    return "+".join(sorted(set(capabilities))) or "none"
