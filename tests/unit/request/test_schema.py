"""The JSON Schema of a request is that of what Request.to_json gives."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from gpushim.errors import GpushimError
from gpushim.request.extras import FEATURES
from gpushim.request.keys import KEYS, parse
from gpushim.request.nvidia import CAPABILITIES
from gpushim.request.request import Request
from gpushim_specs import load
from hypothesis import given
from hypothesis import strategies as st

SCHEMA = load("request")
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def valid(data: object) -> bool:
    """Whether it fits as it is read back from a file, where lists and tuples are the same."""
    return bool(VALIDATOR.is_valid(json.loads(json.dumps(data))))


def test_it_is_a_schema_of_all_that_there_is() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    properties = SCHEMA["properties"]
    assert set(properties) == set(Request.__slots__) == set(SCHEMA["required"])
    assert set(properties["keys"]["properties"]) == set(KEYS) - {"gpus"}
    assert properties["capabilities"]["items"]["enum"] == list(CAPABILITIES)
    assert properties["features"]["items"]["enum"] == list(FEATURES.values())


TEXTS = {
    "memory": ["8g", "50%", "100%", "1m", "9%"],
    "compute": ["1", "100%"],
    "mode": ["exclusive", "shared"],
    "model": ["*", "NVIDIA A100*"],
    "compute-capability": [">=8.0", "9", "!=12.0"],
    "mig": ["1g.10gb", "1c.3g.40gb", "1g.24gb+me.all", "2g.48gb-me"],
    "priority": ["-1000", "1000", "0"],
    "wait": ["0", "1.5s", "10m"],
    "placement": ["link", "pack", "spread"],
    "numa": ["bind", "prefer", "off"],
    "optional": ["yes", "no"],
    "ticket": ["0123456789abcdef", "FFFFFFFFFFFFFFFF"],
}


@pytest.mark.parametrize(
    ("key", "text"), [(k, text) for k, texts in TEXTS.items() for text in texts]
)
def test_requests_with_keys(key: str, text: str) -> None:
    request = Request([], ["compute"], {"devices": f"label gpushim.{key}={text}"})
    request.count = 1
    request.keys[key] = parse(key, text, "label")
    assert valid(request.to_json())
    request.keys[key] = [None]
    assert not valid(request.to_json())


def test_each_key_has_texts() -> None:
    assert {"gpus", *TEXTS} == set(KEYS)


names = st.text(min_size=1).filter(lambda name: name.strip() == name)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    devices = draw(st.lists(names, unique=True))
    capabilities = draw(st.lists(st.sampled_from(CAPABILITIES), unique=True))
    request = Request(devices, sorted(capabilities), {"devices": draw(names)})
    request.count = draw(st.none() | st.integers(0, 9999))
    request.driver, request.open = draw(st.booleans()), draw(st.booleans())
    request.cdi = draw(st.sampled_from([[], ["vendor.com/net=a", "nvidia.com/gpu=0:1"]]))
    request.requirements = draw(
        st.sampled_from(
            [[], [("NVIDIA_REQUIRE_CUDA", "cuda>=12.4"), ("CUDA_VERSION", "cuda>=1.0")]]
        )
    )
    request.features = draw(st.lists(st.sampled_from(list(FEATURES.values())), unique=True))
    request.imex_channels = draw(st.lists(st.integers(0, 2047), unique=True))
    request.mig_config, request.mig_monitor = draw(st.booleans()), draw(st.booleans())
    return request


@given(requests(), st.dictionaries(st.sampled_from(KEYS), st.text()))
def test_every_request_fits(request: Request, texts: dict[str, str]) -> None:
    for key, text in texts.items():
        try:
            request.keys[key] = parse(key, text, "label")
        except GpushimError:
            continue
    request.keys.pop("gpus", None)
    assert valid(request.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"devices": None},
        {"devices": [0]},
        {"devices": [""]},
        {"devices": ["0", "0"]},
        {"count": -1},
        {"count": "2"},
        {"cdi": ["gpu0"]},
        {"capabilities": ["foo"]},
        {"keys": {"gpus": {"count": 1}}},
        {"keys": {"memory": "150%"}},
        {"keys": {"memory": 8}},
        {"keys": {"compute-capability": ["~", "8.0"]}},
        {"keys": {"compute-capability": ["="]}},
        {"requirements": [["NVIDIA_REQUIRE_CUDA"]]},
        {"requirements": [["PATH", "x"]]},
        {"features": ["other"]},
        {"imex_channels": [-1]},
        {"mig_config": "all"},
        {"sources": {}},
        {"sources": {"devices": 1}},
    ],
)
def test_what_is_no_request(change: dict[str, Any]) -> None:
    request = Request(["0"], ["compute"], {"devices": "environment NVIDIA_VISIBLE_DEVICES=0"})
    assert valid(request.to_json())
    assert not valid({**request.to_json(), **change})
