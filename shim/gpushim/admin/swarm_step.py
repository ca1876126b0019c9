"""install's work for Docker Swarm: what this node has to hand out, and dockerd's restart."""

from __future__ import annotations

from typing import Any

from ..engines import dockerapi, dockerd, jsonfile, jsontext, swarm
from ..errors import GpushimError
from ..host.model import HEALTHY, Inventory
from ..places import Places
from ..snapshot import load
from . import docker_step
from .docker_step import Target
from .installation import Installation
from .output import say, warn


def uuids(inventory: Inventory) -> list[str]:
    """Of the devices that can be handed out: GPUs that work, and MIG devices in place of theirs."""
    found: list[str] = []
    for gpu in inventory.gpus:
        if gpu.health != HEALTHY or not gpu.uuid:
            continue
        found += [mig.uuid for mig in gpu.mig_devices] if gpu.mig_enabled else [gpu.uuid]
    return found


def plan(where: Target, places: Places, slots: int) -> tuple[jsonfile.FileChange, Any]:
    """How daemon.json changes, and what its member was before. Raises GpushimError.

    By the GPUs that the last refresh found; without any there is nothing to hand out.
    """
    snapshot = load(places)
    found = uuids(snapshot.inventory) if snapshot is not None else []
    if not found:
        raise GpushimError(
            "This node has no GPU that Swarm could hand out.",
            "`gpushimctl inventory` shows what there is; run this again then.",
        )
    file = jsonfile.read(where.config)
    before = file.data.get(swarm.MEMBER)
    if file.data.get("live-restore") is True:
        raise GpushimError(
            f"{where.config} has live-restore, with which a node can't be in a swarm.",
            "Take it out (live-restore = false) and run this again.",
        )
    member = swarm.merged(before, swarm.entries(found, slots))
    text = file.text if member == before else jsontext.put(file.text, [swarm.MEMBER], member)
    after = text.encode() if text != file.text else file.content
    return jsonfile.FileChange(file.path, file.content, after), before


def register(where: Target, places: Places, slots: int, record: Installation) -> None:
    """Write it, and what was there before on record, for uninstall. Raises GpushimError."""
    change, before = plan(where, places, slots)
    if not change.diff():
        say(f"{where.config} hands out the GPUs of this node already.")
        return
    part = record.docker_part(change.path)
    assert part is not None, "the runtime was registered in this file just now"
    if not part.former.resources_taken:
        part.former.resources_taken, part.former.resources = True, before
    saved = change.apply(backup=True)
    if saved:
        part.backups.append(saved)
    say(f"{where.config} hands out the GPUs of this node as {swarm.kind(slots)}.")


def preview(where: Target, places: Places, slots: int) -> None:
    """Say what `register` would change, as far as the GPUs are known before the installation."""
    if load(places) is None:
        say(f"Would put the GPUs that are found into {where.config} as {swarm.kind(slots)}.")
        return
    change, _ = plan(where, places, slots)
    say(change.diff().rstrip("\n") or f"{where.config} hands out the GPUs of this node already.")


def restart(where: Target, wanted: bool) -> None:
    """Restart the dockerds that don't go by a daemon.json yet if that is wanted, else say so.

    Raises GpushimError for one that does not come back.
    """
    settings = jsonfile.read(where.config).data
    for daemon in docker_step.daemons(where):
        known = dockerapi.resources(daemon, settings)
        if known is not None and set(settings[swarm.MEMBER]) == set(known):
            continue
        unit = dockerd.unit_of(daemon)
        how = f"systemctl restart {unit}" if unit else "however you start it"
        if not wanted:
            say(f"dockerd (pid {daemon.pid}) reads this when it starts: restart it ({how}).")
        elif not unit:
            warn(f"dockerd (pid {daemon.pid}) is no unit of systemd: restart it ({how}).")
        else:
            dockerd.restart(unit)
            say(f"Restarted {unit}.")
