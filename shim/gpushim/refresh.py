"""Refresh: finds out what the machine is and keeps it as the snapshot. A program of its own.

    python -I -m gpushim.refresh --root ROOT --run DIR --lib DIR --capabilities KEY ...

The create path starts it (see `snapshot`), with the refresh lock as descriptor 3 and --lock, or
without both where there is nowhere to keep anything. It holds the lock until its end. On stdout
it says, in lines of JSON, first {"limit": seconds} that it may take, and at last
{"snapshot": ..., "kept": bool} or {"sentence": ..., "hint": ...}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from typing import Any

from . import config_file, lowlevel
from .cdi.write import named_trees
from .config import Config
from .errors import GpushimError, harmless, why
from .host import statefiles, treecollect
from .host.collect import Collected, collect
from .host.fingerprint import boot_id, take
from .host.memorypolicy import memory_policy_modes
from .log import Log
from .oci import jsontext
from .oci.enginelog import append_line
from .oci.files import make_directories, write_whole
from .places import Places
from .renew import partial_path
from .snapshot import FORMAT, Snapshot, keep_config, now

_ROUNDS = 3
_SETTLE_SECONDS = 0.1
# Loading, making nodes and asking NVML each wait no longer than host.driver-wait for one answer,
# and there are as many answers as GPUs: 16 on the largest machines, and some to spare.
_WAITS = 24
_WORK_SECONDS = 60.0
_LOCK = 3


def refresh(places: Places, config: Config, keys: list[str], minors: list[int]) -> Collected:
    """What the machine is, at a moment when it was not changing.

    places: where state goes; keys: capability keys whose driver trees are wanted; minors: see
    `collect`. Where it changes all the time, the last finding is returned as an incomplete one.
    """
    for _ in range(_ROUNDS):
        found = collect(config, places, keys, minors, [places.config])
        if found.settled:
            return found
        time.sleep(_SETTLE_SECONDS)
    found.complete = False
    found.problems.append("The driver's files kept changing while they were looked at.")
    return found


def keep(places: Places, snapshot: Snapshot, found: Collected) -> None:
    """Write what was found: complete as the snapshot, else for those who wait now alone.

    What can't be written is said among the problems, and the snapshot is then used once.
    """
    try:
        make_directories(places.run)
        if found.complete:
            data = {**snapshot.to_json(), "fingerprint": found.fingerprint}
            write_whole(places.snapshot, jsontext.dumps(data).encode(), 0o644)
            snapshot.kept = True
            _remove(partial_path(places))
        else:
            _keep_partial(places, {"snapshot": snapshot.to_json()}, snapshot.finished)
    except OSError as error:
        snapshot.problems.append(
            f"What was found out about this machine can't be kept in {places.run} ({why(error)}), "
            "so each container that asks for a GPU finds it out again."
        )
    if snapshot.kept:
        _collect(places, snapshot)


def _collect(places: Places, snapshot: Snapshot) -> None:
    """Removes what no snapshot and no container uses any more; the next refresh tries again."""
    try:
        known = {one.path for one in snapshot.inventory.trees.values()}
        # Containers of engines that read a static CDI spec are started long after it was made.
        named = named_trees(snapshot.config.texts("cdi.spec-dirs"), places.driver_trees)
        treecollect.collect(places, known | named)
        treecollect.collect_loader_caches(places)
    except OSError as error:
        snapshot.problems.append(f"Unused driver files can't be removed: {why(error)}.")


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    os.chdir("/")
    os.umask(0o022)
    # What the engine left open for its runtime is not for helpers and NVML to hold.
    os.closerange(_LOCK + 1 if options.lock else _LOCK, 4096)
    if options.lock:
        os.set_inheritable(_LOCK, False)
    places = Places(options.root)
    places.run, places.lib = options.run, options.lib
    request = f"{options.capabilities} {options.minors}"
    try:
        say(_run(places, options))
    except GpushimError as error:
        _fail(places, request, error)
        return 1
    except Exception as error:
        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        _fail(
            places,
            request,
            GpushimError(
                f"The refresh of this machine's inventory failed in {where.name} "
                f"(line {where.lineno} of {os.path.basename(where.filename)}) with "
                f"{type(error).__name__}: {harmless(str(error))}."
            ),
        )
        return 1
    return 0


def _run(places: Places, options: argparse.Namespace) -> dict[str, Any]:
    """The refresh itself; its result as the line that is printed last."""
    began = now()
    before = take("", [places.config], [])["files"]
    config = config_file.read(places.config)
    try:
        make_directories(places.run)
        keep_config(places, config, before[places.config])
    except OSError:
        pass  # what can't be kept is said of the snapshot, too
    say({"limit": _WORK_SECONDS + _WAITS * config.seconds("host.driver-wait")})
    keys = [options.capabilities, *_former_keys(places)]
    minors = [int(minor) for minor in options.minors.split(",") if minor]
    found = refresh(places, config, keys, minors)
    if len(found.inventory.cpus) > 1:
        found.inventory.memory_policies = _memory_policies(config, places)
    if found.fingerprint["files"][places.config] != before[places.config]:
        found.complete = False
    snapshot = Snapshot(found.inventory, config, now(), found.problems, kept=False)
    keep(places, snapshot, found)
    _log(places, config, snapshot, options.reason, began)
    return {"snapshot": snapshot.to_json(), "kept": snapshot.kept}


def _memory_policies(config: Config, places: Places) -> dict[str, list[str]]:
    """What each low-level runtime that a container may be handed to can do (see `Inventory`)."""
    try:
        names = config.texts("runtime.low-level-runtimes")
        found = lowlevel.find(names, os.environ.get("PATH", ""), places.launcher)
    except GpushimError:
        return {}  # no container is started here, so nothing is missed
    return {path: memory_policy_modes(path) for path in found}


def _former_keys(places: Places) -> list[str]:
    """The capability keys that the last snapshot had trees for, whether or not it still holds."""
    data = statefiles.read(places.snapshot) or {}
    try:
        return [key for key in data["inventory"]["trees"] if isinstance(key, str)]
    except (KeyError, TypeError):
        return []


def _fail(places: Places, request: str, error: GpushimError) -> None:
    failure = {"sentence": error.sentence, "hint": error.hint}
    try:
        make_directories(places.run)
        _keep_partial(places, {"error": failure, "request": request}, now())
    except OSError:
        pass  # those who wait will each meet the error themselves
    say(failure)


def _keep_partial(places: Places, content: dict[str, Any], finished: float) -> None:
    data = {"format": FORMAT, "finished": finished, "boot": boot_id(), **content}
    write_whole(partial_path(places), jsontext.dumps(data).encode(), 0o644)


def _log(places: Places, config: Config, snapshot: Snapshot, reason: str, began: float) -> None:
    log = Log(append_line)
    log.path = config.text("runtime.log-file") or places.default_log_file
    log.level = config.text("runtime.log-level")
    log.max_size = config.size("runtime.log-max-size")
    log.fields["reason"] = reason or "the last snapshot is missing or no longer holds"
    log.fields["driver_version"] = snapshot.inventory.driver_version
    log.fields["gpus"] = len(snapshot.inventory.gpus)
    log.fields["kept"] = snapshot.kept
    log.warnings += snapshot.problems
    log.steps["refresh"] = round((now() - began) * 1000, 3)
    log.write("info", "refreshed", jsontext.dumps)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpushim.refresh", allow_abbrev=False)
    parser.add_argument("--root", default="")
    parser.add_argument("--run", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--capabilities", required=True)
    parser.add_argument("--minors", default="")
    parser.add_argument("--reason", default="")
    parser.add_argument("--lock", action="store_true", help="descriptor 3 is the refresh lock")
    return parser.parse_args(arguments)


def say(line: dict[str, Any]) -> None:
    """Print a line of JSON. That nobody reads it any more is no reason to stop."""
    try:
        print(json.dumps(line), flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the interpreter's last flush


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
