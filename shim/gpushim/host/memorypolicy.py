"""Which NUMA memory policies a container can be started with on this machine."""

from __future__ import annotations

import os

from gpushim.host import bounded
from gpushim.oci import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SECONDS = 5.0
# set_mempolicy(2), "HISTORY"; all others are far older than any kernel with NVIDIA's driver.
_SINCE = {"MPOL_PREFERRED_MANY": (5, 15), "MPOL_WEIGHTED_INTERLEAVE": (6, 9)}


def memory_policy_modes(runtime: str) -> list[str]:
    """The modes of linux.memoryPolicy that the low-level runtime at `runtime` and Linux know.

    None for a runtime that does not list them among its features (OCI runtime specification,
    features-linux.md, "memoryPolicy"; runc lists what it knows, whatever the kernel does).
    """
    try:
        outcome = bounded.run([runtime, "features"], _SECONDS)
        text = "\n".join(outcome.lines)
        said = jsontext.scan(text, text.index("{"))[0] if outcome.status == 0 else None
    except (OSError, ValueError, RecursionError, *jsontext.BROKEN):
        return []
    return usable_modes(said, os.uname().release)


def usable_modes(features: Any, release: str) -> list[str]:
    """The modes in what `features` printed that Linux of this release ("6.1.0-18") has."""
    for name in ("linux", "memoryPolicy", "modes"):
        features = features.get(name) if isinstance(features, dict) else None
    modes = features if isinstance(features, list) else []
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    version = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
    return [mode for mode in modes if isinstance(mode, str) and version >= _SINCE.get(mode, (0, 0))]
