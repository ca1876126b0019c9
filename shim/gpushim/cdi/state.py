"""What the spec files of this machine say, kept for creates that name CDI devices.

<run>/cdi.json is {"format": 1, "version": gpushim's, "config": stamp of the configuration file,
"spec_dirs": [directory, ...], "files": {directory: {name: stamp} or null}, "specs": [{"path":
..., "file": name}], "devices": {qualified name: number of its spec}, "conflicts": {qualified name:
[path, ...]}, "errors": [{"path": ..., "kind": ..., "sentence": ...}], "runtimes": {path: {"stamp":
..., "features": {...}}}}. What a spec says is in <run>/cdi/<file>.json, so that no create reads
what others need: {"format": 1, "edits": {...}, "devices": {name: {...}}}, with CDI's
containerEdits without empty members. In memory it is the "content" of the spec's entry.

Where it no longer holds, a child process with the interpreter that gpushim was installed with
reads the spec files anew (`collect`), one at a time. No GPU is looked at for that.
"""

from __future__ import annotations

import posix
import time

from gpushim import __version__
from gpushim.errors import GpushimError, why
from gpushim.host import statefiles
from gpushim.host.fingerprint import file_stamp
from gpushim.oci.files import make_directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpushim.places import Places

    Stamp = list[int] | None
    State = dict[str, Any]

FORMAT = statefiles.FORMAT
ENDINGS = (".json", ".yaml")

_MODULE = "gpushim.cdi.collect"
# Reading is a matter of milliseconds, of seconds for megabytes of YAML on a busy machine.
WORK_SECONDS = 60.0
_POLL_SECONDS = 0.01
_HINT = "`gpushimctl cdi validate` reads them, too, and shows more."


def stamps(directories: Sequence[str]) -> dict[str, dict[str, Stamp] | None]:
    """What tells whether spec files came, went or changed: directory -> name -> stamp.

    None for a directory that is not there or cannot be read.
    """
    found: dict[str, dict[str, Stamp] | None] = {}
    for directory in directories:
        try:
            names = posix.listdir(directory)
        except OSError:
            found[directory] = None
            continue
        found[directory] = {
            name: file_stamp(f"{directory}/{name}")
            for name in sorted(names)
            if name.endswith(ENDINGS)
        }
    return found


def load(places: Places) -> State | None:
    """The kept state; None if there is none, it cannot be read, or it no longer holds.

    Raises GpushimError if a newer version of gpushim wrote it.
    """
    state = statefiles.read(places.cdi)
    try:
        if (
            state is not None
            and state["version"] == __version__
            and state["config"] == file_stamp(places.config)
            and state["files"] == stamps(state["spec_dirs"])
        ):
            return state
    except (KeyError, TypeError):
        pass  # Somebody else wrote it.
    return None


def current(places: Places, names: Sequence[str] = ()) -> State:
    """What the spec files say now, with the content of those that describe the devices `names`.

    Raises GpushimError if the configuration is wrong or nobody can read them.
    """
    own = statefiles.own_places(places)
    for state in (places, own):
        found = load(state)
        if found is not None and _filled(found, state, names):
            return found
    return _collected(places, own, names, "")


def _filled(state: State, places: Places, names: Sequence[str]) -> bool:
    """Whether the content of all specs that describe one of `names` is at hand now."""
    try:
        for name in names:
            number = state["devices"].get(name)
            if number is None:
                continue
            spec = state["specs"][number]
            if "content" not in spec:
                spec["content"] = statefiles.read(f"{places.cdi_specs}/{spec['file']}.json")
            if spec["content"] is None:
                del spec["content"]
                return False
    except (KeyError, TypeError, IndexError, AttributeError):
        return False
    return True


def features(places: Places, state: State, runtime: str) -> dict[str, bool]:
    """What of CDI's newer fields the low-level runtime at `runtime` says that it knows.

    See `collect.known_features`. Raises GpushimError if nobody can ask it.
    """
    known = _features(state, runtime)
    if known is None:
        own = statefiles.own_places(places)
        known = _features(_collected(places, own, (), runtime), runtime)
    return known or {}


def _features(state: State, runtime: str) -> dict[str, bool] | None:
    try:
        known = state["runtimes"][runtime]
        return dict(known["features"]) if known["stamp"] == file_stamp(runtime) else None
    except (KeyError, TypeError, ValueError):
        return None


def _collected(places: Places, own: Places, names: Sequence[str], runtime: str) -> State:
    """The state after a collection: somebody else's that has just ended, or one of our own.

    names: see `current`; runtime: a low-level runtime whose features are wanted, too, "" for none.
    """
    import fcntl

    lock = _open_lock(own)
    try:
        deadline = time.monotonic() + WORK_SECONDS
        while lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise GpushimError(
                        "Somebody else has been reading the CDI spec files for "
                        f"{WORK_SECONDS:g} seconds.",
                        _HINT,
                    ) from None
            time.sleep(_POLL_SECONDS)
        found = load(own)
        if (
            found is not None
            and _filled(found, own, names)
            and (not runtime or _features(found, runtime) is not None)
        ):
            return found
        found = _run_child(places, own, runtime, lock)
        if not _filled(found, own, names):
            raise GpushimError(
                f"What was read of the CDI spec files cannot be read back from {own.run}.", _HINT
            )
        return found
    finally:
        if lock is not None:
            posix.close(lock)


def _open_lock(own: Places) -> int | None:
    """The lock file, open; None where the state directory cannot be made or written."""
    try:
        make_directories(own.run)
        flags = posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
        return posix.open(own.cdi_lock, flags, 0o600)
    except OSError:
        return None


def _run_child(places: Places, own: Places, runtime: str, lock: int | None) -> State:
    from gpushim.host import bounded, refresh_process
    from gpushim.oci.jsontext import loads

    results: list[dict[str, Any]] = []

    def on_line(line: str) -> None:
        if line.startswith('{"'):
            try:
                results.append(loads(line))
            except ValueError:
                pass  # What a library prints of its own accord is not for us.

    program = refresh_process.interpreter(places.installation)
    command = [program, "-I", "-m", _MODULE, "--root", places.root, "--run", own.run]
    command += ["--runtime", runtime, *(["--lock"] if lock is not None else [])]
    try:
        outcome = bounded.run(command, WORK_SECONDS, on_line, lock)
    except OSError as error:
        raise GpushimError(
            f"{program}, which gpushim was installed with, cannot be started: {why(error)}.",
            "Run `gpushimctl install` again.",
        ) from None
    result = results[-1] if results else {}
    if "sentence" in result:
        raise GpushimError(result["sentence"], result["hint"])
    if "devices" in result:
        return result
    if outcome.status is None:
        raise GpushimError("The CDI spec files could not be read in time.", _HINT)
    words = f": {outcome.last_words}" if outcome.last_words else ""
    raise GpushimError(
        f"The CDI spec files could not be read (status {outcome.status}){words}.", _HINT
    )
