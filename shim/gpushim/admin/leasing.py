"""What the verbs on leases have in common: finding one, whether its container lives, the log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..allocate import cgroup_of
from ..allocate.lease import Lease
from ..allocate.liveness import Roots, is_machine_root, is_running, lives, traces
from ..errors import GpushimError
from ..log import Log
from ..oci.enginelog import append_line
from ..oci.jsontext import dumps
from ..places import Places
from ..snapshot import known_config
from .users import user_name

# What ps calls the state of a lease.
LIVE, UNKNOWN, GONE, RESERVED = "live", "unknown", "gone", "reserved"
SHORT_ID = 12


def title(lease: Lease) -> str:
    """A lease's container as people know it: "web (3f2a...)", or the short id alone."""
    return f"{lease.name} ({lease.id[:SHORT_ID]})" if lease.name else lease.id[:SHORT_ID]


def state_of(lease: Lease, roots: Roots) -> str:
    """Whether a lease's container lives, as far as this user can see."""
    if not lives(lease, roots):
        return GONE
    if lease.expires:
        return RESERVED
    if lease.owner == os.geteuid() or is_machine_root(roots):
        return LIVE
    # Of others, the state that the low-level runtime keeps is hidden.
    if is_running(*lease.creator, roots):
        return LIVE
    _, directories = traces(lease, roots)
    named = [path for path in directories if cgroup_of.has_name(path, lease.id)]
    return LIVE if any(True for path in named for _ in cgroup_of.processes(path)) else UNKNOWN


def find(name: str, leases: Sequence[Lease]) -> Lease:
    """The lease of a container by its name, its id or the beginning of that.

    Raises GpushimError if there is none, or several.
    """
    found = [lease for lease in leases if name and name in (lease.id, lease.name)]
    found = found or [lease for lease in leases if name and lease.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(f"{title(lease)} of {user_name(lease.owner)}" for lease in found)
        raise GpushimError(f"'{name}' means several containers: {several}.", "Give more of its id.")
    there = ", ".join(sorted(title(lease) for lease in leases)) or "none"
    raise GpushimError(f"No container '{name}' has a lease.", f"Those that have one: {there}.")


def who() -> str:
    """Who runs this: a user, and who became that user by sudo(8)."""
    name = user_name(os.geteuid())
    sudo = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo by {sudo})" if sudo and sudo != name else name


def note(places: Places, message: str, fields: dict[str, Any]) -> None:
    """A line in gpushim's own log on what somebody did, with who it was."""
    log = Log(append_line)
    config = known_config(places)
    log.path = places.default_log_file
    if config is not None:
        log.path = config.text("runtime.log-file") or log.path
        log.max_size = config.size("runtime.log-max-size")
    log.fields = {**fields, "by": who()}
    log.write("info", message, dumps)
