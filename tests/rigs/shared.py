"""One rig of each kind for a whole session, whichever tests ask for it."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.conftest import cannot
from tests.images import ImageUnavailable
from tests.rigs.rig import Cgroups, Rig
from tests.rigs.uml import Guest

# How a rig has its control groups: from this machine's kernel, or with a kernel of its own.
Kind = Cgroups | Literal["guest"]

_STARTED: pytest.StashKey[dict[tuple[str, str], Rig | str]] = pytest.StashKey()


def rig(request: pytest.FixtureRequest, suite: str, cgroups: Kind = "host") -> Rig:
    """The session's rig of a suite; it is started by whoever asks first.

    The test is skipped, with the reason, where this machine can't have one, and fails where nothing
    may be skipped. Tests that ask are to be in the xdist group "rigs", or "guest" if it is one.
    """
    started = request.config.stash.setdefault(_STARTED, {})
    key = suite, cgroups
    if key not in started:
        started[key] = _start(request, suite, cgroups)
    found = started[key]
    if isinstance(found, str):
        cannot(found)
    return found


def machine(suite: str, cgroups: Kind) -> Rig:
    """One of the test's own, to be started and stopped by it."""
    return Guest(suite) if cgroups == "guest" else Rig(suite, cgroups)


def _start(request: pytest.FixtureRequest, suite: str, cgroups: Kind) -> Rig | str:
    made = machine(suite, cgroups)
    request.session.addfinalizer(made.stop)
    try:
        made.start()
    except ImageUnavailable as reason:
        made.stop()
        return f"no rig {suite}: {reason}"
    return made
