"""Which network adapters NCCL is to use: those that are nearest to a container's GPUs.

NCCL finds a machine's topology by itself, but in a container only as far as the container has
device nodes for it, and among interfaces it takes the first by name. So containers with several
GPUs are given the nodes of the nearest RDMA devices and told their names, exactly and no others
(NCCL's user guide, "Environment Variables": a list that begins with = has whole names). This is
imported only where the configuration has nccl = "auto".
"""

from __future__ import annotations

import posix

from gpushim.host import nics, procfiles
from gpushim.host.devicenodes import node_facts
from gpushim.host.pcitree import only_node, place
from gpushim.inject.gpus import device_edits
from gpushim.oci.edits import Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.config import Config
    from gpushim.host.model import Gpu
    from gpushim.oci.bundle import Bundle

SOCKET_IFNAME = "NCCL_SOCKET_IFNAME"
IB_HCA = "NCCL_IB_HCA"
# Who sets one of these has decided about the network.
_DECIDED = (SOCKET_IFNAME, IB_HCA, "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_CONF_FILE")
_CONNECTION_MANAGER = "infiniband/rdma_cm"
# What NCCL registers with an adapter is locked in memory: tens of MiB for each GPU and channel.
_LOCKED_MEMORY = 1 << 30


def nccl_edits(
    bundle: Bundle, gpus: Sequence[Gpu], config: Config, bind_devices: bool
) -> tuple[Edits, list[str]]:
    """The nearest adapters' nodes and names, and sentences on what was left out and why.

    gpus: those granted as a whole; with fewer than two NCCL has nothing to connect. The variables
    are for later processes in the container, too. bind_devices: see `Edits`.
    """
    edits = Edits()
    edits.bind_devices = bind_devices
    environment = [str(entry) for entry in bundle.items("process", "env")]
    if len(gpus) < 2 or any(
        entry.startswith(f"{name}=") for name in _DECIDED for entry in environment
    ):
        return edits, []
    sys_root = config.text("host.sys-root")
    only = only_node(sys_root)
    places = [place(sys_root, gpu.bus_id, only) for gpu in gpus]
    adapters = nics.read(sys_root, only)
    shares_network = _shares_network(bundle)
    said: list[str] = []

    fast = _fast_hcas(sys_root, adapters, shares_network)
    near = nics.nearest(places, [nic for nic in adapters if nic in fast])
    if near and not _may_lock_memory(bundle):
        said.append(
            "NCCL was given no InfiniBand, since the container may not lock enough memory for it: "
            "start it with --ulimit memlock=-1."
        )
        near = []
    elif near:
        hcas = _add_nodes(edits, config, [hca for nic in near for hca in fast[nic]])
        near = [nic for nic in near if any(hca in hcas for hca in nic.hcas)]
        if hcas:
            edits.env[IB_HCA] = "=" + ",".join(hcas)
    if shares_network:
        names = _usable_interfaces(sys_root, config.text("host.proc-root"), adapters)
        candidates = near or nics.nearest(places, _fastest(sys_root, names))
        chosen = [name for nic in candidates for name in names.get(nic, [])]
        if chosen:
            edits.env[SOCKET_IFNAME] = "=" + ",".join(dict.fromkeys(chosen))
    return edits, said


def _fast_hcas(
    sys_root: str, adapters: Sequence[nics.Nic], shares_network: bool
) -> dict[nics.Nic, list[str]]:
    """Those adapters' RDMA devices that have an active port of the highest rate there is.

    A device on Ethernet has addresses only in the network namespace of its interface.
    """
    rates = {}
    for nic in adapters:
        for hca in nic.hcas:
            active = [
                port.rate
                for port in nics.ports(sys_root, hca)
                if port.active and (shares_network or not port.ethernet)
            ]
            if active:
                rates[nic, hca] = max(active)
    found: dict[nics.Nic, list[str]] = {}
    for (nic, hca), rate in rates.items():
        if rate == max(rates.values()):
            found.setdefault(nic, []).append(hca)
    return found


def _add_nodes(edits: Edits, config: Config, hcas: Sequence[str]) -> list[str]:
    """Adds what there is of the nodes of RDMA devices; returns those devices that have one."""
    sys_root, dev_root = config.text("host.sys-root"), config.text("host.dev-root")
    nodes: dict[str, tuple[int, int, int, int, int]] = {}
    found = []
    for hca in hcas:
        where = f"{sys_root}/class/infiniband/{hca}/device/infiniband_verbs"
        for name in procfiles.names(where):
            node = f"infiniband/{name}"
            facts = node_facts(dev_root, node)
            if facts is not None and _belongs_to(sys_root, name, hca):
                nodes[node] = facts
                found.append(hca)
    manager = node_facts(dev_root, _CONNECTION_MANAGER)
    if found and manager is not None:
        nodes[_CONNECTION_MANAGER] = manager
    device_edits(edits, dev_root, nodes)
    return found


def _belongs_to(sys_root: str, verbs: str, hca: str) -> bool:
    """Whether a node is of this RDMA device, where its adapter has several."""
    name = procfiles.text(f"{sys_root}/class/infiniband_verbs/{verbs}/ibdev")
    return name is None or name.strip() == hca


def _usable_interfaces(
    sys_root: str, proc_root: str, adapters: Sequence[nics.Nic]
) -> dict[nics.Nic, list[str]]:
    """Adapter -> its interfaces that are up and have an IPv4 network: others NCCL can't use."""
    routes = (procfiles.text(f"{proc_root}/net/route") or "").split("\n")
    routed = {line.split("\t")[0] for line in routes[1:]}
    found: dict[nics.Nic, list[str]] = {}
    for nic in adapters:
        for interface in nic.interfaces:
            name = _spokesman(sys_root, interface)
            state = procfiles.text(f"{sys_root}/class/net/{name}/operstate") or ""
            if name in routed and state.strip() == "up":
                found.setdefault(nic, []).append(name)
    return found


def _spokesman(sys_root: str, interface: str) -> str:
    """The interface that has the addresses of this one: its bond or bridge, or itself."""
    try:
        return posix.readlink(f"{sys_root}/class/net/{interface}/master").rpartition("/")[2]
    except OSError:
        return interface


def _fastest(sys_root: str, names: dict[nics.Nic, list[str]]) -> list[nics.Nic]:
    """The adapters with the fastest interfaces: a nearer one for management is none for NCCL."""
    speeds = {nic: max(_speed(sys_root, name) for name in own) for nic, own in names.items()}
    return [nic for nic, speed in speeds.items() if speed == max(speeds.values())]


def _speed(sys_root: str, name: str) -> int:
    """In Mb/s, 0 where the kernel does not tell."""
    text = (procfiles.text(f"{sys_root}/class/net/{name}/speed") or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else 0


def _shares_network(bundle: Bundle) -> bool:
    """Whether the container has the host's network, whose interfaces these are."""
    for namespace in bundle.items("linux", "namespaces"):
        if isinstance(namespace, dict) and namespace.get("type") == "network":
            try:
                own, other = posix.stat("/proc/self/ns/net"), posix.stat(str(namespace["path"]))
            except (KeyError, OSError, ValueError):
                return False
            return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)
    return True


def _may_lock_memory(bundle: Bundle) -> bool:
    """Whether RLIMIT_MEMLOCK leaves room for NCCL's buffers, or CAP_IPC_LOCK lifts it."""
    capabilities = bundle.section("process", "capabilities", "effective")
    if isinstance(capabilities, list) and "CAP_IPC_LOCK" in capabilities:
        return True
    for limit in bundle.items("process", "rlimits"):
        if isinstance(limit, dict) and limit.get("type") == "RLIMIT_MEMLOCK":
            soft = limit.get("soft")
            return isinstance(soft, int) and soft >= _LOCKED_MEMORY
    # It inherits what the low-level runtime has, which is what this process has.
    for line in (procfiles.text("/proc/self/limits") or "").split("\n"):
        if line.startswith("Max locked memory"):
            soft = line.split()[3]
            return soft == "unlimited" or (soft.isdecimal() and int(soft) >= _LOCKED_MEMORY)
    return False
