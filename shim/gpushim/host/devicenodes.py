"""What the create path needs to know of the host's device nodes: a stat of each, always afresh.

Major numbers move between boots (nvidia-uvm and nvidia-caps have none of their own), so they are
never kept.
"""

from __future__ import annotations

import posix
from _stat import S_IMODE, S_ISCHR

from . import procfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import MigDevice

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
MODESET_NODE = "nvidia-modeset"
# Nodes whose names end in their minor number, in directories of their modules' names.
_NUMBERED = ("nvidia-caps/nvidia-cap", "nvidia-caps-imex-channels/channel")
MODESET_CAPABILITIES = ("display", "graphics")


def gpu_node(minor: int) -> str:
    """The name of a GPU's node in the dev root."""
    return f"nvidia{minor}"


def capability_node(minor: int) -> str:
    """The name of the node of one of the driver's capabilities, such as a MIG instance."""
    return f"nvidia-caps/nvidia-cap{minor}"


def channel_node(channel: int) -> str:
    """The name of the node of an IMEX channel."""
    return f"nvidia-caps-imex-channels/channel{channel}"


def instance_nodes(mig: MigDevice) -> list[str]:
    """The names of the nodes of a MIG device's GPU instance and compute instance."""
    return [capability_node(mig.gpu_instance_minor), capability_node(mig.compute_instance_minor)]


def node_facts(dev_root: str, name: str) -> tuple[int, int, int, int, int] | None:
    """(major, minor, permission bits, uid, gid) of a node; None unless it is a character device."""
    try:
        found = posix.stat(f"{dev_root}/{name}")
    except OSError:
        return None
    if not S_ISCHR(found.st_mode):
        return None
    number = found.st_rdev
    return (
        posix.major(number),
        posix.minor(number),
        S_IMODE(found.st_mode) & 0o777,
        found.st_uid,
        found.st_gid,
    )


def stale(proc_root: str, found: Mapping[str, tuple[int, int, int, int, int]]) -> list[str]:
    """Those nodes of capabilities and channels whose numbers are another one's by now.

    The kernel may give nvidia-caps another major number each time that the driver is loaded, and
    nobody takes the old nodes away. found: name -> facts; costs nothing where there is none of
    these. Where the kernel's list does not tell, none is.
    """
    numbered = [name for name in found if name.startswith(_NUMBERED)]
    if not numbered:
        return []
    majors = character_majors(proc_root)
    wrong = []
    for name in numbered:
        major, minor = found[name][:2]
        expected = majors.get(name.partition("/")[0], major)
        if major != expected or not name.endswith((f"nvidia-cap{minor}", f"channel{minor}")):
            wrong.append(name)
    return wrong


def character_majors(proc_root: str) -> dict[str, int]:
    """Name -> major number of the character devices in /proc/devices; empty if unreadable."""
    majors: dict[str, int] = {}
    for line in (procfiles.text(proc_root + "/devices") or "").split("\n"):
        if line.startswith("Block devices"):
            break
        words = line.split()
        if len(words) == 2 and words[0].isdecimal():
            majors.setdefault(words[1], int(words[0]))
    return majors


def uvm_warning(proc_root: str, major: int) -> str:
    """A sentence if the node of nvidia-uvm has another major number than the kernel gave it.

    With such a node CUDA fails to initialise (error 999). "" if all is well, or the kernel's list
    does not tell.
    """
    kernel = character_majors(proc_root).get("nvidia-uvm")
    if kernel is None or kernel == major:
        return ""
    return (
        f"The device node nvidia-uvm has major number {major}, but the kernel uses {kernel} for "
        "it: CUDA will not work until the node is made anew."
    )
