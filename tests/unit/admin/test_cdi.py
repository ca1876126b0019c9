"""gpushimctl cdi list, show and validate."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpushim.admin import cdi_show, cli
from gpushim.admin.cdi_list import order
from gpushim.admin.cdi_show import edit_lines
from gpushim.host.model import Gpu, MigDevice

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
    said = capsys.readouterr()
    assert said.out == f"No spec file in {root}/low, {root}/high describes a device.\n"
    assert said.err == (
        f"gpushimctl: GPUs need none with gpushim, which gives {NVIDIA}=0 and so on by itself; "
        "`gpushimctl cdi generate` prints one for engines without gpushim.\n"
    )


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


WITHOUT_SPEC = (
    "which gpushim gives without a spec file; `gpushimctl cdi generate` prints one for engines "
    "without gpushim."
)
UUID = "GPU-8fbe4d48-7c4e-400b-acdb-791488b8c0e6"


@pytest.mark.parametrize(
    ("name", "is_what"),
    [
        ("0", "a GPU"),
        (f"{NVIDIA}=7", "a GPU"),
        (f"{NVIDIA}=gpu7", "a GPU"),
        (f"{NVIDIA}={UUID}", "a GPU"),
        (f"runtime.{NVIDIA}=0", "a GPU"),
        (f"{NVIDIA}=0:1", "a MIG device"),
        (f"{NVIDIA}=MIG-0fbe4d48-7c4e-400b-acdb-791488b8c0e6", "a MIG device"),
        (f"{NVIDIA}=all", "each GPU"),
    ],
)
def test_show_of_a_gpu_without_a_spec_file(
    root: Path, name: str, is_what: str, capsys: Capture
) -> None:
    """Nothing is known of the machine here: only what the name means is said."""
    assert run(root, "show", name) == 0
    said = capsys.readouterr()
    full = name if "=" in name else f"{NVIDIA}={name}"
    assert said.out == f"{full} is {is_what} of this machine, {WITHOUT_SPEC}\n"
    assert said.err == ""
    assert run(root, "show", "--json", name) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["name"], data["spec"], data["note"]) == (full, None, said.out.rstrip())


def test_show_of_driver_files_alone(root: Path, capsys: Capture) -> None:
    assert run(root, "show", "none") == 0
    said = capsys.readouterr().out
    assert said == f"{NVIDIA}=none is the driver's files without a GPU, {WITHOUT_SPEC}\n"


def test_the_kind_of_a_gpu_is_configured(root: Path, capsys: Capture) -> None:
    """Under another kind, NVIDIA's own names are those of spec files, as for any vendor."""
    path = root / "etc/gpushim/config.toml"
    path.write_text(path.read_text() + 'default-kind = "vendor.com/gpu"\n')
    assert run(root, "show", "0") == 0
    assert capsys.readouterr().out.startswith("vendor.com/gpu=0 is a GPU of this machine")
    assert run(root, "show", f"{NVIDIA}=0") == 1
    assert "no usable spec file" in capsys.readouterr().err


def test_show_of_a_gpu_whose_spec_files_are_wrong(root: Path, capsys: Capture) -> None:
    """Engines that go by them have no such device: that is told, too."""
    write(root / "low/c.yaml", "x: 1\na: b: c")
    assert run(root, "show", "0") == 0
    assert f"{root}/low/c.yaml, line 2" in capsys.readouterr().err
    for name in "ab":
        write(root / f"low/{name}.json", spec("0", kind=NVIDIA))
    assert run(root, "show", "0") == 1
    assert "described by several files" in capsys.readouterr().err


@pytest.fixture
def known(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of which is known that it has one GPU, with a MIG device."""
    mig = MigDevice(0, "MIG-1f2e3d4c", "1g.10gb", None, 9, 0, 102, 103)
    gpu = Gpu(0, UUID, 0, "0000:07:00.0", "NVIDIA X", mig_enabled=True, mig_devices=[mig])
    inventory = SimpleNamespace(gpus=[gpu])
    monkeypatch.setattr(cdi_show, "load", lambda places: SimpleNamespace(inventory=inventory))
    return root


@pytest.mark.parametrize("name", ["0", "0:0", UUID, "MIG-1f", "all", "none"])
def test_show_of_what_this_machine_has(known: Path, name: str, capsys: Capture) -> None:
    assert run(known, "show", name) == 0
    assert WITHOUT_SPEC in capsys.readouterr().out


@pytest.mark.parametrize("name", ["1", "0:1", "GPU-0", "MIG-2", "runtime.nvidia.com/gpu=gpu9"])
def test_show_of_what_this_machine_has_not(known: Path, name: str, capsys: Capture) -> None:
    assert run(known, "show", name) == 1
    said = capsys.readouterr()
    full = name if "=" in name else f"{NVIDIA}={name}"
    assert f"{full} is no " in said.err
    assert f"0 = NVIDIA X {UUID}" in said.err
    assert said.out == ""


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
        ("0-3", f"{NVIDIA}=0-3 cannot be given"),
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
