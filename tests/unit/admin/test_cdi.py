"""gpushimctl cdi list, show and validate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpushim.admin import cli
from gpushim.admin.cdi_list import order
from gpushim.admin.cdi_show import edit_lines

from tests.unit.cdi.specs import spec, write

Capture = pytest.CaptureFixture[str]
NVIDIA = "nvidia.com/gpu"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "0")  # tables of one line a row, wherever the tests run
    directories = [str(tmp_path / name) for name in ("low", "high")]
    write(tmp_path / "etc/gpushim/config.toml", f"[cdi]\nspec-dirs = {json.dumps(directories)}\n")
    return tmp_path


def run(root: Path, *words: str) -> int:
    return cli.main(["--root", str(root), "cdi", *words])


@pytest.mark.parametrize("action", ["list", "show", "validate"])
def test_each_action_has_help(action: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["cdi", action, "--help"])
    assert ended.value.code == 0
    assert f"usage: gpushimctl cdi {action}" in capsys.readouterr().out


def test_without_an_action_it_is_a_wrong_command_line() -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["cdi"])
    assert ended.value.code == 2


def test_list(root: Path, capsys: Capture) -> None:
    write(root / "low/nvidia.json", spec("10", "2", "all", "0:1", "0:10", "0:2", kind=NVIDIA))
    write(root / "high/a.json", spec("x"))
    assert run(root, "list") == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out[1:]] == [
        f"{NVIDIA}={name}" for name in ("0:1", "0:2", "0:10", "2", "10", "all")
    ] + ["vendor.com/class=x"]
    assert out[-1].split()[1] == f"{root}/high/a.json"


def test_list_without_devices(root: Path, capsys: Capture) -> None:
    assert run(root, "list") == 0
    said = capsys.readouterr().out
    assert said == f"No spec file in {root}/low, {root}/high describes a device.\n"


def test_list_tells_what_is_wrong(root: Path, capsys: Capture) -> None:
    for name in "ab":
        write(root / f"low/{name}.json", spec("x"))
    write(root / "low/c.yaml", "x: 1\na: b: c")
    assert run(root, "list") == 0
    said = capsys.readouterr().err
    assert f"{root}/low/c.yaml, line 2" in said
    assert "vendor.com/class=x is described by several files" in said


def test_list_as_json(root: Path, capsys: Capture) -> None:
    path = write(root / "low/a.json", spec("x"))
    write(root / "low/b.json", "{")
    assert run(root, "list", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["devices"] == [{"name": "vendor.com/class=x", "spec": str(path)}]
    assert data["spec_dirs"] == [f"{root}/low", f"{root}/high"]
    assert len(data["problems"]) == 1


def test_names_sort_as_people_count() -> None:
    names = ["b/c=1", "a/c=x", "a/c=10", "a/c=9", "a/c=0:10", "a/c=0:9", "a/c=GPU-1:2"]
    assert sorted(names, key=order) == [
        "a/c=0:9",
        "a/c=0:10",
        "a/c=9",
        "a/c=10",
        "a/c=GPU-1:2",
        "a/c=x",
        "b/c=1",
    ]


def test_show(root: Path, capsys: Capture) -> None:
    write(root / "low/a.json", spec("0", kind=NVIDIA))
    path = write(root / "high/a.json", spec("9", "0", kind=NVIDIA, edits={"env": ["G=1"]}))
    for name in ("0", f"{NVIDIA}=0"):
        assert run(root, "show", name) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"CDI device {NVIDIA}=0",
            f"  from: {path}, line 14 (CDI 1.1.0)",
            f"  outranks: {root}/low/a.json",
            "Changes for any device of this file:",
            "  environment G=1",
            "Changes for this device:",
            f"  environment DEVICE_0={NVIDIA}",
        ]


def test_show_as_json(root: Path, capsys: Capture) -> None:
    path = write(root / "low/a.json", spec("x"))
    assert run(root, "show", "vendor.com/class=x", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "vendor.com/class=x",
        "spec": str(path),
        "line": 6,
        "cdiVersion": "1.1.0",
        "outranked": [],
        "specEdits": {},
        "deviceEdits": {"env": ["DEVICE_x=vendor.com/class"]},
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vendor.com/class=y", "no usable spec file"),
        ("y", f"{NVIDIA}=y cannot be given"),
        ("a b=y", "not the name of a CDI device"),
        ("vendor.com/class=x", "described by several files"),
    ],
)
def test_show_of_what_is_not_there(root: Path, name: str, said: str, capsys: Capture) -> None:
    for file in "ab":
        write(root / f"low/{file}.json", spec("x"))
    assert run(root, "show", name) == 1
    assert said in capsys.readouterr().err


def test_every_kind_of_edit_has_a_line() -> None:
    edits: dict[str, Any] = {
        "env": ["A=1"],
        "deviceNodes": [
            {"path": "/dev/a"},
            {"path": "/dev/b", "hostPath": "/dev/c", "major": 1, "minor": 2, "fileMode": 0o660}
            | {"permissions": "none", "uid": 0, "gid": 44},
        ],
        "mounts": [
            {"hostPath": "/h", "containerPath": "/c"},
            {"hostPath": "t", "containerPath": "/t", "type": "tmpfs", "options": ["ro", "x"]},
        ],
        "hooks": [
            {"hookName": "poststop", "path": "/h"},
            {"hookName": "prestart", "path": "/h", "args": ["h", "x"], "timeout": 5},
        ],
        "additionalGids": [0, 44],
        "intelRdt": {"closID": "a", "schemata": ["x", "y"], "enableMonitoring": True},
        "netDevices": [{"hostInterfaceName": "e0", "name": "n0"}],
    }
    assert edit_lines(edits) == [
        "environment A=1",
        "device /dev/a (rwm)",
        "device /dev/b from /dev/c (1:2, none, mode 0660, uid 0, gid 44)",
        "mount /h at /c",
        "mount t at /t as tmpfs (ro,x)",
        "hook poststop: /h",
        "hook prestart: /h x (at most 5 s)",
        "extra group 44",
        "intelRdt closID: a",
        "intelRdt schemata: x, y",
        "intelRdt enableMonitoring: True",
        "network interface e0 as n0",
    ]


def test_validate_of_the_configured_directories(root: Path, capsys: Capture) -> None:
    write(root / "low/a.json", spec("x"))
    write(root / "high/a.json", spec("x"))
    assert run(root, "validate") == 0
    assert capsys.readouterr().out == "2 spec files checked, nothing is wrong.\n"
    write(root / "low/b.json", spec("x"))
    assert run(root, "validate") == 0  # The later directory decides.
    write(root / "high/b.json", spec("x"))
    write(root / "high/c.json", spec("y", "y", "-"))
    assert run(root, "validate") == 1
    out, err = capsys.readouterr()
    assert out.endswith("5 spec files checked, 4 right.\n")
    assert "vendor.com/class=x is described by several files" in err
    # All that is wrong is told, not only what is found first.
    assert "there are two devices 'y'" in err
    assert "its device, '-'" in err


def test_validate_of_files(root: Path, capsys: Capture) -> None:
    write(root / "low/bad.json", "{")
    good = write(root / "x.yaml", json.dumps(spec("x")))
    assert run(root, "validate", str(good)) == 0
    assert capsys.readouterr().out == "1 spec file checked, nothing is wrong.\n"
    odd = write(root / "x.yml", json.dumps(spec("x")))
    assert run(root, "validate", str(good), str(odd), str(root / "absent.json")) == 1
    out, err = capsys.readouterr()
    assert out == "3 spec files checked, 1 right.\n"
    assert f"{odd} is read by no engine" in err
    assert f"{root}/absent.json cannot be read: it does not exist." in err


def test_validate_as_json(root: Path, capsys: Capture) -> None:
    good, bad = write(root / "low/a.json", spec("x")), write(root / "low/b.json", "{")
    for name in "cd":
        write(root / f"low/{name}.json", spec("y"))
    assert run(root, "validate", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["valid"] is False
    problems = {one["path"]: one["problems"] for one in data["files"]}
    assert problems[str(good)] == []
    assert "this is no JSON" in problems[str(bad)][0]
    assert list(data["conflicts"]) == ["vendor.com/class=y"]
    assert run(root, "validate", "--json", str(good)) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True
