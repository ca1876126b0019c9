"""All places of a spec in which a container can ask for GPUs, gathered and not yet read."""

from __future__ import annotations

from gpushim.request.nvidia import devices_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.oci.bundle import Bundle
    from gpushim.request.dockerrecord import DockerRecord

# How the variables begin that mean something to gpushim. A container may have thousands of others.
VARIABLES = ("NVIDIA_", "CUDA_", "GPUSHIM_", "DOCKER_RESOURCE_", "LD_LIBRARY_PATH=")
OWN_PREFIX = "gpushim."
CDI_PREFIX = "cdi.k8s.io/"
DEVICE_LISTS = "/nvidia-container-devices"
_NODES = "/dev/nvidia"
_DRAWING = "/dev/dri/"
# What a spec that asks for something has in its text, as it is or in an escape of JSON's.
TRIGGERS = (
    '"NVIDIA_VISIBLE_DEVICES=',
    '"CUDA_VERSION=',
    '"GPUSHIM_',
    '"DOCKER_RESOURCE_',
    OWN_PREFIX,
    "cdi.k8s.io",
    DEVICE_LISTS,
    _NODES,
    "\\u00",
)
_ADMINISTRATION = "CAP_SYS_ADMIN"
# Whether a container is the sandbox of a pod: containerd's CRI plugin, and CRI-O.
_SANDBOX = (
    ("io.kubernetes.cri.container-type", "sandbox"),
    ("io.kubernetes.cri-o.ContainerType", "sandbox"),
)
_CONTAINER_NAMES = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")


class Asked:
    """What a spec says that may be a request.

    environment: NAME=value entries that begin with one of VARIABLES; annotations: name -> value;
    cdi: CDI device names in those annotations that are configured to hold them; mounts: (source,
    destination); nodes: device nodes that the engine has put into the spec, NVIDIA's and those to
    draw with, as in linux.devices; administrator: whether the container may have CAP_SYS_ADMIN,
    which is what the vendor's toolkit calls privileged; sandbox: whether it only holds a pod's
    namespaces; name: of the container in its pod, "" if it is in none; record: Docker's own, if
    there is one; problems: sentences on a record that is there and not used.
    """

    __slots__ = (
        "administrator",
        "annotations",
        "cdi",
        "environment",
        "mounts",
        "name",
        "nodes",
        "problems",
        "record",
        "sandbox",
    )

    def __init__(self, environment: list[str]) -> None:
        self.environment = environment
        self.annotations: dict[str, str] = {}
        self.cdi: list[str] = []
        self.mounts: list[tuple[str, str]] = []
        self.nodes: list[dict[str, Any]] = []
        self.administrator = False
        self.sandbox = False
        self.name = ""
        self.record: DockerRecord | None = None
        self.problems: list[str] = []

    @property
    def has_nodes(self) -> bool:
        """Whether the spec has nodes of NVIDIA's, and not only some to draw with, as others' do."""
        return any(str(node["path"]).startswith(_NODES) for node in self.nodes)

    @property
    def has_record(self) -> bool:
        """Whether Docker's record says something about GPUs."""
        if self.record is None:
            return False
        from gpushim.request.dockerrecord import cdi_names, gpu_requests

        return (
            bool(gpu_requests(self.record))
            or any("/gpu=" in name for name in cdi_names(self.record))
            or any(name.startswith(OWN_PREFIX) for name in self.record.labels)
        )


def gather(bundle: Bundle) -> Asked:
    """Reads it out of a spec; odd values count as absent, as the low-level runtime judges them."""
    asked = Asked(
        [
            entry
            for entry in bundle.items("process", "env")
            if isinstance(entry, str) and entry.startswith(VARIABLES)
        ]
    )
    annotations = bundle.section("annotations")
    if isinstance(annotations, dict):
        asked.annotations = annotations
        asked.sandbox = any(annotations.get(name) == value for name, value in _SANDBOX)
        found = [annotations[name] for name in _CONTAINER_NAMES if name in annotations]
        asked.name = str(found[0]) if found else ""
    asked.mounts = [
        (mount["source"], mount["destination"])
        for mount in bundle.items("mounts")
        if isinstance(mount, dict)
        and isinstance(mount.get("source"), str)
        and isinstance(mount.get("destination"), str)
    ]
    asked.nodes = [
        node
        for node in bundle.items("linux", "devices")
        if isinstance(node, dict) and str(node.get("path")).startswith((_NODES, _DRAWING))
    ]
    capabilities = bundle.section("process", "capabilities")
    if isinstance(capabilities, dict):
        capabilities = capabilities.get("bounding")
    # Before version 1.0.0 of the specification it was one list.
    asked.administrator = isinstance(capabilities, list) and _ADMINISTRATION in capabilities
    return asked


def own_annotations(asked: Asked) -> list[tuple[str, object]]:
    """The annotations that carry gpushim's keys, as gpushim.KEY.

    Those for one container of a pod, container.NAME.gpushim.KEY, come before those for all of
    them; the ones for others are left out.
    """
    mine = f"container.{asked.name}."
    names = [name for name in asked.annotations if OWN_PREFIX in name]
    if not names:
        return []
    for_all = {name: asked.annotations[name] for name in names if name.startswith(OWN_PREFIX)}
    for_me = {
        name[len(mine) :]: asked.annotations[name]
        for name in names
        if asked.name and name.startswith(mine + OWN_PREFIX)
    }
    return list({**for_all, **for_me}.items())


def asks_for_sure(asked: Asked) -> bool:
    """Whether something was asked for, whatever the configuration says.

    What a pod's annotations ask for is for its containers, and not for the one that holds it.
    """
    return not asked.sandbox and (
        devices_of(asked.environment) is not None
        or any(entry.startswith("GPUSHIM_") for entry in asked.environment)
        or asked.has_record
        or bool(own_annotations(asked))
        or any(name.startswith(CDI_PREFIX) for name in asked.annotations)
    )


def may_ask(asked: Asked) -> bool:
    """Whether anything was said that can be a request by some configuration."""
    return (
        asks_for_sure(asked)
        or asked.has_nodes
        or any(entry.startswith("DOCKER_RESOURCE_") for entry in asked.environment)
        or any(DEVICE_LISTS in destination for _, destination in asked.mounts)
        or any("/" in str(value) and "=" in str(value) for value in asked.annotations.values())
    )
