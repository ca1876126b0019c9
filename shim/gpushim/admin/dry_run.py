"""What `gpushimctl install --dry-run` prints: all that a real run would write."""

from __future__ import annotations

import os

from ..places import Places
from . import files, programs
from .output import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .install import Prepared


def show(prepared: Prepared, places: Places) -> None:
    for directory in directories(places):
        if not os.path.isdir(directory):
            say(f"Would make the directory {directory}.")
    for path in to_write(prepared, places):
        say(f"Would write {path}.")
    if prepared.config_change is not None:
        if prepared.keeps_config:
            say(f"Would keep a copy of the edited {places.config} beside it.")
        say(prepared.config_change.diff().rstrip("\n"))
    say(f"Would look for GPUs, and keep what is found in {places.run} and {places.driver_trees}.")
    say(f"Would compile the bytecode of {prepared.code}/gpushim.")
    if prepared.plan is None:
        say("No runtime would be registered with Docker.")
    else:
        change = prepared.plan.change
        for note in prepared.plan.notes:
            say(note)
        diff = change.diff()
        if diff and change.before is not None:
            say(f"Would keep a copy of {change.path} beside it.")
        say(diff.rstrip("\n") if diff else f"{change.path} would stay as it is.")
    if prepared.note:
        say(prepared.note)
    say("Nothing was changed.")


def directories(places: Places) -> tuple[str, ...]:
    """The directories that an installation has, with that of the tmpfiles.d entry."""
    return (
        *(places.lib, places.etc, places.run, places.containers, places.leases, places.queue),
        *(places.log, places.bin),
        os.path.dirname(programs.tmpfiles_path(places)),
    )


def to_write(prepared: Prepared, places: Places) -> list[str]:
    """The files and links that are missing or would become others, but for daemon.json."""
    wanted = {
        programs.tmpfiles_path(places): programs.tmpfiles(places).encode(),
        places.launcher: prepared.launcher.encode(),
    }
    if prepared.config is not None:
        wanted = {places.config: prepared.config, **wanted}
    found = [path for path, content in wanted.items() if not _holds(path, content)]
    control = places.bin + "/gpushimctl"
    found += [
        path
        for path in (places.launcher_settings, control, places.installation)
        if not os.path.lexists(path)
    ]
    return found


def _holds(path: str, content: bytes) -> bool:
    if os.path.islink(path) or not files.fingerprint(path):
        return False
    with open(path, "rb") as file:
        return file.read() == content
