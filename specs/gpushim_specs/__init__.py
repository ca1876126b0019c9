"""JSON Schemas of everything gpushim reads and writes, as data, with one loader.

The schemas lie beside this module as ``NAME.json``.  Nothing on the create path
imports this package: validation costs a hundred milliseconds and belongs to
``gpushimctl refresh`` and ``gpushimctl config check``.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

__all__ = ["load", "names"]


def names() -> list[str]:
    """Return the names of all schemas, sorted."""
    entries = resources.files(__name__).iterdir()
    return sorted(e.name[: -len(".json")] for e in entries if e.name.endswith(".json"))


def load(name: str) -> dict[str, Any]:
    """Return the schema called ``name`` (without ``.json``).

    A fresh dictionary is made at each call, so a caller may change its copy.
    ``KeyError`` says that there is no such schema; a name can't point elsewhere.
    """
    if name not in names():
        raise KeyError(f"there is no schema {name!r}; known are {', '.join(names()) or 'none'}")
    text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
