"""Nodes in /dev/dri for containers that draw: of the granted GPUs, and of no others.

Programs find a GPU's nodes by its PCI bus id, through the links in /dev/dri/by-path that udev makes
(systemd, rules.d/60-drm.rules). A spec can't hold links, so they lie in a directory of the host's
that is mounted there: one for each set of GPUs, which is never changed once it is there.
"""

from __future__ import annotations

import posix

from gpushim.errors import why
from gpushim.host import drm
from gpushim.host.devicenodes import node_facts
from gpushim.inject.gpus import FILE_OPTIONS, device_edits
from gpushim.oci.edits import Mount
from gpushim.oci.files import digest_of, make_directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.grant import Grant
    from gpushim.host.model import Gpu
    from gpushim.inject.container import Container
    from gpushim.oci.edits import Edits

BY_PATH = "/dev/dri/by-path"

NodeFacts = dict[str, tuple[int, int, int, int, int]]


def drm_edits(
    edits: Edits,
    container: Container,
    grant: Grant,
    dev_root: str,
    sys_root: str,
    prepared: str,
) -> list[str]:
    """Adds the nodes and the mount of their links; returns sentences for the log.

    prepared: the directory beneath which those of links are kept. What sysfs says now counts,
    since nvidia-drm may have been loaded at any time. A GPU without nodes is no error: programs
    that only compute offscreen do without.
    """
    facts, links, said = look(drawing(grant), dev_root, sys_root)
    said += [
        f"The MIG device {mig.uuid} has no nodes in /dev/dri, since its profile {mig.profile} has "
        "no graphics."
        for _, mig in grant.mig
        if not can_draw(mig.profile)
    ]
    if not facts:
        return said
    device_edits(edits, dev_root, facts)
    if container.covered(BY_PATH):
        said.append(f"{BY_PATH} shows what is mounted there, not the links of the granted GPUs.")
        return said
    try:
        directory = keep_links(prepared, links)
    except OSError as error:
        said.append(f"{BY_PATH} is left out: {prepared} can't be written to ({why(error)}).")
        return said
    edits.mounts.append(Mount(directory, BY_PATH, FILE_OPTIONS))
    return said


def drawing(grant: Grant) -> list[Gpu]:
    """The GPUs whose nodes a container may have, in PCI bus order, each once.

    Those that it has as a whole, and those of MIG devices that can draw at all, whose profiles say
    so ("1g.24gb+gfx"; NVIDIA's MIG user guide).
    """
    found = {gpu.index: gpu for gpu in grant.gpus if not gpu.mig_enabled}
    for gpu, mig in grant.mig:
        if can_draw(mig.profile):
            found[gpu.index] = gpu
    return [found[index] for index in sorted(found)]


def can_draw(profile: str) -> bool:
    """Whether a MIG profile has the attribute gfx: "1g.24gb+gfx", "2g.48gb+me,gfx"."""
    attributes = profile.partition("+")[2].replace("+", ",").replace(".", ",").split(",")
    return "gfx" in [attribute.partition("-")[0] for attribute in attributes]


def look(
    gpus: list[Gpu], dev_root: str, sys_root: str
) -> tuple[NodeFacts, dict[str, str], list[str]]:
    """The GPUs' nodes by name beneath the dev root ("dri/card1"), links, and what is missing."""
    facts: NodeFacts = {}
    links: dict[str, str] = {}
    said = []
    for gpu in gpus:
        names = drm.nodes(sys_root, gpu.bus_id)
        for name in names:
            path = f"{drm.DIRECTORY}/{name}"
            fact = node_facts(dev_root, path)
            if fact is None:
                said.append(f"The device node {dev_root}/{path} of GPU {gpu.index} is missing.")
                continue
            facts[path] = fact
            kind = "card" if drm.is_card(name) else "render"
            links[f"pci-{gpu.bus_id}-{kind}"] = f"../{name}"
        if not names:
            said.append(
                f"GPU {gpu.index} ({gpu.bus_id}) has no nodes in /dev/dri: nvidia-drm is not "
                "loaded, or not for this GPU."
            )
    return facts, links, said


def keep_links(prepared: str, links: dict[str, str]) -> str:
    """A directory that holds exactly these links, beneath `prepared`. Raises OSError.

    It is made beside its place and renamed there, as another create may be about to do the same.
    """
    content = "\n".join([f"{name} {target}" for name, target in sorted(links.items())])
    path = f"{prepared}/{digest_of(content.encode())[:16]}"
    if _is_there(path):
        return path
    make_directories(prepared)
    temporary = f"{prepared}/.making-{posix.getpid()}-{posix.urandom(4).hex()}"
    make_directories(temporary)
    try:
        for name, target in links.items():
            posix.symlink(target, f"{temporary}/{name}")
        posix.rename(temporary, path)
    except OSError:
        for name in posix.listdir(temporary):
            posix.unlink(f"{temporary}/{name}")
        posix.rmdir(temporary)
        if not _is_there(path):  # unless another create was faster
            raise
    return path


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
        return True
    except OSError:
        return False
