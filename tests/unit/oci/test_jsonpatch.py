"""A patched text differs from the one before in the members that change, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushim.oci.jsonpatch import REMOVE, Before, Value, elements, patch, read
from hypothesis import given
from hypothesis import strategies as st

Change = dict[str, Any]

SPACE = st.text(" \t\r\n", max_size=3)
# Texts of values that no writer of JSON would give back as they are.
ODD = st.sampled_from(
    [
        "1e5", "1.0", "-0.0", "0.10", "1E+2", "123456789012345678901234567890", "true", "null",
        '"\\u0041"', '"\\/"', '"\\ud800"', '"\\ud83d\\ude00"', '"\udce9"', '"ä\u2028"', '""',
        '{ }', "[ ]", '[1 ,2]', '{"a" : {"b":[ {"c":1.50} ]}}', '{"x":1,"x":2}', '"a\\"]},b"',
    ]
)  # fmt: skip
NAMES = st.text(st.characters(exclude_characters='"\\', min_codepoint=32), max_size=5)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[str], must: str = "") -> str:
    """The text of an object of odd members, perhaps with one of the name `must`."""
    names = draw(st.lists(NAMES.filter(lambda name: name != must), max_size=4, unique=True))
    parts = [(name, draw(inner)) for name in names]
    if must:
        position = draw(st.integers(0, len(parts)))
        parts.insert(position, (must, draw(ODD)))
    text = ",".join(
        f"{draw(SPACE)}{json.dumps(name)}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}"
        for name, value in parts
    )
    return f"{draw(SPACE)}{{{text or draw(SPACE)}}}{draw(SPACE)}"


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, space: "[" + f"{space},{space}".join(items) + space + "]",
        st.lists(inner, max_size=4),
        SPACE,
    )


def keep(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
    return {}, []


def spans(text: str) -> dict[str, str]:
    return {name: text[begin:end] for name, (begin, end, _) in read(text).found.items()}


@given(objects(ODD))
def test_the_members_are_those_of_json(text: str) -> None:
    whole = read(text)
    assert whole.plain() == json.loads(text)
    for begin, end, value in whole.found.values():
        assert json.loads(text[begin:end]) == value


@given(objects(ODD), objects(ODD))
def test_members_that_are_read_deeper_are_those_of_json(text: str, inner: str) -> None:
    text = text.rstrip()[:-1] + ("," if ":" in text else "") + f'"deep" :{inner}}}'
    plain = json.loads(text)
    whole = read(text, {"deep": {}})
    assert whole.plain() == plain
    change: Change = {"deep": {"new": add("x")}, "new": add("y")}
    assert patch(text, change, whole) == patch(text, change)


@given(lists(ODD))
def test_the_elements_are_those_of_json(text: str) -> None:
    assert [json.loads(text[begin:end]) for begin, end in elements(text, 0, 100)] == json.loads(
        text
    )


@given(objects(ODD), lists(ODD), st.text(max_size=4))
def test_a_change_that_changes_nothing_gives_the_same_text(text: str, items: str, x: str) -> None:
    text = (
        text.rstrip()[:-1]
        + ("," if ":" in text else "")
        + f'"a list" :{items}, "an object":{{"l":[]}}}}'
    )
    change: Change = {
        "a list": keep,
        "absent": keep,
        "an object": {"l": keep, "m": keep, "n": {"x": keep}},
    }
    assert patch(text, change) is text


@given(objects(ODD), st.lists(st.text(max_size=5), min_size=1, max_size=3))
def test_other_members_survive_byte_for_byte(text: str, added: list[str]) -> None:
    """B16: whatever they hold."""
    before = spans(text)
    if isinstance(json.loads(text).get("list"), str | int | float | dict | bool):
        return
    result = patch(text, {"list": lambda present: ({}, added)})
    after = spans(result)
    assert json.loads(after.pop("list"))[-len(added) :] == added
    before.pop("list", None)
    assert after == before
    head = text[: len(text) - len(text.lstrip())]
    assert result.startswith(head + "{")
    assert result.endswith(text[len(text.rstrip()) - 1 :])


@given(lists(ODD), st.data())
def test_elements_are_replaced_removed_and_appended(items: str, data: st.DataObject) -> None:
    values = json.loads(items)
    places = st.integers(0, max(len(values) - 1, 0))
    news = st.just("new") | st.just(REMOVE) | st.lists(st.just("put in")).map(Before)
    replaced = data.draw(st.dictionaries(places, news, max_size=3))
    replaced = {k: v for k, v in replaced.items() if k < len(values)}
    result = patch(f'{{"l":{items}}}', {"l": lambda present: (replaced, ["end"])})
    expected = []
    for number, value in enumerate(values):
        new = replaced.get(number, value)
        if isinstance(new, Before):
            expected += [*new.values, value]
        elif new is not REMOVE:
            expected.append(new)
    expected.append("end")
    assert json.loads(result)["l"] == expected
    stay = [n for n in range(len(values)) if isinstance(replaced.get(n, Before([])), Before)]
    places_of = elements(items, 0, 100)
    kept = [items[places_of[n][0] : places_of[n][1]] for n in stay]
    start = result.index("[")
    assert [result[b:e] for b, e in elements(result, start, 100) if result[b:e] in kept] == kept


def add(*values: Any) -> Any:
    return lambda present: ({}, [value for value in values if value not in present])


@pytest.mark.parametrize(
    ("text", "change", "expected"),
    [
        ("{}", {"a": add(1)}, '{"a":[1]}'),
        ("{ }", {"a": add(1)}, '{"a":[1] }'),
        ('{"b" : 1 }', {"a": add(1)}, '{"b" : 1,"a":[1] }'),
        ('{"a":null}', {"a": add(1)}, '{"a":[1]}'),
        ('{"a":null}', {"a": add()}, '{"a":null}'),
        ('{"a":null}', {"a": {"b": add()}}, '{"a":null}'),
        ('{"a":null}', {"a": {"b": {"c": add(1)}}}, '{"a":{"b":{"c":[1]}}}'),
        ('{"a":{"b":null}}', {"a": {"b": {"c": add(1)}}}, '{"a":{"b":{"c":[1]}}}'),
        ('{"a":{}}', {"a": {"b": add(1), "c": add(2), "d": add()}}, '{"a":{"b":[1],"c":[2]}}'),
        ('{"a":[]}', {"a": add(1)}, '{"a":[1]}'),
        ('{"a":[ 1.0 , 2 ]}', {"a": add(3)}, '{"a":[ 1.0 , 2,3 ]}'),
        ('{"a":[1]}', {"a": add(1)}, '{"a":[1]}'),
        ('{"z":1,"a":[1]}', {"a": add(2), "y": add(3)}, '{"z":1,"a":[1,2],"y":[3]}'),
        ('{"a": 1.0 }', {"a": Value(1)}, '{"a": 1.0 }'),
        ('{"a": {"b":1} }', {"a": Value({"c": 2})}, '{"a": {"c":2} }'),
        ('{"a":null}', {"a": Value({"c": 2})}, '{"a":{"c":2}}'),
        ("{}", {"a": {"b": Value("x")}}, '{"a":{"b":"x"}}'),
        ('\n{"a":[1]} trailing', {"a": add(2)}, '\n{"a":[1,2]} trailing'),
    ],
)  # fmt: skip
def test_examples(text: str, change: Change, expected: str) -> None:
    """B01: null counts as absent, and what gains nothing is not made."""
    assert patch(text, change) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is not a JSON object"),
        ("[]", "the file is not a JSON object"),
        ("null", "the file is not a JSON object"),
        ("\ufeff{}", "the file is not a JSON object"),
        ("{", "broken"),
        ('{"a"}', "broken"),
        ('{"a":1', "broken"),
        ('{"a":1,}', "broken"),
        ('{"a":1 "b":2}', "broken"),
        ("{1:2}", "broken"),
        ('{"a":[1,]}', "broken|trailing comma"),
        ('{"a":[1', "Expecting ',' delimiter"),
        ('{"a":{}}', "a is not a list"),
        ('{"a":"x"}', "a is not a list"),
        ('{"a":false}', "a is not a list"),
        ('{"o":[]}', "o is not a JSON object"),
        ('{"o":0}', "o is not a JSON object"),
        ('{"o":{"l":1}}', "o.l is not a list"),
        ('{"o":{"l":[],"l":[]}}', "o.l is there twice"),
        ('{"a":[],"a":[]}', "a is there twice"),
    ],
)
def test_what_cannot_be_patched_says_where(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        patch(text, {"a": add(1), "o": {"l": add(1)}})
    assert any(words in str(caught.value) for words in said.split("|"))


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("place", ['{"x":%s}', '{"a":%s}', '{"o":%s}', '{"o":{"l":%s}}', "%s"])
def test_deep_nesting_is_a_value_error(opening: str, place: str) -> None:
    with pytest.raises(ValueError):
        patch(place % (opening * 100_000), {"a": add(1), "o": {"l": add(1)}})


def test_large_documents() -> None:
    """B17: four megabytes, of text and of white space."""
    for filler in (
        '"' + "x" * (4 << 20) + '"',
        "1" + " " * (4 << 20),
        "[" + "1," * (1 << 20) + "1]",
    ):
        text = f'{{"big":{filler},"a":[]}}'
        assert patch(text, {"a": add(1)}) == f'{{"big":{filler},"a":[1]}}'


@given(st.text(alphabet='{}[]":,ao1\\ nul', max_size=20))
def test_any_text_is_patched_or_a_value_error(text: str) -> None:
    try:
        result = patch(text, {"a": add(1), "o": {"l": add(1)}})
    except ValueError:
        return
    value = json.JSONDecoder(strict=False).raw_decode(result.lstrip())[0]
    assert 1 in value["a"]
    assert 1 in value["o"]["l"]
