"""A machine with a kernel of its own, which is a program: user-mode Linux."""

from __future__ import annotations

from tests.rigs.uml.guest import Guest

__all__ = ["Guest"]
