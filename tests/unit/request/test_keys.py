"""gpushim's own keys: their names in every place, and what their values mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from gpushim.errors import GpushimError
from gpushim.request.keys import KEYS, from_names, from_variables, parse, text_of, variable_name
from hypothesis import given
from hypothesis import strategies as st

SOURCE = "label gpushim.key=text"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("gpus", "2", {"count": 2}),
        ("gpus", " 2 ", {"count": 2}),
        ("gpus", "0", {"count": 0}),
        ("gpus", "void", {"count": 0}),
        ("gpus", "0,void", {"count": 0}),
        ("gpus", "device=void", {"count": 0}),
        ("gpus", "all", {"names": ["all"]}),
        ("gpus", "0,all", {"names": ["all"]}),
        ("gpus", "all,none", {"names": ["all"]}),
        ("gpus", "none", {"names": []}),
        ("gpus", "none,all", {"names": []}),
        ("gpus", "device=3", {"names": ["3"]}),
        ("gpus", "device=0,1", {"names": ["0", "1"]}),
        ("gpus", "0,1", {"names": ["0", "1"]}),
        ("gpus", "3,", {"names": ["3"]}),
        ("gpus", " 1 , 0 ,1", {"names": ["1", "0"]}),
        ("gpus", "GPU-7af7a99b", {"names": ["GPU-7af7a99b"]}),
        ("gpus", "MIG-7af7a99b", {"names": ["MIG-7af7a99b"]}),
        ("gpus", "MIG-GPU-7af7a99b/1/0", {"names": ["MIG-GPU-7af7a99b/1/0"]}),
        ("gpus", "0:1", {"names": ["0:1"]}),
        ("gpus", "nvidia.com/gpu=0", {"names": ["nvidia.com/gpu=0"]}),
        ("gpus", "vendor.com/net=a,GPU-1,0", {"names": ["vendor.com/net=a", "GPU-1", "0"]}),
        ("memory", "8g", 8 * GIB),
        ("memory", "8GiB", 8 * GIB),
        ("memory", "2gb", 2 * GIB),
        ("memory", "8192m", 8 * GIB),
        ("memory", "8 g", 8 * GIB),
        ("memory", "1048576", 1 << 20),
        ("memory", "1024k", 1 << 20),
        ("memory", "50%", "50%"),
        ("memory", " 050 %", "50%"),
        ("memory", "100%", "100%"),
        ("compute", "50%", 50),
        ("compute", "50", 50),
        ("compute", "1 %", 1),
        ("compute", "100%", 100),
        ("mode", "exclusive", "exclusive"),
        ("mode", "Shared", "shared"),
        ("model", "NVIDIA A100*", "NVIDIA A100*"),
        ("model", "*[HA]100*", "*[HA]100*"),
        ("compute-capability", ">=8.0", [">=", "8.0"]),
        ("compute-capability", ">= 8.0", [">=", "8.0"]),
        ("compute-capability", ">7", [">", "7.0"]),
        ("compute-capability", "<=12.0", ["<=", "12.0"]),
        ("compute-capability", "<9.0", ["<", "9.0"]),
        ("compute-capability", "!=8.6", ["!=", "8.6"]),
        ("compute-capability", "=8.0", ["=", "8.0"]),
        ("compute-capability", "==8.0", ["=", "8.0"]),
        ("compute-capability", "8.0", ["=", "8.0"]),
        ("compute-capability", "08.00", ["=", "8.0"]),
        ("mig", "1g.10gb", "1g.10gb"),
        ("mig", "1G.10GB", "1g.10gb"),
        ("mig", "1c.3g.40gb", "1c.3g.40gb"),
        ("mig", "1g.10gb+me", "1g.10gb+me"),
        ("mig", "1g.24gb+me.all", "1g.24gb+me.all"),
        ("mig", "1g.24gb+gfx", "1g.24gb+gfx"),
        ("mig", "2g.48gb-me", "2g.48gb-me"),
        ("mig", "2g.48gb+gfx-me", "2g.48gb+gfx-me"),
        ("priority", "0", 0),
        ("priority", "-5", -5),
        ("priority", "+5", 5),
        ("priority", "1000", 1000),
        ("wait", "0", 0.0),
        ("wait", "0s", 0.0),
        ("wait", "500ms", 0.5),
        ("wait", "30s", 30.0),
        ("wait", "10m", 600.0),
        ("wait", "1.5h", 5400.0),
        ("placement", "link", "link"),
        ("placement", "pack", "pack"),
        ("placement", "spread", "spread"),
        ("numa", "bind", "bind"),
        ("numa", "prefer", "prefer"),
        ("numa", "off", "off"),
        *[("optional", text, True) for text in ("true", "1", "yes", "on", "True")],
        *[("optional", text, False) for text in ("false", "0", "no", "off", "FALSE")],
        ("ticket", "0123456789abcdef", "0123456789abcdef"),
        ("ticket", "0123456789ABCDEF", "0123456789abcdef"),
    ],
)
def test_values(key: str, text: str, value: object) -> None:
    assert parse(key, text, SOURCE) == value
    # A ticket keeps values as texts.
    assert key == "gpus" or parse(key, text_of(key, value), SOURCE) == value


@pytest.mark.parametrize(
    ("key", "text", "hint"),
    [
        ("gpus", "", "Write how many (2), all,"),
        ("gpus", ",", "Write how many"),
        ("gpus", "device=", "Write how many"),
        ("gpus", "two", "Write how many"),
        ("gpus", "-1", "Write how many"),
        ("gpus", "1.5", "Write how many"),
        ("gpus", "GPU-", "Write how many"),
        ("gpus", "nvidia.com=0", "Write how many"),
        ("gpus", "nvidia.com/gpu=", "Write how many"),
        ("gpus", "/gpu=0", "Write how many"),
        ("gpus", "0:1:2", "Write how many"),
        ("gpus", "0;1", "Write commas between names"),
        ("gpus", "0 1", "Write commas between names"),
        ("gpus", "\u0661", "Write how many"),
        ("gpus", "count=2", "Write the number alone, in GPUSHIM_GPUS"),
        ("gpus", "ALL", "Write all in lower case."),
        ("gpus", "0,None", "Write none in lower case."),
        ("gpus", "0-3", "Ranges are not known: write each index, as in 0,1,2,3."),
        ("gpus", "100000", "No machine has that many GPUs."),
        ("gpus", "9" * 5000, "No machine has that many GPUs."),
        ("memory", "", "Write it as 8g, 8192m"),
        ("memory", "8x", "Write it as 8g, 8192m"),
        ("memory", "-8g", "Write it as 8g, 8192m"),
        ("memory", "1.5g", "Write it as 8g, 8192m"),
        ("memory", "g", "Write it as 8g, 8192m"),
        ("memory", "0", "Write it as 8g, 8192m"),
        ("memory", "0g", "Write it as 8g, 8192m"),
        ("memory", "1023k", "Write it as 8g, 8192m"),
        ("memory", "8", "A number alone means bytes: for GiB write 8g."),
        ("memory", "9" * 5000, "Write it as 8g, 8192m"),
        ("memory", "99999999999t", "Write it as 8g, 8192m"),
        ("memory", "0%", "Write it as 8g, 8192m"),
        ("memory", "101%", "Write it as 8g, 8192m"),
        ("memory", "%", "Write it as 8g, 8192m"),
        ("memory", "5.5%", "Write it as 8g, 8192m"),
        ("compute", "0", "Write it as 50%"),
        ("compute", "101%", "Write it as 50%"),
        ("compute", "-1", "Write it as 50%"),
        ("compute", "0.5", "Write it as 50%"),
        ("compute", "50%%", "Write it as 50%"),
        ("mode", "", "Write exclusive or shared."),
        ("mode", "private", "Write exclusive or shared."),
        ("model", " ", "Write the model's name as 'gpushimctl inventory'"),
        ("model", "x" * 201, "Write the model's name"),
        ("compute-capability", "", "Write it as 8.0 or >=8.0"),
        ("compute-capability", ">=", "Write it as 8.0 or >=8.0"),
        ("compute-capability", "8.", "Write it as 8.0 or >=8.0"),
        ("compute-capability", ".0", "Write it as 8.0 or >=8.0"),
        ("compute-capability", "8.0.1", "Write it as 8.0 or >=8.0"),
        ("compute-capability", "=>8.0", "Write it as 8.0 or >=8.0"),
        ("compute-capability", "~8.0", "Write it as 8.0 or >=8.0"),
        ("compute-capability", "sm_80", "Write it as 8.0 or >=8.0"),
        ("compute-capability", ">=8.0,<9.0", "Write it as 8.0 or >=8.0"),
        ("compute-capability", "80", "Write it with a point: 8.0."),
        ("mig", "", "Write it as 'nvidia-smi mig -lgip' shows it"),
        ("mig", "1g", "Write it as 'nvidia-smi mig"),
        ("mig", "10gb", "Write it as 'nvidia-smi mig"),
        ("mig", "0g.10gb", "Write it as 'nvidia-smi mig"),
        ("mig", "1g.10g", "Write it as 'nvidia-smi mig"),
        ("mig", "1g.10gb+", "Write it as 'nvidia-smi mig"),
        ("mig", "1g.10gb+1", "Write it as 'nvidia-smi mig"),
        ("mig", "1g.10gb+me.", "Write it as 'nvidia-smi mig"),
        ("mig", "1g.1c.10gb", "Write it as 'nvidia-smi mig"),
        ("mig", "1c.1c.1g.10gb", "Write it as 'nvidia-smi mig"),
        ("mig", "MIG 1g.10gb", "Write it as 'nvidia-smi mig"),
        ("priority", "", "Write a whole number from -1000 to 1000"),
        ("priority", "+", "Write a whole number"),
        ("priority", "--1", "Write a whole number"),
        ("priority", "1001", "Write a whole number"),
        ("priority", "-1001", "Write a whole number"),
        ("priority", "1.0", "Write a whole number"),
        ("priority", "high", "Write a whole number"),
        ("priority", "9" * 5000, "Write a whole number"),
        ("wait", "", "Write it as 30s, 10m or 1h, or 0"),
        ("wait", "10", "Write it as 30s"),
        ("wait", "-1s", "Write it as 30s"),
        ("wait", "1h30m", "Write it as 30s"),
        ("wait", "for ever", "Write it as 30s"),
        ("wait", "9" * 5000 + "h", "Write it as 30s"),
        ("placement", "near", "Write link, pack or spread."),
        ("numa", "on", "Write bind, prefer or off."),
        ("optional", "", "Write true or false."),
        ("optional", "maybe", "Write true or false."),
        ("ticket", "", "Write the 16 digits and letters"),
        ("ticket", "0123456789abcde", "Write the 16 digits and letters"),
        ("ticket", "0123456789abcdeg", "Write the 16 digits and letters"),
    ],
)
def test_values_that_are_refused(key: str, text: str, hint: str) -> None:
    with pytest.raises(GpushimError) as caught:
        parse(key, text, f"label gpushim.{key}=text")
    assert caught.value.sentence.startswith(f"'{text[:200]}")
    assert caught.value.sentence.endswith(f"(label gpushim.{key}=text).")
    assert caught.value.hint.startswith(hint)


def test_each_key_has_a_value_and_a_refusal_above() -> None:
    for test in (test_values, test_values_that_are_refused):
        rows = getattr(test, "pytestmark")[0].args[1]  # noqa: B009 - pytest adds it
        assert {row[0] for row in rows} == set(KEYS)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ([], {}),
        (["PATH=/", None, 5, "GPUSHIM_GPUS", "XGPUSHIM_GPUS=1", "gpushim_gpus=1"], {}),
        (["GPUSHIM_GPUS=2"], {"gpus": ("2", "environment GPUSHIM_GPUS=2")}),
        (
            ["GPUSHIM_COMPUTE_CAPABILITY= >=8.0 "],
            {
                "compute-capability": (
                    ">=8.0",
                    "environment GPUSHIM_COMPUTE_CAPABILITY= >=8.0 ",
                )
            },
        ),
        # The last counts, also if it takes back what the first says.
        (["GPUSHIM_GPUS=2", "GPUSHIM_GPUS=3"], {"gpus": ("3", "environment GPUSHIM_GPUS=3")}),
        (["GPUSHIM_GPUS=2", "GPUSHIM_GPUS="], {}),
        (["GPUSHIM_GPUS=", "GPUSHIM_MEMORY= "], {}),
        (["GPUSHIM_MODEL=a=b"], {"model": ("a=b", "environment GPUSHIM_MODEL=a=b")}),
    ],
)
def test_variables(environment: list[object], said: dict[str, tuple[str, str]]) -> None:
    assert from_variables(environment) == said


def test_every_key_has_a_variable() -> None:
    for key in KEYS:
        name = variable_name(key)
        assert name == f"GPUSHIM_{key.replace('-', '_').upper()}"
        assert from_variables([f"{name}=x"]) == {key: ("x", f"environment {name}=x")}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("GPUSHIM_MEMROY", "GPUSHIM_MEMORY"),
        ("GPUSHIM_GPU", "GPUSHIM_GPUS"),
        ("GPUSHIM_COMPUTE-CAPABILITY", "GPUSHIM_COMPUTE_CAPABILITY"),
        ("GPUSHIM_Gpus", "GPUSHIM_GPUS"),
        ("GPUSHIM_gpus", "GPUSHIM_GPUS"),
        ("GPUSHIM_QUEUE", ""),
        ("GPUSHIM_", ""),
        ("GPUSHIM_" + "X" * 5000, ""),
    ],
)
def test_variables_that_are_not_known(name: str, nearest: str) -> None:
    # Also with nothing in it: whoever wrote it meant something.
    for value in ("1", ""):
        with pytest.raises(GpushimError) as caught:
            from_variables([f"{name}={value}"])
        assert caught.value.sentence.startswith(f"The variable {name[:200]}")
        if nearest:
            assert caught.value.sentence.endswith(f"(did you mean {nearest}?).")
        else:
            assert caught.value.sentence.endswith("is not known to gpushim.")
        assert "GPUSHIM_COMPUTE_CAPABILITY, " in caught.value.hint


@pytest.mark.parametrize(
    ("prefix", "where"),
    [
        ("gpushim.", "annotation"),
        ("gpushim.", "label"),
        ("", "option of the device request"),
    ],
)
def test_names(prefix: str, where: str) -> None:
    pairs: list[tuple[str, object]] = [
        (f"{prefix}gpus", " 2 "),
        (f"{prefix}compute-capability", ">=8.0"),
        (f"{prefix}mode", ""),
        (f"{prefix}memory", "1g"),
        (f"{prefix}memory", "8g"),
        (f"{prefix}wait", "1s"),
        (f"{prefix}wait", " "),
    ]
    others: list[tuple[str, object]] = [("maintainer", 5), ("GPUSHIM.gpus", "x"), ("gpus", "9")]
    assert from_names([*pairs, *(others if prefix else [])], prefix, where) == {
        "gpus": ("2", f"{where} {prefix}gpus= 2 "),
        "compute-capability": (">=8.0", f"{where} {prefix}compute-capability=>=8.0"),
        "memory": ("8g", f"{where} {prefix}memory=8g"),
    }
    for value in (5, None, True, ["2"], {"2": 2}):
        with pytest.raises(GpushimError, match=f"The {where} {prefix}gpus has a value that is no"):
            from_names([(f"{prefix}gpus", value)], prefix, where)
    for key, nearest in (
        ("memroy", "memory"),
        ("Memory", "memory"),
        ("compute_capability", "compute-capability"),
        ("", None),
        ("io/x", None),
    ):
        with pytest.raises(GpushimError) as caught:
            from_names([(f"{prefix}{key}", "1")], prefix, where)
        guess = f" (did you mean {prefix}{nearest}?)" if nearest else ""
        shown = f"{prefix}{key}" if prefix else f"'{key}'"
        assert caught.value.sentence == f"The {where} {shown} is not known to gpushim{guess}."
        assert f"{prefix}memory, " in caught.value.hint


def test_a_key_that_is_not_known_has_no_value() -> None:
    with pytest.raises(GpushimError, match="did you mean gpus"):
        parse("gpu", "1", "label gpushim.gpu=1")


texts = st.text() | st.lists(
    st.sampled_from([*"0123456789,.:/=%+-<>!gGcmbks ", "GPU-", "MIG-", "gb", "all", "ms", "void"])
).map("".join)


@given(st.sampled_from(KEYS), texts)
def test_no_value_raises_anything_but_our_error(key: str, text: str) -> None:
    try:
        value: Any = parse(key, text, SOURCE)
    except GpushimError as error:
        assert error.hint
        assert str(error).isprintable()
    else:
        assert json.loads(json.dumps(value)) == value


@given(st.lists(st.tuples(st.sampled_from(KEYS) | st.text(), texts | st.integers() | st.none())))
def test_no_names_raise_anything_but_our_error(pairs: list[tuple[str, object]]) -> None:
    prefixed = [(f"gpushim.{name}", value) for name, value in pairs]
    variables = [f"{variable_name(name)}={value}" for name, value in pairs]
    calls: list[Callable[[], dict[str, tuple[str, str]]]] = [
        lambda: from_names(prefixed, "gpushim.", "label"),
        lambda: from_names(pairs, "", "option of the device request"),
        lambda: from_variables(variables),
    ]
    for call in calls:
        try:
            said = call()
        except GpushimError as error:
            assert str(error).isprintable()
        else:
            assert set(said) <= set(KEYS)
            assert all(text == text.strip() and text for text, _ in said.values())
