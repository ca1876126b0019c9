"""Other distributions' engines on this machine's kernel, with gpushim installed as a user does it.

See README.md beside this file.
"""

from __future__ import annotations

from tests.rigs.rig import Rig
from tests.rigs.shared import rig

__all__ = ["Rig", "rig"]
