"""Texts of spec files, and the lines on which things stand."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpushim.cdi.document import MAXIMUM_BYTES, Document, Place, SpecError, read, shown
from hypothesis import given
from hypothesis import strategies as st

JSON = """{
  "a": [1,
    {"b": "x",
     "c": [[], {"d": null}]}],
  "e" :
     5
}"""
YAML = """\
# comment
a:
- 1
- b: x
  c:
  - []
  - d:
e:
  5
"""


@pytest.mark.parametrize(
    ("place", "json_line", "yaml_line"),
    [
        ((), 1, 2),
        (("a",), 2, 2),
        (("a", 0), 2, 3),
        (("a", 1), 3, 4),
        (("a", 1, "b"), 3, 4),
        (("a", 1, "c"), 4, 5),
        (("a", 1, "c", 1, "d"), 4, 7),
        (("e",), 6, 8),
        (("a", 1, "absent"), 3, 4),
        (("a", 7), 2, 2),
        (("absent", "x"), 1, 2),
        (("e", "deeper"), 6, 8),
    ],
)
def test_lines(place: Place, json_line: int, yaml_line: int) -> None:
    assert Document("x.json", JSON).line(place) == json_line
    assert Document("x.yaml", YAML).line(place) == yaml_line


def test_both_are_the_same_data() -> None:
    assert Document("x.json", JSON).data == Document("x.yaml", YAML).data


def test_an_error_names_file_line_and_place() -> None:
    error = Document("/d/x.json", JSON).error(("a", 1, "b"), "this is wrong")
    assert error.sentence == "/d/x.json, line 3: a[1].b: this is wrong."


def test_places_as_people_write_them() -> None:
    assert shown(("devices", 0, "containerEdits", "env", 3)) == "devices[0].containerEdits.env[3]"
    assert shown(()) == ""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "", "x.json, line 1, column 1: this is no JSON"),
        ("x.json", '{\n"a":}', "x.json, line 2, column 5: this is no JSON"),
        ("x.json", '{"a":1}\nx', "x.json, line 2, column 1: this is no JSON"),
        ("x.json", "// a\n{}", "line 1"),
        ("x.json", '{"a":1,}', "line 1"),
        ("x.json", "[" * 100_000, "nested too deeply"),
        ("x.json", "9" * 5000, "too large"),
        ("x.json", '{"a": {\n"b":1,\n"b":2}}', "x.json, line 3: 'b' is there twice"),
        ("x.json", '[{"b":1},\n{"b":1, "c": [{"q":1,\n"q":1}]}]', "line 3: 'q' is there twice"),
        ("x.yaml", "a: [\n", "x.yaml, line 2, column 1: this is no YAML"),
        ("x.yaml", "a: 1\nb: 2\na: 3\n", "line 3, column 1: this is no YAML ('a' is there twice)"),
        ("x.yaml", "a: {b: 1, b: 2}", "twice"),
        ("x.yaml", "\tx: 1", "line 1"),
        ("x.yaml", "--- 1\n--- 2\n", "another document"),
        ("x.yaml", "!!python/object/apply:os.system [id]", "no YAML"),
        ("x.yaml", "? {a: 1}\n: 2", "no YAML"),
        ("x.yaml", "? [a]\n: 2", "no YAML"),
        ("x.yaml", "a: \x01", "no YAML"),
        ("x.yaml", "&a [*a]", "nested too deeply"),
        ("x.yaml", "[" * 100_000, "no YAML"),
        ("x.yaml", "a: " + "9" * 5000, "no JSON"),
        ("x.yaml", "a: !!int x", "no JSON"),
        ("x.yaml", "*x", "no YAML"),
    ],
)
def test_what_is_no_json_or_yaml_is_told_with_the_line(name: str, text: str, said: str) -> None:
    with pytest.raises(SpecError) as wrong:
        Document(name, text)
    assert said in wrong.value.sentence


def test_aliases_that_stand_for_more_than_a_machine_can_hold() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(9)]
    with pytest.raises(SpecError, match="stands for more than"):
        Document("x.yaml", "\n".join(lines))


@pytest.mark.parametrize(
    "text",
    ["kind: 0x" + "f" * 4000, "? 0x" + "f" * 4000 + "\n: 1", "kind: " + "1:" * 5000 + "1"],
)
def test_a_number_of_yaml_that_python_does_not_write_out(text: str) -> None:
    """Such a file would end the reading of all others with a traceback."""
    with pytest.raises(SpecError, match="too large"):
        Document("x.yaml", text)


@pytest.mark.parametrize("inner", [",".join(["1"] * 100_000), ",".join(["[1]"] * 50_000)])
def test_a_name_that_is_there_twice_is_found_in_one_pass(inner: str) -> None:
    """Values were read once for each level that they lie in: minutes for a few megabytes."""
    text = '{"x":' + "[" * 400 + inner + "]" * 400 + ',"a":1,\n"a":1}'
    began = time.process_time()
    with pytest.raises(SpecError, match="line 2: 'a' is there twice"):
        Document("x.json", text)
    assert time.process_time() - began < 2


def test_merge_keys_and_anchors_are_yaml() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n"
    assert Document("x.yaml", text).data["b"] == {"x": 1, "y": 3}


def test_a_date_is_a_text() -> None:
    assert Document("x.yaml", "a: 2024-01-02\nb: 0666\n").data == {"a": "2024-01-02", "b": 0o666}


@given(st.text() | st.text("[]{}:,\"'&*!?-|> \n\tab1<"))
def test_any_text_is_a_document_or_an_error(text: str) -> None:
    for name in ("x.json", "x.yaml"):
        try:
            document = Document(name, text)
        except SpecError as error:
            assert name in error.sentence
            continue
        assert document.line(("a", 0, "b")) >= 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("abc:#-", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_each_value_has_a_line_behind_what_holds_it(value: Any) -> None:
    for name, text in (("x.json", json.dumps(value, indent=1)), ("x.yaml", yaml.safe_dump(value))):
        document = Document(name, text)
        assert document.data == value
        place: Place = ()
        line = document.line(place)
        inner = value
        while isinstance(inner, (dict, list)) and inner:
            step = next(reversed(inner)) if isinstance(inner, dict) else len(inner) - 1
            place = (*place, step)
            inner = inner[step]
            assert line <= document.line(place) <= text.count("\n") + 1
            line = document.line(place)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read(str(path)).data == {"a": 1}
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert read(str(link)).data == {"a": 1}


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    def sentence(name: str) -> str:
        with pytest.raises(SpecError) as wrong:
            read(str(tmp_path / name))
        assert str(tmp_path / name) in wrong.value.sentence
        return wrong.value.sentence

    assert "does not exist" in sentence("absent.json")
    (tmp_path / "utf.json").write_bytes(b'{\n"a": "\xff"}')
    assert "line 2: this is not UTF-8" in sentence("utf.json")
    os.mkfifo(tmp_path / "fifo.json")
    assert "not a regular file" in sentence("fifo.json")
    (tmp_path / "dir.json").mkdir()
    assert "not a regular file" in sentence("dir.json")
    (tmp_path / "large.json").write_bytes(b" " * (MAXIMUM_BYTES + 1))
    assert "larger than 4 MiB" in sentence("large.json")
    (tmp_path / "open.json").write_text("{}")
    (tmp_path / "open.json").chmod(0o666)
    assert "written by everybody" in sentence("open.json")
    with pytest.raises(SpecError, match="cannot be read"):
        read("/nul\0byte.json")
