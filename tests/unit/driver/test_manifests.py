"""Manifests of Vulkan and EGL that name a path of the host's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushim.host.manifests import portable
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (
            {"ICD": {"library_path": "/usr/lib64/libGLX_nvidia.so.0", "api_version": "1.4"}},
            {"ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.4"}},
        ),
        (
            {"layers": [{"library_path": "../../lib/libGLX_nvidia.so.0"}, {"name": "x/y"}]},
            {"layers": [{"library_path": "libGLX_nvidia.so.0"}, {"name": "x/y"}]},
        ),
        ({"ICD": {"library_path": "libEGL_nvidia.so.0"}}, None),
        ({"ICD": {"library_path": 3}}, None),
        ([], None),
    ],
)
def test_libraries_by_plain_names(manifest: Any, expected: Any) -> None:
    text = portable(json.dumps(manifest).encode())
    assert (text and json.loads(text)) == expected


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100000, b'{"library_path": /}'])
def test_what_is_no_manifest_stays_as_it_is(text: bytes) -> None:
    assert portable(text) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("/a/b"),
    lambda items: st.lists(items) | st.dictionaries(st.text() | st.just("library_path"), items),
)


@given(_JSON)
def test_once_is_enough(value: Any) -> None:
    text = portable(json.dumps(value).encode())
    assert text is None or portable(text) is None


@given(st.binary())
def test_nothing_raises(text: bytes) -> None:
    portable(text)
