"""What end-to-end tests share: a private dockerd, and bundles for low-level runtimes."""

from __future__ import annotations

from tests.harness.bundle import Bundle, base_config
from tests.harness.engine import EngineUnavailable, PrivateDockerd
from tests.harness.runtime import Result, Runtime

__all__ = [
    "Bundle",
    "EngineUnavailable",
    "PrivateDockerd",
    "Result",
    "Runtime",
    "base_config",
]
