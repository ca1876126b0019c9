"""What the cgroup of an explained container allows and uses."""

from __future__ import annotations

import os
from typing import Any

from ..allocate.lease import Lease
from ..allocate.liveness import Roots, traces
from ..allocate.wish import size_words
from ..limits.numberlist import write_list
from ..observe import cgroups


def reading(data: dict[str, Any], spec: Any, roots: Roots | None = None) -> dict[str, Any] | None:
    """What can be read of a container's cgroup, as `cgroups.Reading.to_json` has it.

    data: its decision record; spec: its config.json, None where that is gone. None for a refused
    container, and for one whose cgroup is not there or says nothing.
    """
    name, root = data.get("id"), data.get("state_root")
    if not name or not root:
        return None
    # A container without a GPU of its own has no lease, and its cgroup is found in the same way.
    like = Lease(name, root, (0, 0), [])
    like.family = "crun" if os.path.exists(f"{root}/{name}/status") else "runc"
    like.owner = os.geteuid()
    like.cgroup = _cgroups_path(spec)
    roots = roots or Roots()
    found = cgroups.read(traces(like, roots)[1], roots.cgroup).to_json()
    return found if any(value is not None for value in found.values()) else None


def _cgroups_path(spec: Any) -> str:
    linux = spec.get("linux") if isinstance(spec, dict) else None
    path = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    return path if isinstance(path, str) else ""


def lines(found: dict[str, Any]) -> list[str]:
    """A reading in words; what cannot be read is left out."""
    told = []
    if found["memory"] is not None:
        most = found["memory_limit"]
        told.append(f"memory: {size_words(found['memory'])}{_of(most and size_words(most))}")
    if found["cpu_seconds"] is not None:
        most = found["processors"]
        allowed = "no limit" if most is None else f"{most:g} at once"
        told.append(f"processor time: {allowed}, {found['cpu_seconds']:.1f} s used")
    if found["pids"] is not None:
        told.append(f"processes and threads: {found['pids']}{_of(found['pids_limit'])}")
    if found["cpus"] is not None:
        told.append(f"processors: {write_list(found['cpus'])}")
    if found["memory_nodes"] is not None:
        told.append(f"memory of nodes: {write_list(found['memory_nodes'])}")
    return told


def _of(most: Any) -> str:
    return ", no limit" if most is None else f" of {most}"
