"""Versions of the CDI specification, and which of them a spec needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VERSIONS = (
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.4.0",
    "0.5.0",
    "0.6.0",
    "0.7.0",
    "0.8.0",
    "1.0.0",
    "1.1.0",
)


def minimum_version(spec: dict[str, Any]) -> tuple[str, str]:
    """The oldest version of CDI that has all that a spec uses, and what of it needs that version.

    spec: as `clean` gives it (the table "Released versions" of CDI SPEC.md).
    """
    # Those before had other fields, and no engine of today reads them.
    oldest = (VERSIONS.index("0.3.0"), "spec file of this form")
    needed = max(_needs(spec), default=oldest)
    return VERSIONS[needed[0]], needed[1]


def _needs(spec: dict[str, Any]) -> Iterator[tuple[int, str]]:
    def since(version: str, feature: str) -> tuple[int, str]:
        return VERSIONS.index(version), feature

    devices = spec.get("devices", [])
    if "." in spec.get("kind", "").partition("/")[2]:
        yield since("0.6.0", "dot in a class")
    if any(part.get("annotations") for part in (spec, *devices)):
        yield since("0.6.0", "annotations")
    if any(not device.get("name", "x")[:1].isalpha() for device in devices):
        yield since("0.5.0", "device name that begins with a digit")
    for edits in [part.get("containerEdits", {}) for part in (spec, *devices)]:
        if any(node.get("hostPath") for node in edits.get("deviceNodes", [])):
            yield since("0.5.0", "hostPath of a device node")
        if any(mount.get("type") for mount in edits.get("mounts", [])):
            yield since("0.4.0", "type of a mount")
        for field in ("intelRdt", "additionalGids"):
            if field in edits:
                yield since("0.7.0", field)
        if "netDevices" in edits:
            yield since("1.1.0", "netDevices")
        for field in ("schemata", "enableMonitoring"):
            if field in edits.get("intelRdt", {}):
                yield since("1.1.0", f"intelRdt.{field}")
