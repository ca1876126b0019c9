"""Reads the small text files of /proc and /sys, which the create path does as well."""

from __future__ import annotations

import posix

# Far more than any of these files holds; it keeps a mistaken root from filling the memory.
_MAXIMUM_BYTES = 1 << 18


def text(path: str) -> str | None:
    """The content of a small file; None if it can't be read.

    Bytes that are not UTF-8 become lone surrogates, which survive being kept as JSON.
    """
    try:
        descriptor = posix.open(
            path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY
        )
    except OSError:
        return None
    parts = []
    left = _MAXIMUM_BYTES
    try:
        while left > 0:
            part = posix.read(descriptor, min(left, 16384))
            if not part:
                break
            parts.append(part)
            left -= len(part)
    except OSError:
        return None
    finally:
        posix.close(descriptor)
    return b"".join(parts).decode("utf-8", "surrogateescape")


def names(directory: str) -> list[str]:
    """The sorted names in a directory; none if it can't be read."""
    try:
        return sorted(posix.listdir(directory))
    except OSError:
        return []
