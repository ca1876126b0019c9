"""The JSON files by which Vulkan's and EGL's loaders find a driver's library.

Some distributions (Fedora, for one) write the library's own path into them, which leads nowhere
in a container. A plain name is looked for by the container's loader (Vulkan-Loader,
docs/LoaderDriverInterface.md, "Driver Manifest File Format").
"""

from __future__ import annotations

import json
from typing import Any

_LIBRARY = "library_path"


def portable(text: bytes) -> bytes | None:
    """The manifest with plain names of libraries; None if it has no others, or can't be read."""
    try:
        manifest = json.loads(text)
        if not _make_plain(manifest):
            return None
    except (ValueError, RecursionError):
        return None
    return (json.dumps(manifest, indent=4) + "\n").encode()


def _make_plain(value: Any) -> bool:
    """Changes what is beneath `value`; whether there was anything to change."""
    if isinstance(value, list):
        return sum(_make_plain(item) for item in value) > 0
    if not isinstance(value, dict):
        return False
    changed = sum(_make_plain(item) for item in value.values()) > 0
    library = value.get(_LIBRARY)
    if isinstance(library, str) and "/" in library:
        value[_LIBRARY] = library.rpartition("/")[2]
        changed = True
    return changed
