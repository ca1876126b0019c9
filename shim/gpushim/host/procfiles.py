"""Reads the small text files of /proc and /sys, which the create path does as well."""

from __future__ import annotations

import posix

from ..oci.files import read_small

# Far more than any of these files holds; it keeps a mistaken root from filling the memory.
_MAXIMUM_BYTES = 1 << 18


def text(path: str) -> str | None:
    """The content of a small file; None if it can't be read.

    Bytes that are not UTF-8 become lone surrogates, which survive being kept as JSON.
    """
    try:
        return read_small(path, _MAXIMUM_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None


def names(directory: str) -> list[str]:
    """The sorted names in a directory; none if it can't be read."""
    try:
        return sorted(posix.listdir(directory))
    except OSError:
        return []
