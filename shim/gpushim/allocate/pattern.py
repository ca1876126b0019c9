"""Shell patterns for names of GPU models; the standard library's fnmatch would import re.

Imported only for a wish that names a model.
"""

from __future__ import annotations

_VENDOR = "nvidia "


def is_model(pattern: str, model: str) -> bool:
    """Whether a model's name fits a pattern; capitals and the vendor's name don't matter."""
    pattern, model = pattern.lower(), model.lower()
    return matches(pattern, model) or matches(pattern, model.removeprefix(_VENDOR))


def is_plain(pattern: str) -> bool:
    """Whether a pattern is a text that stands for itself alone."""
    return not any(sign in pattern for sign in "*?[")


def matches(pattern: str, text: str) -> bool:
    """Whether all of `text` fits a pattern of *, ?, [set] and [!set] (POSIX XCU 2.14).

    As fnmatch has it: a bracket that nothing closes stands for itself, and so does a backslash. A
    star that has to take more than at first takes one character more, and no earlier star is looked
    at again, so a pattern costs its length times the text's at most.
    """
    place = at = 0
    star = held = -1
    while at < len(text):
        if pattern[place : place + 1] == "*":
            star, held = place, at
            place += 1
            continue
        after = _one(pattern, place, text[at])
        if after:
            place, at = after, at + 1
        elif star >= 0:
            held += 1
            place, at = star + 1, held
        else:
            return False
    return not pattern[place:].strip("*")


def _one(pattern: str, place: int, letter: str) -> int:
    """Where the pattern goes on if what is at `place` means `letter`; 0 if it does not."""
    sign = pattern[place : place + 1]
    if sign == "[":
        # The first character of a set may be the closing bracket itself.
        first = place + (2 if pattern[place + 1 : place + 2] == "!" else 1)
        end = pattern.find("]", first + 1)
        if end > 0:
            inside = _in_set(pattern[first:end], letter)
            return end + 1 if inside == (first == place + 1) else 0
    return place + 1 if sign in ("?", letter) and sign else 0


def _in_set(letters: str, letter: str) -> bool:
    place = 0
    while place < len(letters):
        if letters[place + 1 : place + 2] == "-" and place + 2 < len(letters):
            if letters[place] <= letter <= letters[place + 2]:
                return True
            place += 3
        else:
            if letters[place] == letter:
                return True
            place += 1
    return False
