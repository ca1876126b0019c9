"""Changes in a JSON text that leave every other byte as it is.

A spec is not parsed and written again: only the members that change are replaced in its text, so
that numbers, escapes, order, white space, duplicates that nobody looks at and bytes that are no
UTF-8 survive exactly.
"""

from __future__ import annotations

from gpushim.oci.jsontext import dumps, scan, skip_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # values of the list -> (index -> new value or REMOVE, values to append)
    ListChange = Callable[[list[Any]], tuple[dict[int, Any], list[Any]]]
    # member name -> what to do with it: go deeper, or change the list that it holds
    Patch = dict[str, "Patch | ListChange"]

REMOVE = object()


def patch(text: str, change: Patch) -> str:
    """`text`, a JSON object, with `change` applied; the same text if that changes nothing.

    Members that are absent or null are made where the change adds something to them. Raises
    ValueError, with the member's path, where the text is no JSON object or a member has another
    type than the change needs.
    """
    start = skip_space(text, 0)
    splices: list[tuple[int, int, str]] = []
    _patch_object(text, start, change, "", splices)
    if not splices:
        return text
    pieces = []
    position = 0
    for begin, end, new in sorted(splices, key=lambda splice: splice[0]):
        pieces += [text[position:begin], new]
        position = end
    return "".join(pieces) + text[position:]


def members(text: str, start: int, path: str = "") -> tuple[dict[str, tuple[int, int, Any]], int]:
    """The members of the JSON object that starts at `start`.

    Returns name -> (start, end, value), and the index at which another member can be inserted.
    Raises ValueError for anything but an object, and for a name that is there twice: which of the
    two counts differs between JSON readers, so nothing here may choose one.
    """
    if text[start : start + 1] != "{":
        raise ValueError(f"{path.rstrip('.') or 'the file'} is not a JSON object")
    found: dict[str, tuple[int, int, Any]] = {}
    insert = start + 1
    index = skip_space(text, start + 1)
    while text[index : index + 1] != "}":
        name, index = _scan(text, index, path)
        index = skip_space(text, index)
        if not isinstance(name, str) or text[index : index + 1] != ":":
            raise ValueError(f"a JSON object is broken at character {index}")
        begin = skip_space(text, index + 1)
        value, insert = _scan(text, begin, path)
        if name in found:
            raise ValueError(f"{path + name} is there twice")
        found[name] = (begin, insert, value)
        index = _next(text, insert, "}")
    return found, insert


def elements(text: str, start: int, path: str = "") -> tuple[list[tuple[int, int, Any]], int]:
    """The elements of the JSON list at `start`, as (start, end, value), and the list's end."""
    if text[start : start + 1] != "[":
        raise ValueError(f"{path} is not a list")
    found: list[tuple[int, int, Any]] = []
    index = skip_space(text, start + 1)
    while text[index : index + 1] != "]":
        value, end = _scan(text, index, path)
        found.append((index, end, value))
        index = _next(text, end, "]")
    return found, index + 1


def _scan(text: str, index: int, path: str) -> tuple[Any, int]:
    try:
        return scan(text, index)
    except StopIteration:
        raise ValueError(f"JSON breaks off or is broken at character {index}") from None
    except RecursionError:
        raise ValueError(f"{path.rstrip('.') or 'the file'} is nested too deeply") from None


def _next(text: str, end: int, close: str) -> int:
    """The start of the next element after one that ended at `end`, or the closing bracket."""
    index = skip_space(text, end)
    if text[index : index + 1] == ",":
        following = skip_space(text, index + 1)
        if text[following : following + 1] != close:
            return following
    elif text[index : index + 1] == close:
        return index
    raise ValueError(f"JSON is broken at character {index}")


def _patch_object(
    text: str, start: int, change: Patch, path: str, splices: list[tuple[int, int, str]]
) -> None:
    found, insert = members(text, start, path)
    added = []
    for name, part in change.items():
        begin, end, value = found.get(name, (0, 0, None))
        if value is None:
            made = _make(part)
            if made is None:
                continue
            if name in found:
                splices.append((begin, end, dumps(made)))
            else:
                added.append(f"{dumps(name)}:{dumps(made)}")
        elif isinstance(part, dict):
            _patch_object(text, begin, part, f"{path}{name}.", splices)
        else:
            _patch_list(text, begin, end, part, path + name, splices)
    if added:
        comma = "," if found else ""
        splices.append((insert, insert, comma + ",".join(added)))


def _patch_list(
    text: str,
    begin: int,
    end: int,
    change: ListChange,
    path: str,
    splices: list[tuple[int, int, str]],
) -> None:
    items, _ = elements(text, begin, path)
    replaced, appended = change([value for _, _, value in items])
    if not replaced and not appended:
        return
    kept = []
    for number, (item_begin, item_end, _) in enumerate(items):
        if number not in replaced:
            kept.append(text[item_begin:item_end])
        elif replaced[number] is not REMOVE:
            kept.append(dumps(replaced[number]))
    kept += [dumps(value) for value in appended]
    splices.append((begin, end, f"[{','.join(kept)}]"))


def _make(part: Patch | ListChange) -> Any:
    """What a member that is absent becomes; None if the change adds nothing to it."""
    if not isinstance(part, dict):
        _, appended = part([])
        return appended or None
    made = {}
    for name, inner in part.items():
        value = _make(inner)
        if value is not None:
            made[name] = value
    return made or None
