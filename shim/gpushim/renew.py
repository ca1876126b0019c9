"""A snapshot that holds, where none does: by waiting for another's refresh, or by one of its own.

Refreshes run one at a time, each as a child process.
"""

from __future__ import annotations

import posix
import time

from .errors import GpushimError
from .host import fingerprint, statefiles
from .oci.files import make_directories
from .snapshot import Snapshot, load, now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .places import Places

_LOCK_SECONDS = 300.0
_POLL_SECONDS = 0.01


def partial_path(places: Places) -> str:
    return places.run + "/host.partial.json"


def renewed(
    places: Places, key: str, minors: list[int], started: float | None, reason: str = ""
) -> Snapshot:
    """Wait for a refresh that serves, or run one.

    started: a kept snapshot serves only if it was finished after this; None: any that holds.
    """
    import fcntl

    began = now()
    state = statefiles.own_places(places)
    lock = _open_lock(state)
    request = _request(key, minors)
    try:
        deadline = began + _LOCK_SECONDS
        seen: list[tuple[int, int]] = []
        while lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                pass
            if now() > deadline:
                raise GpushimError(
                    "Another refresh of this machine's inventory has not ended in "
                    f"{_LOCK_SECONDS:g} seconds.",
                )
            # Another refreshes: what it finds serves all who wait, without a turn at the lock.
            if (there := _identities(state)) != seen:
                seen = there
                found = _serving(state, key, request, began, started)
                if found is not None:
                    return found
            time.sleep(_POLL_SECONDS)
        found = _serving(state, key, request, began, started)
        if found is not None:
            return found
        return _run_child(places, state, key, minors, reason, lock)
    finally:
        if lock is not None:
            posix.close(lock)


def _serving(
    state: Places, key: str, request: str, began: float, started: float | None
) -> Snapshot | None:
    """A snapshot that somebody else's refresh left, if it serves; None if not.

    Raises the GpushimError that somebody else's refresh met with the very same request.
    """
    found = load(state)
    if found is not None and found.has_tree(key) and (started is None or found.finished >= started):
        return found
    data = statefiles.read(partial_path(state))
    try:
        if data is None or data["boot"] != fingerprint.boot_id() or data["finished"] < began:
            return None
        if "error" in data:
            if data["request"] == request:
                raise GpushimError(data["error"]["sentence"], data["error"]["hint"])
            return None
        found = Snapshot.from_json(data["snapshot"], kept=False)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    return found if found.has_tree(key) else None


def _identities(state: Places) -> list[tuple[int, int]]:
    found = []
    for path in (state.snapshot, partial_path(state)):
        try:
            facts = posix.stat(path)
        except OSError:
            continue
        found.append((facts.st_ino, facts.st_mtime_ns))
    return found


def _request(key: str, minors: list[int]) -> str:
    """What is asked of a refresh, as text: an error is shared only with those who ask the same."""
    return f"{key} {','.join(str(minor) for minor in sorted(minors))}"


def _run_child(
    places: Places, state: Places, key: str, minors: list[int], reason: str, lock: int | None
) -> Snapshot:
    from .host import refresh_process

    arguments = ["--root", places.root, "--run", state.run, "--lib", state.lib]
    arguments += ["--capabilities", key, "--minors", ",".join(str(minor) for minor in minors)]
    arguments += ["--reason", reason]
    program = refresh_process.interpreter(places.installation)
    result = refresh_process.run(program, arguments, lock)
    return Snapshot.from_json(result["snapshot"], kept=result["kept"])


def _open_lock(state: Places) -> int | None:
    """The lock file of refresh, open; None where the state directory can't be made or written."""
    try:
        make_directories(state.run)
        flags = posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
        return posix.open(state.refresh_lock, flags, 0o600)
    except OSError:
        return None
