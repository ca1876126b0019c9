"""Names of CDI devices: VENDOR/CLASS=DEVICE, and the annotations that hold them.

The rules are those of the Container Device Interface specification 1.1.0 ("Kind", "CDI Devices"),
as far as its reference implementation holds to them: it lets upper case and underscores pass in a
vendor, and so does this.
"""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALNUM = _LETTERS | frozenset("0123456789")
_INNER = _ALNUM | frozenset("_-.")
_INNER_OF_DEVICE = _INNER | frozenset(":")

_MAX_CLASS = 63
_MAX_VENDOR = 253
_MAX_LABEL = 63  # of one part of a DNS name (RFC 1035, 2.3.4)


def parse_qualified(text: str) -> tuple[str, str, str]:
    """Vendor, class and device of "vendor/class=device".

    Raises GpushimError for anything else, with what is wrong.
    """
    reason = problem(text)
    if reason:
        raise GpushimError(f"{text!r} is not the name of a CDI device: {reason}.", _HINT)
    kind, _, device = text.partition("=")
    vendor, _, class_ = kind.partition("/")
    return vendor, class_, device


def is_qualified(text: str) -> bool:
    """Whether it is the name of a device in full: vendor/class=device."""
    return not problem(text)


def problem(text: str) -> str:
    """Why it is not the name of a device in full; "" if it is."""
    kind, equals, device = text.partition("=")
    if not equals:
        return "it has no '='"
    return kind_problem(kind) or device_problem(device)


def kind_problem(kind: str) -> str:
    """Why it is no kind of devices ("vendor/class"); "" if it is."""
    vendor, slash, class_ = kind.partition("/")
    if not slash:
        return f"{kind!r} is not of the form vendor/class"
    return _part_problem("vendor", vendor) or _part_problem("class", class_)


def _part_problem(what: str, text: str) -> str:
    if not text:
        return f"its {what} is empty"
    if text[0] not in _LETTERS:
        return f"its {what}, {text!r}, does not begin with a letter"
    reason = _characters(what, text, _INNER)
    if reason:
        return reason
    if what == "class":
        return f"its class has more than {_MAX_CLASS} characters" if len(text) > _MAX_CLASS else ""
    if len(text) > _MAX_VENDOR:
        return f"its vendor has more than {_MAX_VENDOR} characters"
    if not all(0 < len(label) <= _MAX_LABEL for label in text.split(".")):
        return f"its vendor, {text!r}, is no DNS name"
    return ""


def device_problem(name: str) -> str:
    """Why it is no name of a device of a kind; "" if it is."""
    if not name:
        return "its device is empty"
    if name[0] not in _ALNUM:
        return f"its device, {name!r}, does not begin with a letter or digit"
    return _characters("device", name, _INNER_OF_DEVICE)


def _characters(what: str, text: str, inner: frozenset[str]) -> str:
    for character in text:
        if character not in inner:
            return f"its {what}, {text!r}, has the character {character!r}"
    if text[-1] not in _ALNUM:
        return f"its {what}, {text!r}, does not end with a letter or digit"
    return ""


_HINT = (
    "Names look like vendor.com/class=device; `gpushimctl cdi list` shows those of this machine."
)


def from_annotations(annotations: Mapping[str, object], prefixes: Sequence[str]) -> list[str]:
    """The devices that annotations ask for, each once.

    They are the comma-separated values of all keys that begin with one of `prefixes`, in the order
    of the keys. Raises GpushimError, naming the annotation, for what is no name of a device.
    """
    starts = tuple(prefixes)
    found: dict[str, None] = {}
    for key in sorted([key for key in annotations if key.startswith(starts)]):
        value = annotations[key]
        if not isinstance(value, str):
            continue  # The low-level runtime refuses it.
        for part in value.split(","):
            name = part.strip()
            reason = problem(name) if name else ""
            if reason:
                raise GpushimError(
                    f"The annotation {key!r} asks for {name!r}, which is not the name of a CDI "
                    f"device: {reason}.",
                    _HINT,
                )
            if name:
                found[name] = None
    return list(found)
