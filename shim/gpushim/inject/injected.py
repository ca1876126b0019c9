"""What an engine has put into a spec by itself, from a CDI spec or because a user named a node.

Docker since 29.2 resolves --gpus to CDI devices where the vendor's CDI hook is installed, so that
device nodes, files and hooks of fixed GPUs are in the spec before a runtime sees it. Where gpushim
makes a grant, its own takes their place; else what is there counts as granted by name.
"""

from __future__ import annotations

from gpushim.allocate.grant import Grant
from gpushim.request.nvidia import VISIBLE_DEVICES, variable
from gpushim.request.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Any

    from gpushim.host.model import Gpu
    from gpushim.inject.container import Container
    from gpushim.oci.edits import Edits

# The programs of the hooks in NVIDIA's CDI specs: linking, loader cache, params, and others.
CDI_HOOKS = ("nvidia-cdi-hook", "nvidia-ctk")
_GPU = "/dev/nvidia"
DRI = "/dev/dri/"
_CAPABILITIES = "/dev/nvidia-caps/"
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)


def by_cdi(
    container: Container,
    mounts: Sequence[tuple[str, str]],
    driver_version: str,
    driver_trees: str,
) -> bool:
    """Whether an engine has resolved CDI devices of NVIDIA's for this container.

    Those of a spec that `gpushimctl cdi generate` made are known by what they mount. The variable
    that NVIDIA's specs set is no proof by itself, since an image may have it.
    """
    return (
        any(hook in CDI_HOOKS for hook in container.hooks)
        or any(source.startswith(driver_trees + "/") for source, _ in mounts)
        or (
            variable(container.environment, VISIBLE_DEVICES) == "void"
            and any(_is_driver_file(*mount, driver_version) for mount in mounts)
        )
    )


def minor_of(path: str) -> int | None:
    """The number in /dev/nvidia<number>; None for other nodes."""
    number = path[len(_GPU) :]
    is_number = path.startswith(_GPU) and number.isascii() and number.isdigit()
    return int(number) if is_number and len(number) < 8 else None


def adopted(
    nodes: Iterable[dict[str, Any]], gpus: Sequence[Gpu], major: int
) -> tuple[Request, Grant] | None:
    """The GPUs whose nodes a spec has already, as a request and a grant; None without any.

    major: of the driver's nodes. The numbers of a node say which GPU it is: its name is the
    user's to choose (docker run --device /dev/nvidia5:/dev/nvidia0).
    """
    minors = {
        node.get("minor")
        for node in nodes
        if node.get("major") == major and minor_of(str(node.get("path"))) is not None
    }
    found = [gpu for gpu in gpus if gpu.minor in minors and gpu.uuid]
    if not found:
        return None
    names = ", ".join(f"/dev/nvidia{gpu.minor}" for gpu in found)
    source = f"devices that the engine put into the spec: {names}"
    return Request([gpu.uuid for gpu in found], [], {"devices": source}), Grant(found, [])


def take_out(
    edits: Edits,
    container: Container,
    nodes: Sequence[dict[str, Any]],
    mounts: Sequence[tuple[str, str]],
    driver_version: str,
    driver_trees: str,
    drawing: Collection[str] = (),
) -> list[str]:
    """Takes out what the engine injected and `edits` do not give; sentences for explain.

    nodes: those of the spec beneath /dev/nvidia and /dev/dri; mounts: source and destination of all
    that it has; driver_trees: where the host keeps its driver trees; drawing: names in /dev/dri
    that are nodes of NVIDIA's GPUs. Nodes that a user named (--device /dev/nvidia1) are no engine's
    injection: they stay, and a sentence says so.
    """
    given = {node.path for node in edits.device_nodes}
    others = [
        path
        for path in (str(node.get("path")) for node in nodes)
        if path not in given and _is_one_gpus(path, drawing)
    ]
    if not by_cdi(container, mounts, driver_version, driver_trees):
        return [
            f"The spec has {path} besides, which was not granted here but named as a device."
            for path in others
        ]
    hooks = [hook for hook in CDI_HOOKS if hook in container.hooks]
    files = [
        destination
        for source, destination in mounts
        if source.startswith(driver_trees + "/")
        or _is_driver_file(source, destination, driver_version)
    ]
    edits.remove_devices += others
    edits.remove_hooks += hooks
    edits.remove_mounts += files
    for destination in files:  # gpushim's own may go there now
        container.mounts.pop("/" + destination.strip("/"), None)
    said = []
    if others:
        said.append(f"Taken out of what the engine injected: {', '.join(others)}.")
    replaced = [f"{len(files)} mounts of driver files"] if files else []
    replaced += [f"the hooks of {' and '.join(hooks)}"] if hooks else []
    if replaced:
        said.append(
            f"Of what the engine injected, {' and '.join(replaced)} were replaced by gpushim's own."
        )
    return said


def _is_one_gpus(path: str, drawing: Collection[str]) -> bool:
    """Whether a node is that of a GPU or of a part of one, and not for all of them."""
    return (
        minor_of(path) is not None
        or path.startswith(_CAPABILITIES)
        or (path.startswith(DRI) and path[len(DRI) :] in drawing)
    )


def _is_driver_file(source: str, destination: str, version: str) -> bool:
    """Whether a mount is one of the driver's files, as NVIDIA's CDI specs name them.

    They have each file where the host has it, with the driver's root before it at the most.
    """
    name = destination.rpartition("/")[2]
    if not source.endswith(destination):
        return False
    return (
        name.endswith(f".so.{version}")
        or name in _PROGRAMS
        or f"/firmware/nvidia/{version}/" in destination
    )
