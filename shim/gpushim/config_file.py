"""Reads the configuration file: TOML, checked against its JSON Schema.

For refresh and the administration only: validating costs more than a whole create may take.
"""

from __future__ import annotations

import difflib
import importlib
import os
import stat
import sys
from collections.abc import Iterable
from typing import Any

from gpushim_specs import load
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError

from .config import Config
from .config_keys import SECTIONS, configured, table
from .config_kinds import COUNT, DURATION, NUMBER, SIZE, Key
from .errors import GpushimError, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .config import Value

# By name: a type checker that is told 3.10 looks for tomli, which 3.11 and later need not have.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

# A configuration is a few kilobytes; whatever is larger is not one.
_MAXIMUM_BYTES = 1 << 20
# Kinds whose texts have a pattern, and those of them that may be empty in a key without a default.
_PATTERNS = (COUNT, DURATION, NUMBER, SIZE)
_MAY_BE_EMPTY = (COUNT, DURATION, NUMBER, SIZE)
_HINT = "`gpushimctl config check` tells when the file is right."


def read(path: str) -> Config:
    """The configuration in the file at `path`; the defaults if there is no such file.

    Raises GpushimError, with the line and column or the key that is wrong and what is allowed.
    """
    try:
        with open(path, "rb", opener=_without_blocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise GpushimError(f"The configuration {path} is not a regular file.")
            content = file.read(_MAXIMUM_BYTES + 1)
    except FileNotFoundError:
        return configured()
    except OSError as error:
        raise GpushimError(f"The configuration {path} can't be read: {why(error)}.") from error
    if len(content) > _MAXIMUM_BYTES:
        raise GpushimError(f"The configuration {path} is larger than 1 MiB.")
    return configured(parse(content, path), source=path)


def _without_blocking(path: str, flags: int) -> int:
    """An opener that a FIFO does not hold up: each call of the runtime may wait for this."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse(content: bytes, path: str) -> dict[str, Value]:
    """Full name ("section.key") -> value for each key that `content` sets.

    `path` is what errors call the file. Raises GpushimError as `read` does.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise GpushimError(
            f"The configuration {path} is not UTF-8 text (line {line}).", _HINT
        ) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Its message ends with "(at line 3, column 7)".
        raise GpushimError(
            f"The configuration {path} is not valid TOML: {error}.", _HINT
        ) from error
    except RecursionError as error:
        raise GpushimError(f"The configuration {path} is nested too deeply.", _HINT) from error
    problems = list(_problems(data))
    if problems:
        raise GpushimError(f"In the configuration {path}, {'; '.join(problems)}.", _HINT)
    return {
        f"{section}.{name}": _value(value)
        for section, keys in data.items()
        for name, value in keys.items()
    }


def _value(value: Any) -> Value:
    """A value as `Config` has it: a number is its text."""
    if isinstance(value, dict):
        return {name: str(member) for name, member in value.items()}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    made: Value = value
    return made


def _problems(data: dict[str, Any]) -> Iterable[str]:
    """What is wrong with parsed TOML, each in a clause."""
    validator = Draft7Validator(load("config"))
    # By position and not by the path itself, whose parts are texts and numbers.
    for error in sorted(validator.iter_errors(data), key=lambda error: str(list(error.path))):
        yield from _describe(error)
    # A pattern's "$" lets a newline at the end pass, and a minimum lets numbers pass that are none;
    # the functions that read the values don't.
    for name, key in table().items():
        value = data.get(key.section)
        value = value.get(key.name) if isinstance(value, dict) else None
        endless = isinstance(value, float) and value - value != 0  # TOML's inf and nan
        if endless or (key.kind in _PATTERNS and isinstance(value, str) and value.endswith("\n")):
            yield f"{name} is {value!r}, but must be {allowed(key)}"


def _describe(error: ValidationError) -> Iterable[str]:
    instance: Any = error.instance
    where = [str(part) for part in error.absolute_path]
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"]) if isinstance(error.schema, dict) else []
        for name in instance:
            if name not in known:
                yield _unknown(where, str(name), known)
        return
    if len(where) < 2:
        yield f"[{'.'.join(where)}] must be a section with keys in it"
        return
    name = ".".join(where[:2])
    shown = repr(instance) if isinstance(instance, str) else str(instance)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    if error.validator == "uniqueItems":
        yield f"{name} names something twice: {shown}"
    else:
        verb = "is" if len(where) == 2 else "holds"
        yield f"{name} {verb} {shown}, but must be {allowed(table()[name])}"


def _unknown(where: list[str], name: str, known: list[str]) -> str:
    """A clause on a section or key that this version does not know."""
    if not where:
        kind, shown = "section", f"[{name}]"
        others = {full.partition(".")[2]: full for full in table()}
    else:
        kind, shown = "key", f"{where[0]}.{name}"
        others = {
            full.partition(".")[2]: full for full in table() if not full.startswith(where[0] + ".")
        }
    if name in others:
        section, _, key = others[name].partition(".")
        return f"{shown} is not a {kind}: {key} belongs into section [{section}]"
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"{shown} is not a {kind} of this version (did you mean {near[0]}?)"
    every = ", ".join(known if where else SECTIONS)
    return f"{shown} is not a {kind} of this version; there are {every}"


def allowed(key: Key) -> str:
    """What a key may hold, for people: "one of debug, info, warning, error"."""
    if key.allowed:
        values = ", ".join(key.allowed)
        return f"a list of {values}" if isinstance(key.default, list) else f"one of {values}"
    return {
        "flag": "true or false",
        "text": "a text",
        "path": "an absolute path" + (" or empty" if key.default == "" else ""),
        "duration": "a duration such as 500ms, 10s, 2m or 1h",
        "size": "a size such as 512k, 10m or 8GiB",
        "list of texts": "a list of texts",
        "list of paths": "a list of absolute paths",
        "list of programs": "a list of names or absolute paths with at least one in it",
        "CDI kind": "a kind such as nvidia.com/gpu",
        "list of variables": "a list of variables such as DOCKER_RESOURCE_GPU",
        "list of annotation prefixes": "a list of beginnings such as cdi.k8s.io/",
        "number": "a number above 0, such as 8 or 7.5",
        "whole number": "a whole number above 0",
        "list of capabilities": "a list of capabilities such as SYS_PTRACE",
        "table of cgroup files": "a table of cgroup files such as memory.high",
        "integer": "a whole number from -1000 to 1000",
        "table of numbers by label": "a table of labels, each with a whole number",
    }[key.kind] + (" or empty" if key.default == "" and key.kind in _MAY_BE_EMPTY else "")
