"""Edits as a CDI spec: what is in it, of which version, and how its text is read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpushim.cdi import specfile
from gpushim.cdi.write import FORMATS, as_text, as_yaml, container_edits, document, named_trees
from gpushim.oci.edits import DeviceNode, Edits, Hook, Mount
from hypothesis import given
from hypothesis import strategies as st

KIND = "nvidia.com/gpu"


def edits(*nodes: DeviceNode, **fields: Any) -> Edits:
    made = Edits()
    made.device_nodes = list(nodes)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


PLAIN = DeviceNode("/dev/nvidia0", "/dev/nvidia0", 195, 0)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (PLAIN, {"path": "/dev/nvidia0", "permissions": "rw"}),
        (
            DeviceNode("/dev/nvidia0", "/run/dev/nvidia0", 195, 0),
            {"path": "/dev/nvidia0", "hostPath": "/run/dev/nvidia0", "permissions": "rw"},
        ),
        (
            DeviceNode("/dev/dri/card0", "/dev/dri/card0", 226, 0, 0o660, 0, 44),
            {"path": "/dev/dri/card0", "fileMode": 0o660, "gid": 44, "permissions": "rw"},
        ),
        (
            DeviceNode("/dev/x", "/dev/x", 1, 2, None, None, None, ""),
            {"path": "/dev/x", "permissions": "none"},
        ),
    ],
)
def test_a_node_without_what_a_boot_may_change(node: DeviceNode, expected: dict[str, Any]) -> None:
    assert container_edits(edits(node)) == {"deviceNodes": [expected]}


@pytest.mark.parametrize(
    ("name", "common", "version"),
    [
        ("gpu0", Edits(), "0.3.0"),
        ("0", Edits(), "0.5.0"),
        ("gpu0", edits(DeviceNode("/dev/a", "/dev/b", 1, 2)), "0.5.0"),
        ("gpu0", edits(mounts=[Mount("/a", "/b", ["ro"], "tmpfs")]), "0.4.0"),
        ("gpu0", edits(additional_gids=[44]), "0.7.0"),
        ("gpu0", edits(net_devices={"eth1": "eth0"}), "1.1.0"),
    ],
)
def test_the_oldest_version_that_will_do(name: str, common: Edits, version: str) -> None:
    found = document(KIND, [([name], edits(PLAIN))], common)["cdiVersion"]
    # There is nothing older that engines still read.
    assert max(found, "0.3.0") == version


def everything() -> dict[str, Any]:
    common = edits(
        DeviceNode("/dev/nvidiactl", "/dev/nvidiactl", 195, 255),
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[Mount("/tree", "/usr/local/nvidia", ["ro", "bind"])],
        hooks=[Hook("createContainer", "/bin/true", ["true", "-I", "--x=1:0"], ["A=b"], 60)],
        additional_gids=[44],
    )
    names = [["0", "GPU-1f"], ["0:1", "MIG-22"], ["1e3"], ["all"], ["0x10"], ["null.x"], ["1.5"]]
    return document(KIND, [(name, edits(PLAIN)) for name in names], common)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_a_sound_spec(tmp_path: Path, form: str) -> None:
    """By our own reader's rules, with each name as it was."""
    path = tmp_path / f"nvidia.{form}"
    path.write_text(as_text(everything(), form))
    found = specfile.load(str(path))
    assert list(found.devices) == [
        *("0", "GPU-1f", "0:1", "MIG-22", "1e3", "all", "0x10", "null.x", "1.5"),
    ]
    assert found.kind == KIND
    assert found.edits["hooks"][0]["args"] == ["true", "-I", "--x=1:0"]


def test_both_forms_say_the_same() -> None:
    spec = everything()
    assert json.loads(as_text(spec, "json")) == yaml.safe_load(as_text(spec, "yaml")) == spec


@given(st.text(min_size=1), st.text())
def test_any_text_is_read_again_as_it_was(name: str, value: str) -> None:
    spec = {"kind": name, "list": [value, 1, True]}
    assert yaml.safe_load(as_yaml(spec)) == spec


@pytest.mark.parametrize(
    "word", ["0:0", "1:30", "yes", "on", "null", "0x1", "1e3", "010", "~", "-"]
)
def test_what_looks_like_something_else_stands_in_quotes(word: str) -> None:
    text = as_yaml({"name": word})
    assert yaml.safe_load(text) == {"name": word}
    # Readers of YAML differ about these (1.1 and 1.2), but not in quotes.
    assert '"' in text or "'" in text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("inside", ["", "/bin/nvidia-smi", "/lib64/libcuda.so.1"])
def test_the_trees_that_specs_need(tmp_path: Path, form: str, inside: str) -> None:
    trees = "/var/lib/gpushim/driver"
    tree = f"{trees}/550.163.01/compute+utility-0123abcd"
    common = edits(
        mounts=[Mount(tree + inside, "/usr/local/nvidia", ["ro"]), Mount("/etc/x", "/etc/x", [])],
        hooks=[Hook("createContainer", "/bin/true", ["true", f"--tree={tree}"], [])],
    )
    text = as_text(document(KIND, [(["0"], edits(PLAIN))], common), form)
    (tmp_path / f"nvidia.{form}").write_text(text)
    (tmp_path / "notes.txt").write_text(f"{trees}/1/2")
    (tmp_path / "folder.json").mkdir()
    directories = [str(tmp_path), str(tmp_path / "missing")]
    assert named_trees(directories, trees) == {tree}
    assert named_trees(directories, "/elsewhere") == set()


def test_a_broken_spec_still_names_its_tree(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"x": "/trees/1/t\xff", ')
    assert named_trees([str(tmp_path)], "/trees") == {"/trees/1/t\udcff"}
