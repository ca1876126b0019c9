"""The JSON Schema of the configuration file, made from the table of keys."""

from __future__ import annotations

from typing import Any

from .config_keys import KEYS, SECTIONS
from .config_kinds import (
    CAPABILITIES,
    CDI_KIND,
    COUNT,
    DURATION,
    FILES,
    FLAG,
    INTEGER,
    LABELS,
    NUMBER,
    PATH,
    PATHS,
    PREFIXES,
    PROGRAMS,
    SIZE,
    TEXT,
    TEXTS,
    VARIABLES,
    Key,
)

# Paths have no control characters: "$" in a pattern would let a newline at the end pass.
_PATH = {"type": "string", "pattern": "^/", "not": {"pattern": "[\\u0000-\\u001f\\u007f]"}}
_KINDS: dict[str, dict[str, Any]] = {
    FLAG: {"type": "boolean"},
    TEXT: {"type": "string"},
    PATH: _PATH,
    DURATION: {"type": "string", "pattern": "^[0-9]*\\.?[0-9]+ *(ms|s|m|h)$"},
    SIZE: {"type": "string", "pattern": "^0*[1-9][0-9]* *([kKmMgGtT]([iI]?[bB])?|[bB])?$"},
    TEXTS: {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    PATHS: {"type": "array", "items": _PATH, "uniqueItems": True},
    PROGRAMS: {
        "type": "array",
        "items": {**_PATH, "pattern": "^(/.+|[^/]+)$"},
        "minItems": 1,
        "uniqueItems": True,
    },
    # vendor/class, as CDI's SPEC.md ("Kind") has it.
    CDI_KIND: {
        "type": "string",
        "pattern": "^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
    },
    # Docker Swarm's executor calls them all so, and the rest as the resource (hyphens, too).
    VARIABLES: {
        "type": "array",
        "items": {"type": "string", "pattern": "^DOCKER_RESOURCE_[A-Za-z0-9_.-]+$"},
        "uniqueItems": True,
    },
    PREFIXES: {
        "type": "array",
        "items": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./-]*$"},
        "uniqueItems": True,
    },
    NUMBER: {
        "type": ["number", "string"],
        "exclusiveMinimum": 0,
        "pattern": "^0*([1-9][0-9]*\\.?[0-9]*|0?\\.0*[1-9][0-9]*)$",
    },
    COUNT: {"type": ["integer", "string"], "minimum": 1, "pattern": "^0*[1-9][0-9]*$"},
    CAPABILITIES: {
        "type": "array",
        "items": {"type": "string", "pattern": "^(CAP_)?[A-Z][A-Z_]*$"},
        "uniqueItems": True,
    },
    # The kernel's own files to steer a group (cgroup.procs) are no limits.
    FILES: {
        "type": "object",
        "propertyNames": {"pattern": "^(?!cgroup\\.)[a-z]+(\\.[A-Za-z0-9_]+)+$"},
        "additionalProperties": {"type": ["string", "number"]},
    },
    INTEGER: {
        "type": ["integer", "string"],
        "minimum": -1000,
        "maximum": 1000,
        "pattern": "^-?[0-9]{1,4}$",
    },
    LABELS: {
        "type": "object",
        "propertyNames": {"minLength": 1},
        "additionalProperties": {"type": "integer", "minimum": 0},
    },
}


def key_schema(key: Key) -> dict[str, Any]:
    """The schema of one key's value."""
    made = dict(_KINDS[key.kind])
    if key.kind == PATH and key.default == "":
        made["pattern"] = "^(/|$)"
    if key.kind in (SIZE, NUMBER, COUNT, DURATION) and key.default == "":
        made["pattern"] = f"^$|{made['pattern']}"
    if key.allowed and key.kind == TEXTS:
        made["items"] = {"enum": list(key.allowed)}
    elif key.allowed:
        made["enum"] = list(key.allowed)
    return {"description": key.doc, **made, "default": key.default}


def schema() -> dict[str, Any]:
    """The schema of the whole file; specs/gpushim_specs/config.json holds the same."""
    sections: dict[str, Any] = {}
    for section, doc in SECTIONS.items():
        sections[section] = {
            "description": doc,
            "type": "object",
            "additionalProperties": False,
            "properties": {key.name: key_schema(key) for key in KEYS if key.section == section},
        }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gpushim's configuration, /etc/gpushim/config.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
    }
