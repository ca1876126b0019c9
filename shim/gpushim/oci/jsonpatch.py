"""Changes in a JSON text that leave every other byte as it is.

A spec is not parsed and written again: only the members that change are replaced in its text, so
that numbers, escapes, order, white space, duplicates that nobody looks at and bytes that are no
UTF-8 survive exactly.
"""

from __future__ import annotations

from gpushim.oci.jsontext import BROKEN, SPACE, dumps, scan, skip_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # values of the list -> (index -> new value, REMOVE or Before, values to append)
    ListChange = Callable[[list[Any]], tuple[dict[int, Any], list[Any]]]
    # member name -> what to do with it: go deeper, change the list that it holds, or set it
    Patch = dict[str, "Patch | ListChange | Value"]
    # member name -> which of its own members are to be read deeper
    Shape = dict[str, "Shape"]

REMOVE = object()


class Before:
    """Values that are put in before an element of a list, which stays or becomes `instead`."""

    __slots__ = ("instead", "values")

    def __init__(self, values: list[Any], instead: Any = None) -> None:
        self.values = values
        self.instead = instead


class Value:
    """What a member becomes as a whole, whatever it was."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Members:
    """A JSON object in a text: its members, and where another one can be put in.

    found: name -> (start, end, value); the value of a member that was read deeper is Members.
    """

    __slots__ = ("found", "insert")

    def __init__(self, found: dict[str, tuple[int, int, Any]], insert: int) -> None:
        self.found = found
        self.insert = insert

    def plain(self) -> dict[str, Any]:
        """The object as json.loads gives it."""
        return {
            name: value.plain() if isinstance(value, Members) else value
            for name, (_, _, value) in self.found.items()
        }


def patch(text: str, change: Patch, whole: Members | None = None) -> str:
    """`text`, a JSON object, with `change` applied; the same text if that changes nothing.

    whole: its members, if somebody has read them already. Members that are absent or null are made
    where the change adds something to them. Raises ValueError, with the member's path, where the
    text is no JSON object or a member has another type than the change needs.
    """
    splices: list[tuple[int, int, str]] = []
    _patch_object(text, whole or read(text), change, "", splices)
    if not splices:
        return text
    pieces = []
    position = 0
    for begin, end, new in sorted(splices, key=lambda splice: splice[0]):
        pieces += [text[position:begin], new]
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def read(text: str, deeper: Shape | None = None) -> Members:
    """The members of the object that `text` holds; those of `deeper` with their own members."""
    return members(text, skip_space(text, 0), "", deeper or {})[0]


def members(text: str, start: int, path: str, deeper: Shape) -> tuple[Members, int]:
    """The members of the JSON object that starts at `start`, and the object's end.

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
        value: Any
        if name in deeper and text[begin : begin + 1] == "{":
            value, insert = members(text, begin, f"{path}{name}.", deeper[name])
        else:
            value, insert = _scan(text, begin, path)
        if name in found:
            raise ValueError(f"{path + name} is there twice")
        found[name] = (begin, insert, value)
        index = _next(text, insert, "}")
    return Members(found, insert), index + 1


def elements(text: str, start: int, count: int) -> list[tuple[int, int]]:
    """Where the first `count` elements of the JSON list at `start` begin and end."""
    found: list[tuple[int, int]] = []
    index = skip_space(text, start + 1)
    while text[index : index + 1] != "]" and len(found) < count:
        _, end = _scan(text, index, "")
        found.append((index, end))
        # As engines write lists; a list may have thousands of elements.
        if text[end : end + 2] == ',"':
            index = end + 1
        else:
            index = _next(text, end, "]")
    return found


def _scan(text: str, index: int, path: str) -> tuple[Any, int]:
    try:
        return scan(text, index)
    except BROKEN:
        raise ValueError(f"JSON breaks off or is broken behind character {index}") from None
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
    text: str, whole: Members, change: Patch, path: str, splices: list[tuple[int, int, str]]
) -> None:
    added = []
    for name, part in change.items():
        begin, end, value = whole.found.get(name, (0, 0, None))
        if value is None:
            made = _make(part)
            if made is None:
                continue
            if name in whole.found:
                splices.append((begin, end, dumps(made)))
            else:
                added.append(f"{dumps(name)}:{dumps(made)}")
        elif isinstance(part, Value):
            present = value.plain() if isinstance(value, Members) else value
            if present != part.value:
                splices.append((begin, end, dumps(part.value)))
        elif isinstance(part, dict):
            inner = value
            if not isinstance(inner, Members):
                inner = members(text, begin, f"{path}{name}.", {})[0]
            _patch_object(text, inner, part, f"{path}{name}.", splices)
        elif isinstance(value, list):
            _patch_list(text, (begin, end), value, part, splices)
        else:
            raise ValueError(f"{path}{name} is not a list")
    if added:
        comma = "," if whole.found else ""
        splices.append((whole.insert, whole.insert, comma + ",".join(added)))


def _patch_list(
    text: str,
    place: tuple[int, int],
    values: list[Any],
    change: ListChange,
    splices: list[tuple[int, int, str]],
) -> None:
    begin, end = place
    replaced, appended = change(values)
    if not replaced and not appended:
        return
    removed = 0
    if replaced:
        # Without a replacement nothing has to be taken apart.
        places = elements(text, begin, max(replaced) + 2)
        removed = sum(value is REMOVE for value in replaced.values())
        _replace_elements(places, len(values), replaced, splices)
    if appended:
        behind = end - 1
        while text[behind - 1] in SPACE:
            behind -= 1
        comma = "," if len(values) > removed else ""
        splices.append((behind, behind, comma + ",".join([dumps(new) for new in appended])))


def _replace_elements(
    places: list[tuple[int, int]],
    count: int,
    replaced: dict[int, Any],
    splices: list[tuple[int, int, str]],
) -> None:
    """Splices for elements that change, with one comma each for those that come or go.

    count: of all elements, of which `places` has those up to the one behind the last change.
    """
    last_kept = count - 1
    while replaced.get(last_kept) is REMOVE:
        last_kept -= 1
    for number, value in replaced.items():
        begin, end = places[number]
        if isinstance(value, Before):
            splices.append((begin, begin, "".join([f"{dumps(new)}," for new in value.values])))
            if value.instead is not None:
                splices.append((begin, end, dumps(value.instead)))
        elif value is not REMOVE:
            splices.append((begin, end, dumps(value)))
        elif number < last_kept:
            splices.append((begin, places[number + 1][0], ""))
        else:
            # Nothing is kept behind it, so the comma before it goes, too.
            splices.append((places[number - 1][1] if number else begin, end, ""))


def _make(part: Patch | ListChange | Value) -> Any:
    """What a member that is absent becomes; None if the change adds nothing to it."""
    if isinstance(part, Value):
        return part.value
    if not isinstance(part, dict):
        _, appended = part([])
        return appended or None
    made = {}
    for name, inner in part.items():
        value = _make(inner)
        if value is not None:
            made[name] = value
    return made or None
