"""The text of a spec file as plain data, and the line on which each of its values stands.

For refresh and the administration, never for a create: YAML takes its time.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from ..errors import GpushimError, why
from ..oci.files import read_descriptor
from ..oci.jsontext import BROKEN, scan, skip_space
from . import state

ENDINGS = state.ENDINGS

# The largest that vendors generate have some hundred kilobytes.
MAXIMUM_BYTES = 4 << 20
# YAML's aliases can make a few lines stand for more than any machine can hold.
_MAXIMUM_VALUES = 500_000
_LONGEST_NUMBER = 1000  # characters

# Member names and list positions that lead from the whole document to one of its values.
Place = tuple[str | int, ...]


class SpecError(GpushimError):
    """A spec file that cannot be used, told with its path and, where there is one, the line."""


class Document:
    """One spec file: its path, its text, and the data in it.

    is_yaml: whether it is YAML; else it is JSON.
    """

    __slots__ = ("data", "is_yaml", "path", "text")

    def __init__(self, path: str, text: str) -> None:
        """Raises SpecError for a text that is no JSON or YAML."""
        self.path = path
        self.text = text
        self.is_yaml = path.endswith(".yaml")
        self.data: Any = _yaml(path, text) if self.is_yaml else _json(path, text)

    def line(self, place: Place) -> int:
        """The line of the value at `place`, or of the innermost one around it that is there.

        Lines are counted from 1.
        """
        try:
            position = _yaml_line(self.text, place) if self.is_yaml else 0
            return position or _line_of(self.text, _json_position(self.text, place))
        except (ValueError, RecursionError, *BROKEN):
            return 1

    def error(self, place: Place, reason: str) -> SpecError:
        """What is wrong at `place`, as an error with file and line."""
        where = f"{shown(place)}: " if place else ""
        return SpecError(f"{self.path}, line {self.line(place)}: {where}{reason}.")


def shown(place: Place) -> str:
    """A place as people write it: devices[0].name"""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(parts).removeprefix(".")


def read(path: str) -> Document:
    """The spec file at `path`. Raises SpecError for what cannot be read or is no JSON or YAML."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise SpecError(f"{path} is not a regular file.")
            if mode & stat.S_IWOTH:
                raise SpecError(
                    f"{path} can be written by everybody, and what it says is done as root.",
                    f"chmod o-w {path}",
                )
            content = read_descriptor(descriptor, MAXIMUM_BYTES)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == 27:
            reason = f"it is larger than {MAXIMUM_BYTES >> 20} MiB"
        else:
            reason = why(error) if isinstance(error, OSError) else str(error)
        raise SpecError(f"{path} cannot be read: {reason}.") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{path}, line {line}: this is not UTF-8.") from None
    return Document(path, text)


def _json(path: str, text: str) -> Any:
    has_duplicate = False

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal has_duplicate
        made = dict(pairs)
        has_duplicate = has_duplicate or len(made) != len(pairs)
        return made

    try:
        data = json.loads(text, object_pairs_hook=members)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise SpecError(
            f"{path}, line {error.lineno}, column {error.colno}: this is no JSON ({reason})."
        ) from None
    except RecursionError:
        raise SpecError(f"{path} is nested too deeply.") from None
    except ValueError:
        raise SpecError(f"{path} has a number that is too large.") from None
    if has_duplicate:
        try:
            _refuse_twice(text, skip_space(text, 0))
        except _TwiceError as error:
            line = _line_of(text, error.position)
            raise SpecError(f"{path}, line {line}: {error.name!r} is there twice.") from None
        except RecursionError:
            raise SpecError(f"{path} is nested too deeply.") from None
    return data


class _TwiceError(ValueError):
    def __init__(self, name: str, position: int) -> None:
        super().__init__(name)
        self.name = name
        self.position = position


def _refuse_twice(text: str, index: int) -> int:
    """The end of the value at `index` in a JSON text that is known to be right.

    Each value is looked at once, however deeply it lies in others, since a create may wait for
    this. Raises _TwiceError for a name that is there twice.
    """
    opening = text[index]
    if opening not in "{[":
        return scan(text, index)[1]
    index = skip_space(text, index + 1)
    names: set[str] = set()
    while text[index] not in "}]":
        if opening == "{":
            begin = index
            name, index = scan(text, index)
            if name in names:
                raise _TwiceError(name, begin)
            names.add(name)
            index = skip_space(text, skip_space(text, index) + 1)
        index = skip_space(text, _refuse_twice(text, index))
        if text[index] == ",":
            index = skip_space(text, index + 1)
    return index + 1


def _json_position(text: str, place: Place) -> int:
    """Where the value at `place` begins in a JSON text that is known to be right."""
    index = skip_space(text, 0)
    for step in place:
        inner = _walk(text, index, step)
        if inner is None:
            break
        index = inner
    return index


def _walk(text: str, index: int, wanted: str | int) -> int | None:
    """Where one member or element of the value at `index` begins; None if it has none of it."""
    opening = text[index]
    if opening not in "{[":
        return None
    index = skip_space(text, index + 1)
    count = 0
    while text[index] not in "}]":
        step: str | int = count
        if opening == "{":
            step, index = scan(text, index)
            index = skip_space(text, skip_space(text, index) + 1)
        if step == wanted:
            return index
        _, index = scan(text, index)
        index = skip_space(text, index)
        if text[index] == ",":
            index = skip_space(text, index + 1)
        count += 1
    return None


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _yaml_loader() -> Any:
    """A loader of what YAML and JSON have in common, which refuses names that are there twice.

    Dates stay texts. libyaml, where it is there, is ten times as fast.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key, _ in node.value:
                if key.value.__hash__ and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"{key.value!r} is there twice", key.start_mark
                        )
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

        def construct_number(self, node: Any) -> Any:
            # Python reads hexadecimal ones of any length, but writes none of them out.
            if len(node.value) > _LONGEST_NUMBER:
                raise ValueError(f"line {node.start_mark.line + 1} has a number that is too large")
            return self.construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if not pair[0].endswith((":timestamp", ":value"))]
        for first, pairs in Loader.yaml_implicit_resolvers.items()
    }
    return Loader


def _yaml(path: str, text: str) -> Any:
    import yaml

    try:
        data = yaml.load(text, _yaml_loader())
        left = _MAXIMUM_VALUES - _count(data, _MAXIMUM_VALUES)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(f"{path}{where}: this is no YAML ({error.problem}).") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise SpecError(f"{path}: this is no YAML ({reason}).") from None
    except RecursionError:
        raise SpecError(f"{path} is nested too deeply.") from None
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise SpecError(f"{path} has a value that is no JSON ({error}).") from None
    if left <= 0:
        raise SpecError(f"{path} stands for more than {_MAXIMUM_VALUES} values.")
    return data


def _count(value: Any, limit: int) -> int:
    """How many values there are in `value`, each as often as it would be written; up to `limit`."""
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list):
        inner = value
    else:
        return 1
    count = 1
    for item in inner:
        if count >= limit:
            break
        count += _count(item, limit - count)
    return count


def _yaml_line(text: str, place: Place) -> int:
    import yaml

    node = yaml.compose(text, _yaml_loader())
    if node is None:
        return 1  # An empty document has no values.
    line = node.start_mark.line
    for step in place:
        found = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(step):
                    line, found = key.start_mark.line, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            found = node.value[step] if step < len(node.value) else None
            line = found.start_mark.line if found is not None else line
        if found is None:
            break
        node = found
    return int(line) + 1
