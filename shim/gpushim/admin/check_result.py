"""What one of doctor's checks found."""

from __future__ import annotations

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"


class Result:
    """What a check saw, in a sentence, and what to do about it ("" if nothing)."""

    __slots__ = ("advice", "seen", "status")

    def __init__(self, status: str, seen: str, advice: str = "") -> None:
        self.status = status
        self.seen = seen
        self.advice = advice


INSTALL = "Run `gpushimctl install`."
