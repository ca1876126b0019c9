"""A lease whose file is damaged, from the decision record of its container."""

from __future__ import annotations

from gpushim import records
from gpushim.allocate.lease import Lease, file_name
from gpushim.allocate.liveness import Roots, lives
from gpushim.host.statefiles import own_places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.places import Places


def rebuilt(places: Places, name: str) -> Lease | None:
    """The lease that belongs into the file `name`, if a container that lives has it on record.

    Only this user's own records count; they hold it as the member "lease", as `Lease.to_json` made
    it.
    """
    for record in records.every(own_places(places).containers):
        try:
            lease = Lease.from_json(record.data["lease"])
        except (ValueError, KeyError, TypeError):
            continue
        if file_name(lease.id, lease.state_root, lease.owner) == name and lives(lease, Roots()):
            return lease
    return None
