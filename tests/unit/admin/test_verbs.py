"""gpushimctl's command line, and the verbs that only show something."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gpushim import launcher_settings, records
from gpushim.admin import checks, cli, doctor, explain, inventory, output, refresh, version
from gpushim.admin.check_result import FAIL, OK, WARN, Result
from gpushim.admin.checks import Context
from gpushim.errors import GpushimError
from gpushim.host.model import Gpu, MigDevice
from gpushim.oci.bundle import load, store
from gpushim.oci.edits import DeviceNode, Edits, Hook, Mount
from gpushim.places import Places

Capture = pytest.CaptureFixture[str]
ID = "3f" * 32
GONE = {"bundle": "/nonexistent", "config": "/nonexistent/config.json"}


@pytest.fixture(autouse=True)
def any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def run(tmp_path: Path, *arguments: str) -> int:
    return cli.main(["--root", str(tmp_path), *arguments])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["config", "x"], ["doctor", "--onl", "x"]])
def test_a_wrong_command_line_is_status_two(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: gpushimctl" in capsys.readouterr().err


@pytest.mark.parametrize("verb", cli.VERBS)
def test_each_verb_has_help(verb: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"])
    assert ended.value.code == 0
    assert "usage: gpushimctl" in capsys.readouterr().out


@pytest.mark.parametrize(
    "verb", sorted(set(cli.VERBS) - {"install", "uninstall", "release", "run"})
)
def test_each_verb_that_shows_something_has_json(verb: str) -> None:
    words = {
        "explain": ["explain", "--json", "x"],
        "cdi": ["cdi", "list", "--json"],
    }.get(verb, [verb, "--json"])
    assert cli.parser().parse_args(words).json


def test_config_shows_values_and_sources(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "etc/gpushim/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[runtime]\nlog-level = "debug"\n')
    assert run(tmp_path, "config", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["runtime.log-level"] == {"value": "debug", "source": str(path)}
    assert shown["host.load-driver"] == {"value": True, "source": "default"}
    assert run(tmp_path, "config") == 0
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if "log-level" in line)
    assert line.split() == ["runtime.log-level", str(path), '"debug"']
    assert '["runc", "crun"]' in out


def test_config_check(tmp_path: Path, capsys: Capture) -> None:
    assert run(tmp_path, "config", "check") == 0
    path = tmp_path / "etc/gpushim/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[runtime]\nlog-levle = 1\n")
    capsys.readouterr()
    assert run(tmp_path, "config", "check") == 1
    assert "did you mean log-level" in capsys.readouterr().err
    assert run(tmp_path, "config", "check", "--json") == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["valid"] is False
    assert "log-levle" in shown["reason"]


def test_version_without_an_installation(tmp_path: Path, capsys: Capture) -> None:
    assert run(tmp_path, "version", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["installed"] is None
    assert shown["gpushim"]
    assert set(shown) == set(version.versions(Places(str(tmp_path))))
    assert run(tmp_path, "version") == 0
    assert capsys.readouterr().out.split()[-1] == "-"


def test_inventory_rows() -> None:
    known = Gpu(1, "GPU-x", 3, "0000:07:00.0", "NVIDIA X", 0, "ok", 80 << 30, "8.0")
    assert inventory.row(known) == (
        *("1", "GPU-x", "nvidia3", "0000:07:00.0"),
        *("NVIDIA X", "81920 MiB", "8.0", "0", "-", "ok"),
    )
    broken = Gpu(0, "", -1, "0000:06:00.0", "?", health="has fallen off the bus")
    row = inventory.row(broken)
    assert [row[column] for column in (1, 2, 5, 6, 7, 8)] == ["-"] * 6
    assert row[9] == "has fallen off the bus"
    known.mig_enabled = True
    assert inventory.row(known)[8] == "on"
    assert len(row) == len(inventory.HEADINGS)


def test_inventory_rows_of_mig_devices() -> None:
    """With both ids, which the older name has: MIG-<UUID of the GPU>/<GPU>/<compute instance>."""
    gpu = Gpu(3, "GPU-x", 1, "0000:07:00.0", "NVIDIA X", mig_enabled=True)
    mig = MigDevice(2, "MIG-x", "1g.10gb", 10 << 30, 9, 1, 102, 103)
    row = inventory.mig_row(gpu, mig)
    assert row == ("3:2", "MIG-x", "1g.10gb", "9/1", "nvidia-cap102, nvidia-cap103", "10240 MiB")
    assert len(row) == len(inventory.MIG_HEADINGS)
    unknown = inventory.mig_row(gpu, MigDevice(0, "MIG-x", "", None, 0, 0, -1, -1))
    assert unknown[2:] == ("-", "0/0", "-", "-")


UUID = "GPU-8fbe4d48-7c4e-400b-acdb-791488b8c0e6"
BIG = Gpu(10, UUID, 12, "0000:0f:00.0", "NVIDIA A100-SXM4-80GB", 3, "ok", 80 << 30, "8.0")


@pytest.mark.parametrize("width", [0, 40, 80, 200])
def test_a_table_cuts_nothing(width: int) -> None:
    rows = [inventory.row(BIG), inventory.row(BIG)]
    lines = output.table(inventory.HEADINGS, rows, 4, width)
    assert len(lines) == (3 if width in (0, 200) else 6)
    assert sum(UUID in line for line in lines) == 2
    assert all(line == line.rstrip() and line for line in lines)
    assert width != 80 or max(map(len, lines)) <= 80
    assert sum("NVIDIA A100-SXM4-80GB" in line for line in lines) == 2
    assert output.table(("key", "value"), [], 1, width) == ["key  value"]


def test_the_width_is_that_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(tmp_path, "config") == 0
    narrow = capsys.readouterr().out.splitlines()
    monkeypatch.delenv("COLUMNS")
    assert run(tmp_path, "config") == 0
    wide = capsys.readouterr().out.splitlines()
    assert len(narrow) == 2 * len(wide)
    for lines in (narrow, wide):
        assert lines[0].startswith("key")
        assert not any(line != line.rstrip() for line in lines)


def test_doctor_chooses() -> None:
    assert doctor.choose([], []) == list(checks.CHECKS)
    assert doctor.choose(["config.valid"], []) == ["config.valid"]
    assert doctor.choose(["device"], []) == ["device.nodes", "device.char-links"]
    assert "config.valid" not in doctor.choose([], ["config"])
    with pytest.raises(GpushimError, match="no check nonsense"):
        doctor.choose([], ["nonsense"])


@pytest.mark.parametrize(
    ("statuses", "expected"), [([OK, OK], 0), ([OK, WARN], 1), ([WARN, FAIL], 2), (["skip"], 0)]
)
def test_doctor_ends_with_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statuses: list[str], expected: int
) -> None:
    results = {
        f"c{number}": Result(status, "seen", "advice") for number, status in enumerate(statuses)
    }
    table = {name: lambda _, result=result: result for name, result in results.items()}
    monkeypatch.setattr(doctor, "CHECKS", table)
    assert run(tmp_path, "doctor") == expected


def test_a_check_that_fails_itself_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(context: Context) -> Result:
        raise RuntimeError("oh\nno")

    monkeypatch.setattr(doctor, "CHECKS", {"x": broken})
    result = doctor.examine("x", Context(Places(str(tmp_path))))
    assert result.status == FAIL
    assert "RuntimeError: oh no" in result.seen


@pytest.mark.parametrize("check", checks.CHECKS)
def test_each_check_survives_a_machine_without_anything(tmp_path: Path, check: str) -> None:
    config = tmp_path / "etc/gpushim/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[host]\nproc-root = "{tmp_path}/proc"\nsys-root = "{tmp_path}/sys"\n'
        f'dev-root = "{tmp_path}/dev"\n'
    )
    result = doctor.examine(check, Context(Places(str(tmp_path))))
    assert "itself failed" not in result.seen
    assert result.seen.endswith(".")
    assert (result.status in (OK, "skip")) == (result.advice == "")


def test_nothing_is_made_where_gpushim_is_not_installed(tmp_path: Path, capsys: Capture) -> None:
    for verb in ("inventory", "refresh"):
        assert run(tmp_path, verb) == 1
        assert "not installed here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("former", ["", "/bin/true"])
def test_no_usable_low_level_runtime(tmp_path: Path, capsys: Capture, former: str) -> None:
    places = Places(str(tmp_path))
    for directory in (places.etc, places.lib):
        Path(directory).mkdir(parents=True)
    Path(places.config).write_text('[runtime]\nlow-level-runtimes = ["no-such"]\n')
    if former:
        settings = {"low_level": former, "other_low_level": "", "low_level_family": "runc"}
        Path(places.launcher_settings).write_text(launcher_settings.render(settings))
    assert run(tmp_path, "config", "check") == 1
    told = capsys.readouterr().err
    assert "No usable low-level runtime" in told
    assert bool(former) == (f"go on with {former}" in told)
    assert run(tmp_path, "config", "check", "--json") == 1
    assert json.loads(capsys.readouterr().out)["valid"] is False
    result = doctor.examine("lowlevel.version", Context(places))
    assert result.status == (WARN if former else FAIL)


def test_what_only_root_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for check in ("state.writable", "log.writable"):
        assert doctor.examine(check, Context(Places(str(tmp_path)))).status == "skip"
    assert run(tmp_path, "explain", "x") == 1
    assert "root only" in capsys.readouterr().err
    assert cli.main(["uninstall"]) == 1
    assert "needs root" in capsys.readouterr().err
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(GpushimError, match="root only"):
        refresh.refuse_without_place(Places(), "refresh")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    refresh.refuse_without_place(Places(), "refresh")


def test_a_log_that_can_not_be_written_is_a_warning(tmp_path: Path) -> None:
    result = doctor.examine("log.writable", Context(Places(str(tmp_path))))
    assert result.status == WARN


class Container:
    """A live container with a record, and its bundle."""

    def __init__(self, root: Path, id: str, name: str = "") -> None:
        self.places = Places(str(root))
        self.bundle = root / "bundles" / id
        self.bundle.mkdir(parents=True)
        engine = root / "containers" / id
        engine.mkdir(parents=True)
        record = {"ID": id, "Name": f"/{name}", "Config": {"Labels": {}}}
        (engine / "config.v2.json").write_text(json.dumps(record))
        (engine / "hostconfig.json").write_text('{"DeviceRequests":null}')
        mounts = [{"destination": "/etc/hosts", "source": f"{engine}/hosts"}]
        spec: dict[str, Any] = {"process": {"env": ["A=1"]}, "mounts": mounts}
        (self.bundle / "config.json").write_text(json.dumps(spec))
        state_root = root / "state"
        (state_root / id).mkdir(parents=True)
        bundle = load(str(self.bundle), "config.json")
        spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=GPU-x")
        store(bundle, json.dumps(spec), {})
        edits = Edits()
        edits.env["NVIDIA_VISIBLE_DEVICES"] = "GPU-x"
        edits.device_nodes.append(DeviceNode("/dev/nvidia1", "/dev/nvidia1", 195, 1))
        edits.mounts.append(Mount("/tree", "/usr/local/nvidia", ["ro"]))
        edits.hooks.append(Hook("createContainer", "/bin/mount", ["mount", "-n"], []))
        edits.remove_hooks.append("nvidia-container-runtime-hook")
        data = {
            "runtime": "/usr/sbin/runc",
            "bundle": str(self.bundle),
            "config": str(self.bundle / "config.json"),
            "creator": [os.getpid(), records.start_time(os.getpid())],
            "request": {
                "devices": ["1"],
                "capabilities": ["compute"],
                "sources": {"devices": "environment NVIDIA_VISIBLE_DEVICES=1"},
            },
            "grant": {"gpus": [{"index": 1, "uuid": "GPU-x", "minor": 1, "model": "NVIDIA X"}]},
            "edits": edits.to_json(),
            "warnings": ["something"],
            "notes": ["cache merged"],
        }
        records.write(self.places.containers, id, str(state_root), data)


def test_explain_needs_a_name_and_tells_names(tmp_path: Path, capsys: Capture) -> None:
    container = Container(tmp_path, ID, "web")
    assert run(tmp_path, "explain", "") == 1
    assert "no name" in capsys.readouterr().err
    assert run(tmp_path, "explain", "other\udcff") == 1
    assert f"{ID[:12]} (web)" in capsys.readouterr().err
    records.write(container.places.containers, ID, str(tmp_path / "state"), GONE)
    assert run(tmp_path, "explain", ID) == 1
    assert "another version" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["id", "prefix", "name", "bundle"])
def test_explain(tmp_path: Path, capsys: Capture, by: str) -> None:
    container = Container(tmp_path, ID, "web")
    names = {"id": ID, "prefix": ID[:12], "name": "web", "bundle": str(container.bundle)}
    assert run(tmp_path, "explain", names[by]) == 0
    out = capsys.readouterr().out
    for words in (
        f"Container {ID}",
        "Asked for: 1 (from environment NVIDIA_VISIBLE_DEVICES=1)",
        "1: GPU-x (nvidia1, NVIDIA X)",
        "device /dev/nvidia1 (195:1, rw)",
        "mount /tree at /usr/local/nvidia",
        "hook createContainer: mount -n",
        "removed hooks called nvidia-container-runtime-hook",
        "Warning: something",
        "Note: cache merged",
        '+      "NVIDIA_VISIBLE_DEVICES=GPU-x"',
    ):
        assert words in out
    assert run(tmp_path, "explain", "--no-diff", names[by]) == 0
    assert "+++" not in capsys.readouterr().out
    assert run(tmp_path, "explain", "--json", names[by]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["id"] == ID
    assert len(shown["after"]["process"]["env"]) == len(shown["before"]["process"]["env"]) + 1


def test_explain_says_what_there_is(tmp_path: Path, capsys: Capture) -> None:
    Container(tmp_path, ID)
    other = ID[:10] + "a" * 54
    Container(tmp_path / "x", other)
    records.write(Places(str(tmp_path)).containers, other, str(tmp_path / "x/state"), GONE)
    assert run(tmp_path, "explain", "nonsense") == 1
    assert ID[:12] in capsys.readouterr().err
    assert run(tmp_path, "explain", ID[:10]) == 1
    assert "means several containers" in capsys.readouterr().err


def test_explain_a_bundle_without_a_record(tmp_path: Path, capsys: Capture) -> None:
    container = Container(tmp_path, ID)
    records.remove(container.places.containers, ID, str(tmp_path / "state"))
    assert run(tmp_path, "explain", str(container.bundle)) == 0
    assert "+++" in capsys.readouterr().out
    (container.bundle / "config.json").write_text("{}")
    assert run(tmp_path, "explain", str(container.bundle)) == 1
    assert "was not changed by gpushim" in capsys.readouterr().err
    assert run(tmp_path, "explain", str(tmp_path / "none/")) == 1


def test_a_bundle_that_is_gone(tmp_path: Path) -> None:
    assert explain.specs({"bundle": str(tmp_path), "config": str(tmp_path / "c.json")}) == (
        None,
        None,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="uninstall removes system files")
def test_uninstall_with_live_containers_is_finished_later(tmp_path: Path, capsys: Capture) -> None:
    container = Container(tmp_path, ID)
    places = container.places
    for path in (places.launcher, places.driver_trees + "/550/x", places.default_log_file):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("x")
    state = (Path(places.driver_trees), Path(places.containers))
    assert run(tmp_path, "uninstall") == 1
    assert ID in capsys.readouterr().err
    assert os.path.exists(places.launcher)
    assert run(tmp_path, "uninstall", "--force") == 0
    assert "stay, with records" in capsys.readouterr().out
    assert not os.path.exists(places.launcher)
    assert all(path.exists() for path in state)
    for more in ([], ["--purge"]):
        assert run(tmp_path, "uninstall", *more) == 1
        assert ID in capsys.readouterr().err
    assert run(tmp_path, "uninstall", "--force") == 0
    assert not any(path.exists() for path in state)
    assert run(tmp_path, "uninstall", "--purge") == 0
    assert not os.path.exists(places.log)
    capsys.readouterr()
    assert run(tmp_path, "uninstall") == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="uninstall removes system files")
def test_state_goes_with_the_last_container(tmp_path: Path) -> None:
    container = Container(tmp_path, ID)
    Path(container.places.driver_trees).mkdir(parents=True)
    records.remove(container.places.containers, ID, str(tmp_path / "state"))
    assert run(tmp_path, "uninstall") == 0
    assert not os.path.exists(container.places.lib)
    assert not os.path.exists(container.places.run)
