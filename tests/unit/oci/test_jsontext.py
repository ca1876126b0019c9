"""JSON by the interpreter's own scanner and encoder is the JSON of the json module."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpushim.oci import jsontext
from hypothesis import given
from hypothesis import strategies as st

SHIM = Path(jsontext.__file__).parent.parent.parent

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_is_written_is_read_again(value: Any) -> None:
    text = jsontext.dumps(value)
    assert text.isascii()
    assert jsontext.loads(text) == value
    assert json.loads(text) == value
    assert text == json.dumps(value, separators=(",", ":"))


@given(st.text(alphabet='{}[]",:0123456789.eE+-tfn\\u \n\tauls', max_size=30))
def test_the_same_texts_are_json(text: str) -> None:
    try:
        expected = json.loads(text, strict=False)
    except ValueError:
        with pytest.raises(ValueError):
            jsontext.loads(text)
    else:
        assert repr(jsontext.loads(text)) == repr(expected)


def test_a_lone_surrogate_survives() -> None:
    """B16."""
    assert jsontext.loads('"A=\\ud800"') == "A=\ud800"
    assert jsontext.dumps("A=\ud800") == '"A=\\ud800"'


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "[1,]", '{"a":1,}', "1 2", "{}{}", "nul", '"', "[" * 100_000, '{"a":' * 100_000],
    ids=lambda text: text[:6],
)
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        jsontext.loads(text)


def test_the_same_where_json_is_not_imported() -> None:
    """As on the create path, where the scanner finds no exception that it could raise."""
    texts = ["", "{", "[1,", '"', "[1 2", '{"a" 1}', '{"a":{"b":[1,}}', "[nul]"]
    code = (
        f"import sys; sys.path.insert(0, {str(SHIM)!r})\n"
        "from gpushim.oci import jsonpatch, jsontext\n"
        "assert not [name for name in sys.modules if name.startswith('json')]\n"
        f"for text in {texts!r}:\n"
        "    for read in (jsontext.loads, lambda text: jsonpatch.patch(text, {'a': {'c': {}}})):\n"
        "        try:\n"
        "            print(read(text))\n"
        "        except ValueError:\n"
        "            pass\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_the_private_module_json_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "_json" and sys._getframe(1).f_globals["__name__"] == jsontext.__name__:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    scan, encode = jsontext._make_scanner(), jsontext._make_encoder()
    assert scan(' {"a": [1, "\x01"]}', 1) == ({"a": [1, "\x01"]}, 16)
    assert encode({"a": [1, "ä"]}) == '{"a":[1,"\\u00e4"]}'
