"""What a container with GPUs gets of the rest of the machine: processors, memory, processes.

`limits_for` decides; the one thing that looks at the host is the `Cgroups` that it is given.
"""

from __future__ import annotations

from gpushim.limits.cgroups import Cgroups
from gpushim.limits.defaults import add_defaults, fit
from gpushim.limits.numa import BIND, PREFER, Nodes, bind, prefer
from gpushim.limits.present import present_in
from gpushim.limits.security import add_security, refuse_privileged
from gpushim.limits.settings import settings_of
from gpushim.limits.shares import shares_of
from gpushim.limits.shm import add_shm
from gpushim.limits.unified import add_swap, add_unified
from gpushim.oci.edits import Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpushim.allocate.grant import Grant
    from gpushim.allocate.lease import Booking
    from gpushim.config import Config
    from gpushim.host.model import Inventory
    from gpushim.limits.present import Present
    from gpushim.limits.settings import Settings
    from gpushim.limits.shares import Share
    from gpushim.oci.bundle import Bundle
    from gpushim.request.request import Request


class Limits:
    """What becomes of a container's limits.

    edits: members of its spec; warnings: what was configured and is not enforced; notes: what was
    configured and gave way to the user's own; said: limits (see `present`) that are decided.
    """

    __slots__ = ("edits", "notes", "said", "warnings")

    def __init__(self) -> None:
        self.edits = Edits()
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.said: set[str] = set()


def limits_for(
    present: Present,
    shares: Sequence[Share],
    request: Request,
    settings: Settings,
    cpus: Mapping[str, str],
    modes: Sequence[str],
    cgroups: Cgroups,
) -> Limits:
    """The limits of a container that has some GPUs, or parts of them; none without any.

    cpus: NUMA node -> its processors as the kernel lists them; modes: of memory policies that
    low-level runtime and kernel know. Raises GpushimError for a privileged container where that is
    refused, and for a binding to NUMA nodes that cannot be.
    """
    limits = Limits()
    if not shares:
        return limits
    refuse_privileged(settings, present.privileged)
    add_security(limits.edits, settings)
    gpus = sum([share for _, share in shares])
    add_unified(limits, present, settings, cgroups)
    add_defaults(limits, present, settings, cgroups, gpus)
    fit(limits, present, cgroups)
    add_swap(limits, present, settings, cgroups)
    add_shm(limits, present, settings, gpus)
    numa = request.keys.get("numa") or settings.numa
    if numa in (BIND, PREFER):
        nodes = Nodes([gpu for gpu, _ in shares], cpus)
        if numa == BIND:
            bind(limits, present, nodes, cgroups, request.sources.get("numa", ""))
        else:
            prefer(limits, present, nodes, cgroups, modes)
    return limits


def decide(
    bundle: Bundle,
    privileged: bool,
    grant: Grant,
    bookings: Sequence[Booking],
    request: Request,
    config: Config,
    inventory: Inventory,
    modes: Sequence[str],
) -> Limits:
    """The limits of the container in `bundle`, as this host can set them.

    privileged: whether it may use every device; modes: see `limits_for`, which says what is raised.
    """
    found = present_in(bundle, privileged)
    return limits_for(
        found,
        shares_of(grant, bookings),
        request,
        settings_of(config.values),
        inventory.cpus,
        modes,
        Cgroups(found.cgroup),
    )
