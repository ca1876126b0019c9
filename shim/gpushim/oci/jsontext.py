"""JSON without the json package, whose import costs more than all else that a create imports.

The C scanner and encoder beneath it (module _json) are private, so their absence or another
signature leads to json itself: slower, with the same results.
"""

from __future__ import annotations

SPACE = " \t\n\r"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Context:
    """What _json.make_scanner reads from its context: json.JSONDecoder's attributes."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner wants the attribute, and empties it


def _make_scanner() -> Callable[[str, int], tuple[Any, int]]:
    try:
        from _json import make_scanner

        return make_scanner(_Context)  # type: ignore[arg-type]
    except (ImportError, AttributeError, TypeError):
        import json

        decoder: Any = json.JSONDecoder(strict=False)
        scan_once: Callable[[str, int], tuple[Any, int]] = decoder.scan_once
        return scan_once


def _make_encoder() -> Callable[[Any], str]:
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode = make_encoder(
            None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True
        )
        return lambda value: "".join(encode(value, 0))
    except (ImportError, AttributeError, TypeError):
        import json

        return json.JSONEncoder(separators=(",", ":")).encode


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not JSON")


scan: Callable[[str, int], tuple[Any, int]] = _make_scanner()
"""scan(text, index) -> (value, end): one JSON value that starts exactly at index.

Raises ValueError or one of BROKEN where none starts there or it is broken, RecursionError in one
that is nested too deeply.
"""

BROKEN = (StopIteration, SystemError)
"""What the C scanner raises beside ValueError for text that is no JSON.

Up to CPython 3.11 it looks for its exception among the modules that are imported, and without
json.decoder there it returns with none, which is a SystemError.
"""

_encode: Callable[[Any], str] = _make_encoder()


def dumps(value: Any) -> str:
    """`value` as compact JSON in ASCII; lone surrogates become their escapes."""
    if isinstance(value, (dict, list, tuple)):
        return _encode(value)
    return _encode([value])[1:-1]


def loads(text: str) -> Any:
    """The one JSON value in `text`.

    Raises ValueError for anything that is not one JSON value with white space around it.
    """
    start = skip_space(text, 0)
    try:
        value, end = scan(text, start)
    except BROKEN:
        raise ValueError(f"JSON breaks off or is broken behind character {start}") from None
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if skip_space(text, end) != len(text):
        raise ValueError(f"text follows the JSON value at character {end}")
    return value


def skip_space(text: str, index: int) -> int:
    """The first index at or after `index` that is not JSON white space."""
    length = len(text)
    while index < length and text[index] in SPACE:
        index += 1
    return index
