"""Changes single members of a JSON text and leaves every other byte as it was.

An engine's configuration is somebody's own file: parsing it and printing it again would lose its
layout, so a member is cut out of or put into the text.
"""

from __future__ import annotations

import json
from typing import Any

_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()
_DEFAULT_INDENT = "  "


class Member:
    """One member of an object: the key, and where in the text key and value begin and end."""

    __slots__ = ("end", "key", "start", "value_start")

    def __init__(self, key: str, start: int, value_start: int, end: int) -> None:
        self.key = key
        self.start = start
        self.value_start = value_start
        self.end = end


class ObjectSpan:
    """Where an object lies in a text: of its opening brace, behind its closing one, its members."""

    __slots__ = ("end", "members", "start")

    def __init__(self, start: int, end: int, members: list[Member]) -> None:
        self.start = start
        self.end = end
        self.members = members

    def get(self, key: str) -> Member | None:
        """The member that counts: the last of that key, as for dockerd and Python."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def put(text: str, path: list[str], value: Any) -> str:
    """`text` with the member at `path` set to `value`.

    `text` must be valid JSON with an object at the top; whatever is on the way to the member and
    is missing or null becomes an object. A new member comes last, laid out as its neighbours are.
    """
    found = _find(text, path[:-1])
    if isinstance(found, int):
        # The way ends early: one member holds all the rest.
        for key in reversed(path[found + 1 :]):
            value = {key: value}
        return put(text, path[: found + 1], value)
    member = found.get(path[-1])
    if member is None:
        return _append(text, found, path[-1], value)
    old = text[member.value_start : member.end]
    if json.loads(old) == value:
        return text
    one_line = old[0] in "{[" and "\n" not in old
    shown = _layout(text, value, None if one_line else _own_line(text, member.start))
    return text[: member.value_start] + shown + text[member.end :]


def drop(text: str, path: list[str]) -> str:
    """`text` without the member at `path` (each, if the key is there twice)."""
    while True:
        found = _find(text, path[:-1])
        member = None if isinstance(found, int) else found.get(path[-1])
        if isinstance(found, int) or member is None:
            return text
        index = found.members.index(member)
        if index > 0:
            text = text[: found.members[index - 1].end] + text[member.end :]
        elif len(found.members) > 1:
            text = text[: member.start] + text[found.members[1].start :]
        else:
            text = text[: found.start] + "{}" + text[found.end :]


def _find(text: str, path: list[str]) -> ObjectSpan | int:
    """The object at `path`, or how many of the path's keys lead to an object."""
    span = scan(text, _skip(text, 0))
    for depth, key in enumerate(path):
        member = span.get(key)
        if member is None or text[member.value_start] != "{":
            return depth
        span = scan(text, member.value_start)
    return span


def scan(text: str, start: int) -> ObjectSpan:
    """The object whose opening brace is at `start` of a valid JSON text."""
    members = []
    index = _skip(text, start + 1)
    while text[index] != "}":
        if text[index] == ",":
            index = _skip(text, index + 1)
        key, end = _DECODER.raw_decode(text, index)
        value_start = _skip(text, _skip(text, end) + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        members.append(Member(key, index, value_start, value_end))
        index = _skip(text, value_end)
    return ObjectSpan(start, index + 1, members)


def _skip(text: str, index: int) -> int:
    while index < len(text) and text[index] in _BLANKS:
        index += 1
    return index


def _append(text: str, span: ObjectSpan, key: str, value: Any) -> str:
    """`text` with a new last member of the object at `span`."""
    comma, colon = _separators(text)
    if span.members:
        last = span.members[-1]
        indent = _own_line(text, last.start)
        neighbour = text[last.value_start : last.end]
        one_line = neighbour[0] in "{[" and "\n" not in neighbour
        shown = json.dumps(key) + colon + _layout(text, value, None if one_line else indent)
        between = comma if indent is None else "," + _newline(text) + indent
        return text[: last.end] + between + shown + text[last.end :]
    is_top = span.start == _skip(text, 0)
    if not is_top and "\n" not in text.strip(_BLANKS):
        shown = "{" + json.dumps(key) + colon + _layout(text, value, None) + "}"
    else:
        outer = "" if is_top else _line_blanks(text, span.start)
        inner = outer + _indent_unit(text)
        shown = _newline(text).join(
            ("{", inner + json.dumps(key) + colon + _layout(text, value, inner), outer + "}")
        )
    return text[: span.start] + shown + text[span.end :]


def _layout(text: str, value: Any, indent: str | None) -> str:
    """`value` as JSON in the style of `text`; `indent` is its line's, None for all on one line."""
    comma, colon = _separators(text)
    if indent is None:
        return json.dumps(value, separators=(comma, colon), ensure_ascii=False)
    shown = json.dumps(
        value, indent=_indent_unit(text), separators=(",", colon), ensure_ascii=False
    )
    return shown.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_blanks(text: str, index: int) -> str:
    """The blanks with which the line of `index` begins."""
    line = text[text.rfind("\n", 0, index) + 1 : index]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_line(text: str, index: int) -> str | None:
    """The blanks before `index`, if a line begins with nothing else; None if it does."""
    start = text.rfind("\n", 0, index) + 1
    line = text[start:index]
    return line if start and not line.strip(" \t") else None


def _indent_unit(text: str) -> str:
    """By how much the file indents: the blanks before its first member."""
    span = scan(text, _skip(text, 0))
    return (span.members and _own_line(text, span.members[0].start)) or _DEFAULT_INDENT


def _separators(text: str) -> tuple[str, str]:
    """How the text separates items that are on one line, and keys from values."""
    span = scan(text, _skip(text, 0))
    if span.members and text[span.members[0].value_start - 1] == ":":
        return (",", ":")
    return (", ", ": ")
