"""What spec files say is kept, and read anew as soon as anything of it changes."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpushim.cdi import state as cdi_state
from gpushim.cdi.collect import collect, known_features
from gpushim.cdi.registry import Registry, read
from gpushim.cdi.state import current, features, load
from gpushim.config_file import read as read_config
from gpushim.errors import GpushimError
from gpushim.places import Places

from .specs import age, spec, write

NAME = "vendor.com/class=x"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A private installation with two directories of spec files."""
    made = Places(str(tmp_path))
    directories = [str(tmp_path / name) for name in ("low", "high")]
    text = f"[cdi]\nspec-dirs = {json.dumps(directories)}\n"
    age(write(Path(made.config), text))
    write(Path(made.installation), {"format": 1, "refresh_interpreter": sys.executable})
    write(tmp_path / "low/a.json", spec("x"))
    return made


def kept(places: Places) -> dict[str, Any]:
    state = collect(places, read_config(places.config))
    assert load(places) == state
    return state


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited": lambda p: write(p / "low/a.json", spec("x", "y")),
    "edited within the same size": lambda p: (p / "low/a.json").write_text(
        (p / "low/a.json").read_text().replace("DEVICE", "DEVIZE")
    ),
    "replaced": lambda p: os.replace(write(p / "low/new", spec("x", "y")), p / "low/a.json"),
    "touched": lambda p: os.utime(p / "low/a.json"),
    "removed": lambda p: (p / "low/a.json").unlink(),
    "added": lambda p: write(p / "low/b.json", spec("z")),
    "added in a new directory": lambda p: write(p / "high/b.yaml", "x"),
    "directory gone": lambda p: os.rename(p / "low", p / "gone"),
    "configuration": lambda p: (p / "etc/gpushim/config.toml").write_text(""),
    "configuration gone": lambda p: (p / "etc/gpushim/config.toml").unlink(),
    "state gone": lambda p: (p / "run/gpushim/cdi.json").unlink(),
    "state of another format": lambda p: (p / "run/gpushim/cdi.json").write_text('{"format":0}'),
    "state without anything": lambda p: (p / "run/gpushim/cdi.json").write_text('{"format":1}'),
    "state cut off": lambda p: (p / "run/gpushim/cdi.json").write_text('{"format":1,"ver'),
    "state that others may write": lambda p: (p / "run/gpushim/cdi.json").chmod(0o666),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_no_longer_holds_once_anything_changed(
    change: str, places: Places, tmp_path: Path
) -> None:
    kept(places)
    CHANGES[change](tmp_path)
    assert load(places) is None


UNRELATED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda p: None,
    "other names": lambda p: write(p / "low/a.json.tmp", "x"),
    "a directory beneath": lambda p: write(p / "low/sub/c.json", "x"),
}


@pytest.mark.parametrize("change", UNRELATED)
def test_it_holds_while_nothing_of_it_changed(change: str, places: Places, tmp_path: Path) -> None:
    state = kept(places)
    UNRELATED[change](tmp_path)
    assert load(places) == state
    assert collect(places, read_config(places.config)) == state
    assert load(places) == state


def test_another_version_of_gpushim_reads_anew(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(places)
    monkeypatch.setattr(cdi_state, "__version__", "99")
    assert load(places) is None


def test_the_state_of_a_newer_format_is_refused(places: Places) -> None:
    write(Path(places.cdi), {"format": 99})
    with pytest.raises(GpushimError, match="newer gpushim"):
        load(places)


def test_a_file_that_is_being_written_is_read_once_more(places: Places, tmp_path: Path) -> None:
    """Its time would not tell a second write within the same tick of the kernel's clock."""
    (tmp_path / "low/b.json").write_text(json.dumps(spec("y")))
    assert "vendor.com/class=y" in kept(places)["devices"]


def test_what_keeps_changing_is_not_kept(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "low/b.json", spec("y"))

    def read_and_touch(directories: list[str]) -> Registry:
        os.utime(path)
        return read(directories)

    monkeypatch.setattr("gpushim.cdi.collect.read", read_and_touch)
    state = collect(places, read_config(places.config))
    assert "vendor.com/class=y" in state["devices"]
    assert not os.path.exists(places.cdi)


def test_a_place_that_cannot_be_written(places: Places, tmp_path: Path) -> None:
    places.run = str(tmp_path / "low/a.json")
    state = collect(places, read_config(places.config))
    assert "x" in state["specs"][state["devices"][NAME]]["content"]["devices"]


def test_a_create_reads_them_in_a_child(places: Places, tmp_path: Path) -> None:
    assert NAME in current(places)["devices"]
    assert load(places) is not None
    # An edit of a moment ago counts.
    (tmp_path / "low/a.json").write_text(json.dumps(spec("y")))
    assert list(current(places)["devices"]) == ["vendor.com/class=y"]


def test_without_a_change_there_is_no_child(places: Places) -> None:
    state = kept(places)
    os.unlink(places.installation)
    assert current(places) == state


def test_a_child_without_a_place_for_the_state(places: Places, tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    places.run = str(tmp_path / "file/run")
    assert NAME in current(places)["devices"]


def test_many_at_once_run_one_child(places: Places) -> None:
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(list(current(places)["devices"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[NAME]] * 4


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "record of gpushim's installation"),
        ({"refresh_interpreter": "/nonexistent"}, "cannot be started"),
        ({"refresh_interpreter": "/bin/false"}, r"could not be read \(status 1\)"),
        ({"refresh_interpreter": "/bin/echo"}, r"could not be read \(status 0\): -I -m gpushim"),
    ],
)
def test_a_child_that_fails(record: Any, said: str, places: Places) -> None:
    if record is None:
        os.unlink(places.installation)
    else:
        write(Path(places.installation), record)
    with pytest.raises(GpushimError, match=said):
        current(places)


def test_what_a_spec_says_is_read_by_those_alone_that_need_it(
    places: Places, tmp_path: Path
) -> None:
    write(tmp_path / "low/b.json", spec("y", kind="v/k"))
    kept(places)
    found = current(places, ["v/k=y", "v/k=unknown"])
    assert ["content" in one for one in found["specs"]] == [False, True]
    assert found["specs"][1]["content"]["devices"] == {"y": {"env": ["DEVICE_y=v/k"]}}
    assert len(os.listdir(places.cdi_specs)) == 2


def test_what_is_no_longer_said_is_not_kept(places: Places, tmp_path: Path) -> None:
    kept(places)
    before = set(os.listdir(places.cdi_specs))
    write(tmp_path / "low/a.json", spec("z"))
    kept(places)
    after = set(os.listdir(places.cdi_specs))
    assert len(after) == 1
    assert not before & after


@pytest.mark.parametrize("damage", ["gone", "cut off", "open"])
def test_a_damaged_content_is_made_anew(damage: str, places: Places) -> None:
    kept(places)
    [name] = os.listdir(places.cdi_specs)
    path = Path(places.cdi_specs, name)
    if damage == "gone":
        path.unlink()
    elif damage == "cut off":
        path.write_text(path.read_text()[:20])
    else:
        path.chmod(0o666)
    found = current(places, [NAME])
    assert found["specs"][0]["content"]["devices"] == {"x": {"env": ["DEVICE_x=vendor.com/class"]}}


def test_a_wrong_configuration_is_told(places: Places) -> None:
    write(Path(places.config), "[cdi]\nspec-dirs = 5\n")
    with pytest.raises(GpushimError, match="spec-dirs"):
        current(places)


RUNTIME = """#!/bin/sh
echo 'level=warning msg="something"' >&2
cat <<'END'
{
  "ociVersionMin": "1.0.0",
  "mountOptions": ["idmap", "ridmap", "ro"],
  "linux": {
    "netDevices": {"enabled": true},
    "intelRdt": {"enabled": true, "schemata": true, "monitoring": false}
  }
}
END
"""
NONE = dict.fromkeys(["netDevices", "schemata", "monitoring", "idmap", "ridmap"], False)


def runtime(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (RUNTIME, {**NONE, "netDevices": True, "schemata": True, "idmap": True, "ridmap": True}),
        ("#!/bin/sh\necho unknown command features >&2\nexit 1\n", NONE),
        ("#!/bin/sh\necho '{\"linux\": null}'\n", NONE),
        ("#!/bin/sh\necho '{\"linux\": {\"netDevices\": true}}'\n", NONE),
        ("#!/bin/sh\necho '{\"mountOptions\": \"idmap\"}'\n", NONE),
        ("#!/bin/sh\necho '{'\n", NONE),
        ("#!/bin/sh\necho '[1]'\n", NONE),
        ("", NONE),
    ],
)  # fmt: skip
def test_features_of_low_level_runtimes(text: str, known: Any, tmp_path: Path) -> None:
    assert known_features(runtime(tmp_path / "runc", text)) == known


def test_a_runtime_that_is_not_there_knows_nothing() -> None:
    assert known_features("/nonexistent/runc") == NONE


def test_a_runtime_is_asked_once(places: Places, tmp_path: Path) -> None:
    path = runtime(tmp_path / "runc", RUNTIME)
    age(Path(path))
    assert features(places, current(places), path)["netDevices"]
    os.unlink(places.installation)
    assert features(places, current(places), path)["netDevices"]


def test_a_runtime_that_was_replaced_is_asked_again(places: Places, tmp_path: Path) -> None:
    path = runtime(tmp_path / "runc", RUNTIME)
    other = runtime(tmp_path / "other", "#!/bin/sh\necho {}\n")
    assert features(places, current(places), path)["netDevices"]
    assert not features(places, current(places), other)["netDevices"]
    runtime(tmp_path / "runc", "#!/bin/sh\nexit 1\n")
    assert not features(places, current(places), path)["netDevices"]
    # What is known of others stays known when spec files are read anew.
    write(tmp_path / "low/b.json", spec("y"))
    state = current(places)
    os.unlink(places.installation)
    assert not features(places, state, other)["netDevices"]
