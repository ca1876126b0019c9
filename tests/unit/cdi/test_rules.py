"""Each rule of a spec file (facts C, table "CDI spec"), by the rules and by the JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from gpushim.admin.cdi_validate import schema_problems
from gpushim.cdi.document import Document
from gpushim.cdi.rules import SPEC, clean
from gpushim.cdi.specfile import BrokenSpec, SpecFile, load, problems
from gpushim.cdi.version import VERSIONS, minimum_version
from gpushim_specs import load as load_schema
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from .specs import KIND, spec, write

EDITS: dict[str, Any] = {"env": ["A=1"]}


def found(data: Any, name: str = "x.json") -> list[str]:
    """All problems of a spec, as sentences."""
    text = yaml.safe_dump(data) if name.endswith(".yaml") else json.dumps(data)
    document = Document(name, text)
    return [document.error(place, reason).sentence for place, reason in problems(document)]


def with_edits(edits: Any, version: str = "1.1.0") -> dict[str, Any]:
    return spec(version=version, d=edits)


FULL = {
    "cdiVersion": "1.1.0",
    "kind": "vendor.com/class.x",
    "annotations": {"vendor.com/note": "text", "plain": ""},
    "containerEdits": {"env": ["GLOBAL="]},
    "devices": [
        {
            "name": "0",
            "annotations": {"a": "b"},
            "containerEdits": {
                "env": ["A=1", "B==2"],
                "deviceNodes": [
                    {"path": "/dev/a"},
                    {
                        "path": "/dev/b",
                        "hostPath": "/dev/c",
                        "type": "b",
                        "major": 1,
                        "minor": 0,
                        "fileMode": 438,
                        "permissions": "rwm",
                        "uid": 0,
                        "gid": 4294967295,
                    },
                    {"path": "/dev/p", "type": "p", "permissions": "none"},
                    {"path": "/dev/u", "type": "u", "permissions": "r"},
                ],
                "mounts": [
                    {"hostPath": "/h", "containerPath": "/c"},
                    {
                        "hostPath": "tmpfs",
                        "containerPath": "/t",
                        "type": "tmpfs",
                        "options": ["size=1m"],
                    },
                ],
                "hooks": [
                    {"hookName": name, "path": "/hook"}
                    for name in ("prestart", "createRuntime", "createContainer")
                ]
                + [
                    {
                        "hookName": "startContainer",
                        "path": "/hook",
                        "args": ["hook"],
                        "env": ["A="],
                        "timeout": 1,
                    },
                    {"hookName": "poststart", "path": "/hook"},
                    {"hookName": "poststop", "path": "/hook"},
                ],
                "additionalGids": [0, 44],
                "intelRdt": {
                    "closID": "/",
                    "l3CacheSchema": "L3:0=f",
                    "memBwSchema": "MB:0=1",
                    "schemata": ["L3:0=f"],
                    "enableMonitoring": True,
                },
                "netDevices": [
                    {"hostInterfaceName": "e0", "name": "n0"},
                    {"hostInterfaceName": "e1", "name": "n1"},
                ],
            },
        }
    ],
}


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
def test_a_spec_with_everything_is_right(name: str) -> None:
    assert found(FULL, name) == []
    assert list(schema_problems(FULL)) == []
    assert clean(FULL, SPEC, False)["devices"] == clean(FULL["devices"], SPEC["devices"], True)


BAD: list[tuple[Any, str]] = [
    ([], "a list stands where an object should"),
    (None, "null stands where an object should"),
    ("x", "a text stands where an object should"),
    # top level
    ({}, "cdiVersion: the version of the specification is missing"),
    ({"cdiVersion": "1.0.0"}, "kind: the kind of the devices is missing"),
    (spec(), "devices: there is no device"),
    ({**spec("a"), "device": []}, "device: there is no such field"),
    ({**spec("a"), "CDIVersion": "x"}, "CDIVersion: there is no such field"),
    ({**spec("a"), "kind": 5}, "kind: a number stands where a text should"),
    ({**spec("a"), "kind": "vendor"}, "not of the form vendor/class"),
    ({**spec("a"), "kind": "vendor.com/cl:ass"}, "character ':'"),
    ({**spec("a"), "kind": "1vendor.com/class"}, "begin with a letter"),
    ({**spec("a"), "kind": "v/" + "c" * 64}, "more than 63"),
    ({**spec("a"), "devices": {}}, "devices: an object stands where a list should"),
    ({**spec("a"), "annotations": {"a/b/": "x"}}, "no name of an annotation"),
    ({**spec("a"), "annotations": {"a" * 64: "x"}}, "no name of an annotation"),
    ({**spec("a"), "annotations": {"x": 5}}, "annotations.x: a number stands where a text"),
    # devices
    (spec("a", "a"), "devices[1].name: there are two devices 'a'"),
    (spec("-a"), "devices[0].name: its device, '-a', does not begin"),
    (spec("a b"), "character ' '"),
    (spec(""), "devices[0].name: the name of the device is missing"),
    (with_edits({}), "devices[0].containerEdits: the device 'd' changes nothing"),
    (with_edits({"env": []}), "changes nothing"),
    (with_edits({"env": None}), "changes nothing"),
    (with_edits(None), "changes nothing"),
    ({**spec("a"), "devices": [None]}, "devices[0]: null stands where an object should"),
    # containerEdits
    (with_edits({"envs": []}), "containerEdits.envs: there is no such field"),
    (with_edits({"env": ["A"]}), "env[0]: 'A' is not of the form NAME=value"),
    (with_edits({"env": ["A=1", "=1"]}), "env[1]: '=1' is not of the form NAME=value"),
    (with_edits({"env": "A=1"}), "a text stands where a list should"),
    (with_edits({"env": [1]}), "env[0]: a number stands where a text should"),
    (with_edits({"env": ["A=\0"]}), "NUL"),
    (with_edits({"env": ["A=\ud800"]}), "surrogate"),
    (with_edits({"deviceNodes": [{}]}), "deviceNodes[0]: the device node has no path"),
    (with_edits({"deviceNodes": [{"path": ""}]}), "the device node has no path"),
    (with_edits({"deviceNodes": [{"path": "/a", "type": "x"}]}), "'x' is no type of device node"),
    (with_edits({"deviceNodes": [{"path": "/a", "permissions": "rx"}]}), "'rx' is neither"),
    (with_edits({"deviceNodes": [{"path": "/a", "permissions": "None"}]}), "'None' is neither"),
    (with_edits({"deviceNodes": [{"path": "/a", "major": -1}]}), "-1 is not between"),
    (with_edits({"deviceNodes": [{"path": "/a", "minor": "1"}]}), "stands where a whole number"),
    (with_edits({"deviceNodes": [{"path": "/a", "minor": True}]}), "true stands where a whole"),
    (with_edits({"deviceNodes": [{"path": "/a", "uid": 2**32}]}), "is not between"),
    (
        with_edits({"deviceNodes": [{"path": "/a", "fileMode": 1.5}]}),
        "a number stands where a whole",
    ),
    (with_edits({"deviceNodes": [{"path": "/a", "containerPath": "/b"}]}), "no such field"),
    (with_edits({"mounts": [{"hostPath": "/a"}]}), "the mount has no containerPath"),
    (
        with_edits({"mounts": [{"containerPath": "/a", "hostPath": ""}]}),
        "the mount has no hostPath",
    ),
    (
        with_edits({"mounts": [{"containerPath": "/a", "hostPath": "/a", "options": "ro"}]}),
        "options: a text stands where a list should",
    ),
    (with_edits({"hooks": [{"path": "/h"}]}), "hookName: '' is none of prestart"),
    (with_edits({"hooks": [{"hookName": "start", "path": "/h"}]}), "'start' is none of"),
    (with_edits({"hooks": [{"hookName": "poststop"}]}), "not an absolute path"),
    (with_edits({"hooks": [{"hookName": "poststop", "path": "h"}]}), "not an absolute path"),
    (
        with_edits({"hooks": [{"hookName": "poststop", "path": "/h", "env": ["A"]}]}),
        "hooks[0].env[0]: 'A' is not of the form",
    ),
    (
        with_edits({"hooks": [{"hookName": "poststop", "path": "/h", "timeout": 0}]}),
        "timeout: 0 is not between 1",
    ),
    (with_edits({"additionalGids": [-1]}), "additionalGids[0]: -1 is not between"),
    (with_edits({"additionalGids": ["44"]}), "stands where a whole number"),
    (with_edits({"intelRdt": {"closID": ".."}}), "closID: '..' is no name of a directory"),
    (with_edits({"intelRdt": {"closID": "."}}), "no name of a directory"),
    (with_edits({"intelRdt": {"closID": "a/b"}}), "no name of a directory"),
    (with_edits({"intelRdt": {"closID": "a\n"}}), "no name of a directory"),
    (with_edits({"intelRdt": {"closID": "a" * 4096}}), "no name of a directory"),
    (with_edits({"intelRdt": {"enableCMT": True}}), "enableCMT: there is no such field"),
    (with_edits({"intelRdt": {"enableMonitoring": 1}}), "stands where true or false should"),
    (with_edits({"netDevices": [{"name": "n"}]}), "network interface has no hostInterfaceName"),
    (with_edits({"netDevices": [{"hostInterfaceName": "e"}]}), "network interface has no name"),
    (
        with_edits({"netDevices": [{"hostInterfaceName": "e", "name": n} for n in "ab"]}),
        "netDevices[1].hostInterfaceName: there are two network interfaces 'e'",
    ),
    (
        with_edits({"netDevices": [{"hostInterfaceName": e, "name": "n"} for e in "ab"]}),
        "netDevices[1].name: there are two network interfaces 'n'",
    ),
    (spec("a", edits={"env": ["x"]}), "line 1: containerEdits.env[0]: 'x' is not"),
]


@pytest.mark.parametrize(("data", "said"), BAD)
def test_what_is_wrong_is_told(data: Any, said: str) -> None:
    sentences = found(data)
    assert any(said in sentence for sentence in sentences), sentences
    assert all(sentence.startswith("x.json, line 1: ") for sentence in sentences)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_known_versions(version: str) -> None:
    assert found(spec("a", version=version)) == []
    assert found(spec("a", version="v" + version)) == []


@pytest.mark.parametrize(
    "version", ["", "1", "1.0", "0.9.0", "1.2.0", "2.0.0", "vv1.0.0", "1.0.0-rc1"]
)
def test_unknown_versions(version: str) -> None:
    assert any("cdiVersion" in sentence for sentence in found(spec("a", version=version)))


MINIMUM: list[tuple[Any, str]] = [
    (spec("a"), "0.3.0"),
    (with_edits({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]}), "0.4.0"),
    (with_edits({"deviceNodes": [{"path": "/a", "hostPath": "/b"}]}), "0.5.0"),
    (spec("0"), "0.5.0"),
    ({**spec("a"), "annotations": {"a": "b"}}, "0.6.0"),
    ({**spec(), "devices": [{"name": "a", "annotations": {"a": ""}, "containerEdits": EDITS}]},
     "0.6.0"),
    (spec("a", kind="vendor.com/cl.ass"), "0.6.0"),
    (with_edits({"intelRdt": {"closID": "a"}}), "0.7.0"),
    (with_edits({"additionalGids": [44]}), "0.7.0"),
    (spec("a", edits={"additionalGids": [44]}), "0.7.0"),
    (with_edits({"netDevices": [{"hostInterfaceName": "e", "name": "n"}]}), "1.1.0"),
    (with_edits({"intelRdt": {"schemata": ["x"]}}), "1.1.0"),
    (with_edits({"intelRdt": {"enableMonitoring": True}}), "1.1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "version"), MINIMUM)
def test_the_declared_version_must_have_what_is_used(data: Any, version: str) -> None:
    assert minimum_version(clean(data, SPEC, False))[0] == version
    number = VERSIONS.index(version)
    for later in VERSIONS[number:]:
        assert found({**data, "cdiVersion": later}) == []
    for earlier in VERSIONS[:number]:
        [sentence] = found({**data, "cdiVersion": earlier})
        assert f"{earlier} has no" in sentence
        assert sentence.endswith(f"which needs {version}.")


def test_null_and_empty_members_count_as_absent() -> None:
    data = {
        **with_edits({"env": ["A=1"], "mounts": None, "hooks": [], "intelRdt": None}, "0.3.0"),
        "annotations": None,
        "containerEdits": {},
    }
    assert found(data) == []
    assert SpecFile("/x", clean(data, SPEC, False)).devices == {"d": {"env": ["A=1"]}}


def test_numbers_that_yaml_reads_where_a_text_should_be() -> None:
    data = {**spec(), "devices": [{"name": 0, "containerEdits": EDITS}]}
    assert found(data, "x.yaml") == []
    assert found(data, "x.json") != []
    assert found({**data, "kind": True}, "x.yaml") != []
    assert found({**data, "cdiVersion": 0.5}, "x.yaml") != []


def test_a_file_that_is_right(tmp_path: Any) -> None:
    path = write(tmp_path / "x.yaml", yaml.safe_dump(FULL))
    made = load(str(path))
    assert made.kind == "vendor.com/class.x"
    assert made.version == "1.1.0"
    assert made.edits == {"env": ["GLOBAL="]}
    assert made.devices["0"]["additionalGids"] == [0, 44]
    assert made.devices["0"]["deviceNodes"][1]["minor"] == 0
    assert made.places == {"0": ("devices", 0, "name")}


def test_a_broken_file_keeps_its_kind(tmp_path: Any) -> None:
    with pytest.raises(BrokenSpec) as broken:
        load(str(write(tmp_path / "x.json", spec("a", "a"))))
    assert broken.value.kind == KIND
    assert broken.value.sentence.startswith(f"{tmp_path}/x.json, line 14: devices[1].name:")
    with pytest.raises(BrokenSpec) as broken:
        load(str(write(tmp_path / "y.json", "{")))
    assert broken.value.kind == ""


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(load_schema("cdi"))


# What the schema of the specification cannot tell either.
BEYOND_SCHEMA = (
    "there are two",
    "changes nothing",
    "no name of a directory",
    "no name of an annotation",
    "NUL",
    "surrogate",
    "more than 63",
    "has no path",
    "is missing",
)


@pytest.mark.parametrize(
    ("data", "said"), [row for row in BAD if not any(word in row[1] for word in BEYOND_SCHEMA)]
)
def test_the_schema_finds_it_too(data: Any, said: str) -> None:
    assert list(schema_problems(data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *SPEC,
                    *SPEC["devices"][0],
                    *SPEC["containerEdits"],
                    "path",
                    "hostPath",
                    "type",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from(sorted(SPEC)), st.sampled_from(sorted(SPEC["containerEdits"])))
def test_any_data_is_a_spec_or_has_problems(data: Any, top: str, field: str) -> None:
    for candidate in (data, {**spec("a"), top: data}, with_edits({field: data})):
        if not found(candidate):
            SpecFile("/x", clean(candidate, SPEC, False))
            assert not list(schema_problems(clean(candidate, SPEC, False)))
