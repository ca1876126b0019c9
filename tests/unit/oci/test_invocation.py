"""Ids, and where a low-level runtime keeps its state. (The grammar: tests/unit/launcher.)"""

from __future__ import annotations

import pytest
from gpushim.oci.invocation import is_name, parse, state_root


@pytest.mark.parametrize(
    ("arguments", "family", "environment", "uid", "root"),
    [
        (["--root", "/r", "state", "c"], "runc", {}, 0, "/r"),
        (["--root=/r", "state", "c"], "crun", {"XDG_RUNTIME_DIR": "/x"}, 1000, "/r"),
        ([], "runc", {}, 0, "/run/runc"),
        ([], "crun", {}, 0, "/run/crun"),
        ([], "runc", {"XDG_RUNTIME_DIR": "/x"}, 0, "/run/runc"),
        ([], "crun", {"XDG_RUNTIME_DIR": "/x"}, 0, "/x/crun"),
        ([], "runc", {"XDG_RUNTIME_DIR": "/x"}, 1000, "/x/runc"),
        ([], "runc", {"XDG_RUNTIME_DIR": ""}, 1000, "/run/runc"),
    ],
)
def test_state_root(
    arguments: list[str], family: str, environment: dict[str, str], uid: int, root: str
) -> None:
    assert state_root(parse(arguments), family, environment, uid) == root


@pytest.mark.parametrize("name", ["c1", "a.b", "..a", "a+b", "A_-", "ä", " "])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "../x", "a/"])
def test_what_would_lead_elsewhere_is_no_name(name: str) -> None:
    assert not is_name(name)
