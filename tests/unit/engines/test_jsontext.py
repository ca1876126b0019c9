"""One member of a JSON text is changed, and every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushim.engines.jsontext import drop, put, scan
from hypothesis import given
from hypothesis import strategies as st

ENTRY = {"path": "/usr/local/bin/gpushim"}
RUNTIME = ["runtimes", "gpushim"]

# Before, and after the entry was put in: each byte counts.
TEXTS = {
    "empty object": (
        "{}\n",
        '{\n  "runtimes": {\n    "gpushim": {\n      "path": "/usr/local/bin/gpushim"\n    }\n  }\n'
        "}\n",
    ),
    "on one line": (
        '{"a": 1}',
        '{"a": 1, "runtimes": {"gpushim": {"path": "/usr/local/bin/gpushim"}}}',
    ),
    "on one line, without blanks": (
        '{"a":[1,2]}\n',
        '{"a":[1,2],"runtimes":{"gpushim":{"path":"/usr/local/bin/gpushim"}}}\n',
    ),
    "four blanks": (
        '{\n    "b": 1.50,\n    "a": [1, 2]\n}\n',
        '{\n    "b": 1.50,\n    "a": [1, 2],\n    "runtimes": {"gpushim": '
        '{"path": "/usr/local/bin/gpushim"}}\n}\n',
    ),
    "four blanks, scalars": (
        '{\n    "b": 1e3\n}',
        '{\n    "b": 1e3,\n    "runtimes": {\n        "gpushim": {\n'
        '            "path": "/usr/local/bin/gpushim"\n        }\n    }\n}',
    ),
    "tabs and an entry": (
        '{\n\t"runtimes": {\n\t\t"x": {\n\t\t\t"path": "/x"\n\t\t}\n\t},\n\t"z": "ä\\u00e4"\n}\n',
        '{\n\t"runtimes": {\n\t\t"x": {\n\t\t\t"path": "/x"\n\t\t},\n\t\t"gpushim": {\n'
        '\t\t\t"path": "/usr/local/bin/gpushim"\n\t\t}\n\t},\n\t"z": "ä\\u00e4"\n}\n',
    ),
    "entries on one line": (
        '{\n  "runtimes": { "x": {"path": "/x"} },\n  "z" : 1 }',
        '{\n  "runtimes": { "x": {"path": "/x"}, "gpushim": {"path": "/usr/local/bin/gpushim"} },'
        '\n  "z" : 1 }',
    ),
    "an empty object of runtimes": (
        '{\n  "runtimes": {},\n  "z": 1\n}\n',
        '{\n  "runtimes": {\n    "gpushim": {\n      "path": "/usr/local/bin/gpushim"\n    }\n  },'
        '\n  "z": 1\n}\n',
    ),
    "line ends of Windows": (
        '{\r\n  "z": 1\r\n}\r\n',
        '{\r\n  "z": 1,\r\n  "runtimes": {\r\n    "gpushim": {\r\n'
        '      "path": "/usr/local/bin/gpushim"\r\n    }\r\n  }\r\n}\r\n',
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_an_entry_is_put_in_and_taken_out(name: str) -> None:
    """B58: whatever else is in the file stays, and so does its layout."""
    before, after = TEXTS[name]
    assert put(before, RUNTIME, ENTRY) == after
    assert put(after, RUNTIME, ENTRY) == after
    back = RUNTIME if "runtimes" in before else RUNTIME[:1]
    assert drop(after, back) == before


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ('{"runtimes":null}', RUNTIME, 1, '{"runtimes":{"gpushim":1}}'),
        ('{"a": {"b": null}}', ["a", "b", "c", "d"], 1, '{"a": {"b": {"c": {"d": 1}}}}'),
        ('{"d": "nvidia", "e": 1}', ["d"], "gpushim", '{"d": "gpushim", "e": 1}'),
        ('{"x": "}", "d" :\n 1}', ["d"], 2, '{"x": "}", "d" :\n 2}'),
        ('{"a": 1, "a": 2}', ["a"], 3, '{"a": 1, "a": 3}'),
        ('{"a": {"p": 1}}', ["a"], {"q": [2]}, '{"a": {"q": [2]}}'),
        ('{\n "a": {\n  "p": 1\n }\n}', ["a"], {"q": 2}, '{\n "a": {\n  "q": 2\n }\n}'),
        ('  {"a\\u0062": 1}', ["ab"], 2, '  {"a\\u0062": 2}'),
    ],
)
def test_put(before: str, path: list[str], value: Any, after: str) -> None:
    assert put(before, path, value) == after


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ('{"a": 1, "b": 2, "c": 3}', ["a"], '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ["b"], '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ["c"], '{"a": 1, "b": 2}'),
        ('{"a": 1, "b": 2, "a": 3}', ["a"], '{"b": 2}'),
        ('{"a": {"b": {}}}', ["a", "b"], '{"a": {}}'),
        ('{"a": 1}', ["b"], '{"a": 1}'),
        ('{"a": 1}', ["a", "b"], '{"a": 1}'),
    ],
)
def test_drop(before: str, path: list[str], after: str) -> None:
    assert drop(before, path) == after


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["runtimes", "default-runtime", "a", ""]), JSON),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_any_layout(data: dict[str, Any], indent: int | str | None, ascii_only: bool) -> None:
    """The text means what the same change of the data means, and the order stays."""
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    new = put(text, RUNTIME, ENTRY)
    runtimes = data.get("runtimes")
    expected = {
        **data,
        "runtimes": {**(runtimes if isinstance(runtimes, dict) else {}), "gpushim": ENTRY},
    }
    assert json.loads(new) == expected
    assert list(json.loads(new)) == list(expected)
    assert put(new, RUNTIME, ENTRY) == new
    assert json.loads(drop(new, ["runtimes"])) == {k: v for k, v in data.items() if k != "runtimes"}


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_scan_finds_each_member(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    span = scan(text, 0)
    assert span.end == len(text)
    found = {m.key: json.loads(text[m.value_start : m.end]) for m in span.members}
    assert found == data
