"""The configuration that holds for one installation, as the create path reads it.

Its values come from the snapshot, where refresh has put them. Which keys there are, and their
defaults, is `config_keys`'; reading TOML is `config_file`'s.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Value = bool | str | list[str] | dict[str, str]


class Config:
    """Effective values, and for each where it comes from.

    values: full name -> value as in the file (bool, str, list of str or table of str; a number is
    its text); sources: full name -> "default" or the path of the file that set it. Every key of
    the table has both.
    """

    __slots__ = ("sources", "values")

    def __init__(self, values: dict[str, Value], sources: dict[str, str]) -> None:
        self.values = values
        self.sources = sources

    def text(self, name: str) -> str:
        value = self.values[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is no text")
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is no flag")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.values[name]
        if not isinstance(value, list):
            raise TypeError(f"{name} is no list")
        return value

    def seconds(self, name: str) -> float:
        return seconds(self.text(name))

    def size(self, name: str) -> int:
        """In bytes."""
        return size(self.text(name))

    def to_json(self) -> dict[str, Any]:
        """{"values": {full name: value}, "sources": {full name: "default" or path}}"""
        return {"values": self.values, "sources": self.sources}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Config:
        """What `to_json` gave."""
        return cls(data["values"], data["sources"])


_SECONDS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0))
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def seconds(text: str) -> float:
    """A duration in seconds: a number and ms, s, m or h ("1.5s", "1.5 s").

    ValueError for anything else.
    """
    for unit, factor in _SECONDS:
        number = text[: -len(unit)].rstrip(" ")
        digits = number.replace(".", "", 1)
        # isdecimal alone would let digits of other scripts pass.
        if text.endswith(unit) and digits.isdecimal() and digits.isascii() and number[-1] != ".":
            return float(number) * factor
    raise ValueError(f"{text!r} is not a duration such as 500ms, 10s, 2m or 1h")


def size(text: str) -> int:
    """A size in bytes: a whole number and k, m, g or t, which may have b or ib behind it.

    Units are binary, as Docker's are: 8g, 8gb and 8GiB are the same. ValueError for anything else.
    """
    rest = text.lower()
    number = rest.rstrip("bgikmt ")
    unit = rest[len(number) :].strip()
    for ending in ("ib", "b"):
        # "b" alone is the unit byte; "ib" alone is nothing.
        if unit.endswith(ending) and (len(unit) > len(ending) or ending == "b"):
            unit = unit[: -len(ending)]
            break
    if unit not in _BYTES or not number.isdecimal() or not number.isascii():
        raise ValueError(f"{text!r} is not a size such as 512k, 10m or 8GiB")
    return int(number) * _BYTES[unit]
