"""From a request to a grant on this machine as it is now, with another look before a refusal."""

from __future__ import annotations

from gpushim.allocate.grant import Grant, Unavailable
from gpushim.booking import book, give_back
from gpushim.errors import GpushimError
from gpushim.host.devicenodes import node_facts, stale
from gpushim.host.model import capability_key
from gpushim.inject.gpus import needed_nodes
from gpushim.snapshot import obtain, refresh_again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.allocate.lease import Booking, Lease
    from gpushim.asker import Asker
    from gpushim.config import Config
    from gpushim.request.request import Request
    from gpushim.snapshot import Snapshot

    NodeFacts = dict[str, tuple[int, int, int, int, int]]


class Decision:
    """What was decided: a grant, its lease (None without a device), and the facts of its nodes.

    snapshot: one that has the driver tree for it; bookings: what is booked of each device.
    """

    __slots__ = ("bookings", "facts", "grant", "lease", "snapshot")

    def __init__(
        self, snapshot: Snapshot, grant: Grant, bookings: list[Booking], lease: Lease | None
    ) -> None:
        self.snapshot = snapshot
        self.grant = grant
        self.bookings = bookings
        self.lease = lease
        self.facts: NodeFacts = {}


def decide(snapshot: Snapshot, request: Request, asker: Asker) -> Decision:
    """The decision, with the devices' nodes as they are now.

    What seems not to be there is looked for once more by a refresh before it is an error: a GPU
    that was plugged in or repaired, a node that nobody has made yet. Raises GpushimError; then
    nothing is booked.
    """
    places = asker.call.places
    key = capability_key(request.capabilities)
    if not snapshot.has_tree(key):
        snapshot = obtain(places, key)
    try:
        found = _book(snapshot, request, asker)
    except Unavailable:
        snapshot = refresh_again(places, key, "a GPU that was asked for is not usable", [])
        try:
            found = _book(snapshot, request, asker)
        except Unavailable as error:
            if snapshot.kept or not snapshot.problems:
                raise
            # What is not known can't be told from what is not there.
            raise Unavailable(
                f"{error.sentence} Not all could be found out: {' '.join(snapshot.problems)}"
            ) from None
    try:
        _check_requirements(request, found.grant, snapshot)
        found.facts, missing = _stat_nodes(snapshot.config, needed_nodes(found.grant))
        if missing:
            minors = [gpu.minor for gpu in found.grant.boards()]
            found.snapshot = refresh_again(places, key, f"{missing[0]} is missing", minors)
            found.facts, missing = _stat_nodes(snapshot.config, needed_nodes(found.grant))
        if missing:
            dev_root = snapshot.config.text("host.dev-root")
            raise GpushimError(
                f"GPUs were asked for by {request.sources['devices']}, but the device node "
                f"{dev_root}/{missing[0]} is missing and could not be made.",
                "Run 'nvidia-modprobe -u -c 0' or 'gpushimctl doctor'.",
            )
    except BaseException:
        if found.lease is not None:
            give_back(found.lease)
        raise
    asker.call.log.warnings += found.grant.warnings
    return found


def _book(snapshot: Snapshot, request: Request, asker: Asker) -> Decision:
    if request.count is None and not request.devices:
        return Decision(snapshot, Grant([], request.capabilities), [], None)
    choice, lease = book(snapshot, request, asker)
    return Decision(snapshot, choice.grant(request.capabilities), lease.bookings, lease)


def _check_requirements(request: Request, grant: Grant, snapshot: Snapshot) -> None:
    """Raises GpushimError if the driver or a granted GPU is not what the image demands."""
    if not request.requirements:
        return
    from gpushim.request.requirements import Facts, check_each

    inventory = snapshot.inventory
    cuda, driver = inventory.cuda_version, inventory.driver_version
    boards = [
        (Facts(cuda, driver, gpu.compute_capability, gpu.brand), f"GPU {gpu.index} ({gpu.model})")
        for gpu in grant.boards()
    ]
    check_each(request.requirements, boards or [(Facts(cuda, driver, None, None), "this machine")])


def _stat_nodes(config: Config, names: list[str]) -> tuple[NodeFacts, list[str]]:
    """The facts of the nodes that there are, and the names of those that have to be made."""
    dev_root = config.text("host.dev-root")
    found = {name: node_facts(dev_root, name) for name in names}
    facts = {name: fact for name, fact in found.items() if fact is not None}
    for name in stale(config.text("host.proc-root"), facts):
        del facts[name]
    control = facts.get("nvidiactl")
    for name, fact in facts.items():
        # The driver numbers a GPU's node as it names it; another one is another GPU's, or none's.
        number = name.removeprefix("nvidia")
        if control and number.isdecimal() and fact[:2] != (control[0], int(number)):
            raise GpushimError(
                f"The device node {dev_root}/{name} has the numbers {fact[0]}:{fact[1]}, which are "
                f"not those of the driver's GPU {number} ({control[0]}:{number}).",
                f"Remove it ('rm {dev_root}/{name}'); it is made anew by the next container.",
            )
    return facts, [name for name in names if name not in facts]
