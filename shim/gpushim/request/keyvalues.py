"""What the values of gpushim's own keys mean.

Each function reads one key's text, without blanks around it, into plain data. They raise
ValueError for what can't be read, or Unfit with a hint that fits it.
"""

from __future__ import annotations

from gpushim import config
from gpushim.request.nvidia import brief, visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPERATORS = (">=", "<=", "!=", "==", ">", "<", "=")
LAST_PRIORITY = 1000
LONGEST_MODEL = 200

_SMALLEST_MEMORY = 1 << 20
_LARGEST_MEMORY = 1 << 62
_LONGEST_COUNT = 4  # digits
_LONGEST_WAIT = 1e9
_TICKET_LENGTH = 16
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


class Unfit(ValueError):
    """A value that can't be read, with a hint that fits it better than the form of its key."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def gpus(text: str) -> dict[str, Any]:
    """How many or which, as `keys.parse` has it; `all`, `none` and `void` as NVIDIA's variable."""
    if _is_number(text):
        if len(text) > _LONGEST_COUNT:
            raise Unfit("No machine has that many GPUs.")
        return {"count": int(text)}
    names = [part.strip() for part in text.removeprefix("device=").split(",")]
    names = [name for name in names if name]
    if not names:
        raise ValueError
    for name in names:
        if not is_name(name):
            raise Unfit(how_to_name(name))
    devices = visible_devices(",".join(names))
    return {"count": 0} if devices is None else {"names": devices}


def is_name(name: str) -> bool:
    """Whether it has the form of a GPU's, a MIG device's or a CDI device's name, or is a word."""
    if name in ("all", "none", "void"):
        return True
    if name.startswith(("GPU-", "MIG-")):
        return len(name) > len("GPU-")
    kind, equals, device = name.partition("=")
    if equals:
        vendor, slash, group = kind.partition("/")
        return bool(vendor and slash and group and device)
    numbers = name.split(":")
    return len(numbers) <= 2 and all(_is_number(number) for number in numbers)


def how_to_name(name: str) -> str:
    """What to do about a name that is none, by the form that it has; "" if that tells nothing."""
    if name != name.lower() and name.lower() in ("all", "none", "void"):
        return f"Write {name.lower()} in lower case."
    if name.strip("'\"") != name:
        return "Leave the quotes out: Docker and others hand them on as a part of the value."
    if any(mark in name for mark in " ;"):
        return "Write commas between names, as in 0,1."
    word, equals, value = name.partition("=")
    if equals and word == "device":
        return f"Write {brief(value)} alone."
    if equals and word in ("count", "gpus"):
        return "Write the number alone, in GPUSHIM_GPUS or as gpushim.gpus."
    if name[:4] != name[:4].upper() and name[:4].upper() in ("GPU-", "MIG-"):
        return f"UUIDs begin with {name[:4].upper()} in upper case."
    first, dash, last = name.partition("-")
    if dash and _is_number(first) and _is_number(last):
        return "Ranges are not known: write each index, as in 0,1,2,3."
    return ""


def percent(text: str) -> int:
    """1 to 100, with or without the sign."""
    number = text.removesuffix("%").rstrip()
    if not _is_number(number) or len(number) > 3 or not 1 <= int(number) <= 100:
        raise ValueError
    return int(number)


def memory(text: str) -> int | str:
    """Bytes, or a percentage as text ("50%"): of what is each GPU's."""
    if text.endswith("%"):
        return f"{percent(text)}%"
    amount = config.size(text)
    if _is_number(text) and 0 < amount < _SMALLEST_MEMORY:
        raise Unfit(f"A number alone means bytes: for GiB write {amount}g.")
    if not _SMALLEST_MEMORY <= amount <= _LARGEST_MEMORY:
        raise ValueError
    return amount


def word(text: str, known: tuple[str, ...]) -> str:
    """One of a few words; capitals make no difference."""
    lower = text.lower()
    if lower not in known:
        raise ValueError
    return lower


def model(text: str) -> str:
    """A shell pattern, of which any text is one."""
    if not text or len(text) > LONGEST_MODEL:
        raise ValueError
    return text


def compute_capability(text: str) -> list[str]:
    """[operator, "MAJOR.MINOR"]; no operator means =, and 8 means 8.0."""
    operator = next((sign for sign in OPERATORS if text.startswith(sign)), "")
    major, dot, minor = text[len(operator) :].strip().partition(".")
    minor = minor if dot else "0"
    for number in (major, minor):
        if not _is_number(number) or len(number) > 2:
            raise ValueError
    if int(major) >= 20 and not dot:
        raise Unfit(f"Write it with a point: {major[:-1]}.{major[-1]}.")
    return [operator.replace("==", "=") or "=", f"{int(major)}.{int(minor)}"]


def mig(text: str) -> str:
    """A profile in NVIDIA's spelling: [COMPUTEc.]SLICESg.MEMORYgb and attributes (+me, -me, +gfx).

    Which profiles there are depends on the GPU, so only the form is looked at (NVIDIA's MIG user
    guide, "Profile names").
    """
    profile = text.lower()
    size = profile
    for sign in "+-":
        size = size.partition(sign)[0]
    slices = size.split(".")
    if len(slices) == 3 and not _is_slice(slices.pop(0), "c"):
        raise ValueError
    if len(slices) != 2 or not _is_slice(slices[0], "g") or not _is_slice(slices[1], "gb"):
        raise ValueError
    attributes = profile[len(size) :].replace("-", "+").split("+")[1:]
    for attribute in attributes:
        if not attribute.isascii() or not all(part.isalpha() for part in attribute.split(".")):
            raise ValueError
    return profile


def _is_slice(text: str, unit: str) -> bool:
    number = text[: -len(unit)]
    return text.endswith(unit) and _is_number(number) and len(number) <= 4 and int(number) > 0


def priority(text: str) -> int:
    """A whole number, signed, with a bound so that nobody has to outbid without end."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not _is_number(digits) or len(digits) > 4 or int(digits) > LAST_PRIORITY:
        raise ValueError
    return int(text)


def wait(text: str) -> float:
    """Seconds."""
    duration = 0.0 if text == "0" else config.seconds(text)
    if duration > _LONGEST_WAIT:
        raise ValueError
    return duration


def ticket(text: str) -> str:
    """16 hexadecimal digits."""
    lower = text.lower()
    if len(lower) != _TICKET_LENGTH or lower.strip("0123456789abcdef"):
        raise ValueError
    return lower


def optional(text: str) -> bool:
    """A flag."""
    return word(text, _TRUE + _FALSE) in _TRUE
