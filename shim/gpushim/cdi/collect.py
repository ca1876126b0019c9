"""Reads the spec files and keeps what they say for creates (`state`). A program of its own.

    python -I -m gpushim.cdi.collect --root ROOT --run DIR --runtime PATH --lock

The create path starts it, with the lock of the state file as descriptor 3 and --lock, or without
both where there is nowhere to keep anything. It holds the lock until its end. On stdout it says in
a line of JSON what it found, the state itself, or {"sentence": ..., "hint": ...}.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from .. import __version__, config_file
from ..config import Config
from ..errors import GpushimError, harmless
from ..host import bounded, statefiles
from ..host.fingerprint import file_stamp
from ..oci import jsontext
from ..oci.files import digest_of, make_directories, write_whole
from ..places import Places
from .registry import Registry, conflict, read
from .state import FORMAT, stamps

_ROUNDS = 5
# The kernel's clock for files ticks every 4 to 10 ms, so a file that was written this shortly
# before it was read may be written once more without its time telling.
_YOUNG_SECONDS = 0.02
_FEATURES_SECONDS = 5.0
_LOCK = 3


def collect(places: Places, config: Config, runtime: str = "") -> dict[str, Any]:
    """The state (see `state`) as of now, which is kept in `places` where that is possible.

    What is not kept has the content of its specs in it. config: what `places.config` holds;
    runtime: path of a low-level runtime that is to be asked for its features, "" for none. Those
    that are known already stay known.
    """
    config_stamp = file_stamp(places.config)
    directories = [path.rstrip("/") or "/" for path in config.texts("cdi.spec-dirs")]
    for _ in range(_ROUNDS):
        began = time.time_ns()
        files = stamps(directories)
        registry = read(directories)
        settled = stamps(directories) == files and not _young(files, began)
        if settled:
            break
        time.sleep(_YOUNG_SECONDS)
    state = {
        "format": FORMAT,
        "version": __version__,
        "config": config_stamp,
        "spec_dirs": directories,
        "files": files,
        **plain(registry),
        "runtimes": _runtimes(statefiles.read(places.cdi) or {}, runtime),
    }
    if settled and _keep(places, state):
        for spec in state["specs"]:
            del spec["content"]
    return state


def problems(state: dict[str, Any]) -> list[str]:
    """A sentence for each spec file that is wrong and each conflict."""
    found: list[str] = [error["sentence"] for error in state["errors"]]
    return found + [conflict(name, paths) for name, paths in state["conflicts"].items()]


def plain(registry: Registry) -> dict[str, Any]:
    """What is in a registry, as members of the state."""
    numbers = {spec.path: number for number, spec in enumerate(registry.specs)}
    specs = []
    for spec in registry.specs:
        content = {"format": FORMAT, "edits": spec.edits, "devices": spec.devices}
        name = digest_of(jsontext.dumps(content).encode("ascii"))
        specs.append({"path": spec.path, "file": name, "content": content})
    return {
        "specs": specs,
        "devices": {name: numbers[spec.path] for name, spec in registry.devices.items()},
        "conflicts": registry.conflicts,
        "errors": [
            {"path": path, "kind": error.kind, "sentence": harmless(error.sentence)}
            for path, error in registry.errors.items()
        ],
    }


def _young(files: Mapping[str, Mapping[str, list[int] | None] | None], began: int) -> bool:
    """Whether a file was written so shortly before `began` that it may change unseen."""
    since = began - int(_YOUNG_SECONDS * 1e9)
    return any(
        stamp is not None and since <= stamp[2] <= time.time_ns()
        for names in files.values()
        for stamp in (names or {}).values()
    )


def _keep(places: Places, state: dict[str, Any]) -> bool:
    """Writes the state where it has a place; without one each create with CDI names collects."""
    index = {**state, "specs": [{**spec} for spec in state["specs"]]}
    try:
        make_directories(places.cdi_specs)
        there = set(os.listdir(places.cdi_specs))
        for spec in index["specs"]:
            name = f"{spec['file']}.json"
            content = jsontext.dumps(spec.pop("content")).encode("ascii")
            write_whole(f"{places.cdi_specs}/{name}", content, 0o644)
            there.discard(name)
        write_whole(places.cdi, jsontext.dumps(index).encode("ascii"), 0o644)
    except OSError:
        return False
    for name in there:
        try:
            os.unlink(f"{places.cdi_specs}/{name}")
        except OSError:
            pass  # The next collection tries again.
    return True


def _runtimes(former: dict[str, Any], runtime: str) -> dict[str, Any]:
    """What is known of low-level runtimes, with that of `runtime`."""
    known: dict[str, Any] = {}
    given = former.get("runtimes")
    for path, one in given.items() if isinstance(given, dict) else ():
        if isinstance(one, dict) and one.get("stamp") == file_stamp(path):
            known[path] = one
    if runtime:
        stamp = file_stamp(runtime)
        known[runtime] = {"stamp": stamp, "features": known_features(runtime)}
    return known


def known_features(runtime: str) -> dict[str, bool]:
    """What a low-level runtime says of itself (OCI runtime specification, features-linux.md).

    netDevices, schemata and monitoring: whether it knows linux.netDevices and those two of
    linux.intelRdt; idmap and ridmap: whether it knows these mount options. All are False for one
    that has no `features`.
    """
    try:
        outcome = bounded.run([runtime, "features"], _FEATURES_SECONDS)
        text = "\n".join(outcome.lines)
        said = jsontext.scan(text, text.index("{"))[0] if outcome.status == 0 else {}
    except (OSError, ValueError, RecursionError, *jsontext.BROKEN):
        said = {}
    options = said.get("mountOptions")
    return {
        "netDevices": _member(said, "linux", "netDevices", "enabled") is True,
        "schemata": _member(said, "linux", "intelRdt", "schemata") is True,
        "monitoring": _member(said, "linux", "intelRdt", "monitoring") is True,
        "idmap": isinstance(options, list) and "idmap" in options,
        "ridmap": isinstance(options, list) and "ridmap" in options,
    }


def _member(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="gpushim.cdi.collect", allow_abbrev=False)
    parser.add_argument("--root", default="")
    parser.add_argument("--run", required=True)
    parser.add_argument("--runtime", default="")
    parser.add_argument("--lock", action="store_true", help="descriptor 3 is the lock")
    options = parser.parse_args(arguments)
    # What the engine left open for its runtime is not for the low-level runtime to hold.
    os.closerange(_LOCK + 1 if options.lock else _LOCK, 4096)
    if options.lock:
        os.set_inheritable(_LOCK, False)
    os.chdir("/")
    os.umask(0o022)
    places = Places(options.root)
    places.run = options.run
    try:
        said = collect(places, config_file.read(places.config), options.runtime)
    except GpushimError as error:
        said = {"sentence": error.sentence, "hint": error.hint}
    print(jsontext.dumps(said), flush=True)
    return 1 if "sentence" in said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
