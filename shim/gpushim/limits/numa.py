"""The processors and the memory that are near a container's GPUs."""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.limits.numberlist import read_list, write_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpushim.host.model import Gpu
    from gpushim.limits.cgroups import Cgroups
    from gpushim.limits.limits import Limits
    from gpushim.limits.present import Present

BIND = "bind"
PREFER = "prefer"
_HINT = "Ask for numa=prefer or numa=off, or for other GPUs."
# set_mempolicy(2): the first takes one node.
_ONE = "MPOL_PREFERRED"
_SEVERAL = "MPOL_PREFERRED_MANY"


class Nodes:
    """The NUMA nodes of a container's GPUs on this machine.

    near: those of the GPUs; unknown: the GPUs whose node is not known; processors: node -> its
    processors, for each node of the machine.
    """

    __slots__ = ("near", "processors", "unknown")

    def __init__(self, gpus: Sequence[Gpu], cpus: Mapping[str, str]) -> None:
        self.processors: dict[int, set[int]] = {}
        for name, text in cpus.items():
            self.processors[int(name)] = read_list(text)
        self.near = {gpu.numa_node for gpu in gpus if gpu.numa_node in self.processors}
        self.unknown = sorted({gpu.index for gpu in gpus if gpu.numa_node not in self.processors})

    @property
    def all_alike(self) -> bool:
        """Whether the machine has one node, or no more than the GPUs are on."""
        return len(self.processors) < 2 or len(self.near) == len(self.processors)


def bind(limits: Limits, present: Present, nodes: Nodes, cgroups: Cgroups, source: str) -> None:
    """Binds the container to the GPUs' nodes (cpuset), as far as this host has them online.

    source: where that was asked for, "" for the configuration. A cpuset that the user set stays.
    Raises GpushimError where nothing of the nodes is online, and for what is missing where it was
    asked for of this container; where it is configured for all, that is a warning.
    """
    if nodes.all_alike:
        return
    if nodes.unknown:
        unknown = ", ".join([str(index) for index in nodes.unknown])
        _cannot(limits, source, f"the NUMA node of GPU {unknown} is not known", _HINT)
        return
    processors = set().union(*[nodes.processors[node] for node in nodes.near])
    if "cpuset.cpus" in present.said or "cpuset.mems" in present.said:
        _keep_own(limits, present, nodes, processors)
        return
    if not cgroups.has("cpuset"):
        why = "the cgroup controller 'cpuset' is not available to containers on this host"
        _cannot(limits, source, f"{why} (cgroup version {cgroups.version})", _HINT)
        return
    online, memory = cgroups.processors(), cgroups.memory_nodes()
    if not processors & online or not nodes.near & memory:
        what = "no processor" if not processors & online else "no memory"
        raise GpushimError(
            f"{_asked(source)}, but {what} of the GPUs' NUMA nodes ({write_list(nodes.near)}) is "
            f"online for containers: they have processors {write_list(processors) or 'none'}, and "
            f"here are processors {write_list(online) or 'none'} and the memory of nodes "
            f"{write_list(memory) or 'none'}.",
            _HINT,
        )
    cpu = limits.edits.resources.setdefault("cpu", {})
    cpu["cpus"] = write_list(processors & online)
    cpu["mems"] = write_list(nodes.near & memory)


def prefer(
    limits: Limits, present: Present, nodes: Nodes, cgroups: Cgroups, modes: Sequence[str]
) -> None:
    """Has memory come from the GPUs' nodes as long as there is some, where that can be said.

    modes: of memory policies that low-level runtime and kernel know. A memory policy or a choice of
    memory nodes that the user made stays.
    """
    if nodes.all_alike or nodes.unknown or present.memory_policy or "cpuset.mems" in present.said:
        return
    # The kernel refuses a policy none of whose nodes the cpuset allows.
    near = nodes.near & cgroups.memory_nodes()
    mode = _ONE if len(near) == 1 else _SEVERAL
    if near and mode in modes:
        limits.edits.memory_policy = {"mode": mode, "nodes": write_list(near)}


def _keep_own(limits: Limits, present: Present, nodes: Nodes, processors: set[int]) -> None:
    """Warns of a cpuset of the user's that reaches beyond the GPUs' nodes."""
    own, memory = (
        str(present.unified.get(f"cpuset.{member}") or present.text("cpu", member))
        for member in ("cpus", "mems")
    )
    try:
        if read_list(own) <= processors and read_list(memory) <= nodes.near:
            return
    except ValueError:
        pass  # The low-level runtime tells what is wrong with it.
    limits.warnings.append(
        f"numa=bind is not applied: the container has its own cpuset (processors {own or 'any'}, "
        f"memory nodes {memory or 'any'}), which is not all on the GPUs' NUMA nodes "
        f"({write_list(nodes.near)}: processors {write_list(processors)})."
    )


def _cannot(limits: Limits, source: str, why: str, hint: str) -> None:
    if source:
        raise GpushimError(f"{_asked(source)}, but {why}.", hint)
    limits.warnings.append(f"limits.numa 'bind' is not applied: {why}.")


def _asked(source: str) -> str:
    return f"A binding to the GPUs' NUMA nodes was asked for by {source or 'limits.numa'}"
