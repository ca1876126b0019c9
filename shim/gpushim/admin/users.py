"""Names of users, for what is printed."""

from __future__ import annotations

import pwd


def user_name(uid: int) -> str:
    """The name of a user; "uid 1234" for one that has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
