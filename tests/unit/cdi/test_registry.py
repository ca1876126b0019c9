"""Directories of spec files: what counts, precedence, conflicts, broken files (facts C)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from gpushim.cdi.collect import plain, problems
from gpushim.cdi.registry import Registry, read, spec_files

from .specs import spec, write


def made(tmp_path: Path, files: dict[str, Any]) -> Registry:
    for name, data in files.items():
        write(tmp_path / name, data)
    return read([str(tmp_path / name) for name in ("low", "high")])


def chosen(registry: Registry, tmp_path: Path) -> dict[str, str]:
    return {
        name.removeprefix("vendor.com/class="): spec.path.removeprefix(f"{tmp_path}/")
        for name, spec in registry.devices.items()
    }


@pytest.mark.parametrize(
    ("files", "devices", "conflicts"),
    [
        ({}, {}, {}),
        ({"low/a.json": spec("x")}, {"x": "low/a.json"}, {}),
        ({"low/a.json": spec("x"), "high/a.json": spec("x")}, {"x": "high/a.json"}, {}),
        (
            {"low/a.json": spec("x", "y"), "high/a.json": spec("x", "z")},
            {"x": "high/a.json", "y": "low/a.json", "z": "high/a.json"},
            {},
        ),
        (
            {"low/a.json": spec("x", "y"), "low/b.json": spec("x", "z")},
            {"y": "low/a.json", "z": "low/b.json"},
            {"x": ["low/a.json", "low/b.json"]},
        ),
        (
            {"low/a.json": spec("x"), "low/b.json": spec("x"), "high/c.json": spec("x")},
            {"x": "high/c.json"},
            {},
        ),
        (
            {"low/a.json": spec("x"), "high/b.json": spec("x"), "high/c.json": spec("x")},
            {},
            {"x": ["high/b.json", "high/c.json"]},
        ),
        (
            {f"low/{n}.json": spec("x") for n in "abc"},
            {},
            {"x": ["low/a.json", "low/b.json", "low/c.json"]},
        ),
        # Of another kind it is another device.
        ({"low/a.json": spec("x"), "low/b.json": spec("x", kind="v/c")},
         {"x": "low/a.json", "v/c=x": "low/b.json"}, {}),
    ],
)  # fmt: skip
def test_precedence_and_conflicts(
    files: dict[str, Any], devices: Any, conflicts: Any, tmp_path: Path
) -> None:
    registry = made(tmp_path, files)
    assert chosen(registry, tmp_path) == devices
    assert registry.conflicts == {
        f"vendor.com/class={name}": [f"{tmp_path}/{path}" for path in paths]
        for name, paths in conflicts.items()
    }
    assert not registry.errors


def test_what_is_a_spec_file(tmp_path: Path) -> None:
    """Facts C: *.json and *.yaml, no .yml, no recursion."""
    names = ["a.json", "b.yaml", "c.yml", "d.JSON", "e.txt", "json", ".f.json", "sub/g.json"]
    for name in names:
        write(tmp_path / "low" / name, spec(name[:1].strip(".") or "f"))
    (tmp_path / "low" / "dir.json").mkdir()
    found = [path.rpartition("/")[2] for path in spec_files(str(tmp_path / "low"))]
    assert found == [".f.json", "a.json", "b.yaml"]
    (tmp_path / "low" / "gone.json").symlink_to(tmp_path / "nowhere")
    assert (
        "does not exist"
        in read([str(tmp_path / "low")]).errors[f"{tmp_path}/low/gone.json"].sentence
    )


def test_a_missing_directory_is_fine(tmp_path: Path) -> None:
    registry = read([str(tmp_path / "absent")])
    assert not registry.devices
    assert not registry.errors


def test_a_directory_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    registry = read([str(tmp_path / "file")])
    assert "cannot be read" in registry.errors[str(tmp_path / "file")].sentence


def test_a_directory_that_everybody_may_write_to_counts_for_nothing(tmp_path: Path) -> None:
    write(tmp_path / "low/a.json", spec("x"))
    (tmp_path / "low").chmod(0o1777)
    registry = read([str(tmp_path / "low")])
    assert not registry.devices
    assert "written by everybody" in registry.errors[f"{tmp_path}/low"].sentence


def test_a_broken_file_costs_only_its_own_devices(tmp_path: Path) -> None:
    registry = made(
        tmp_path,
        {"low/a.json": spec("x"), "low/b.json": spec("y", "y"), "high/c.yaml": "x: ["},
    )
    assert chosen(registry, tmp_path) == {"x": "low/a.json"}
    assert list(registry.errors) == [f"{tmp_path}/low/b.json", f"{tmp_path}/high/c.yaml"]
    assert [error.kind for error in registry.errors.values()] == ["vendor.com/class", ""]


def test_a_broken_file_of_a_higher_directory_does_not_hide(tmp_path: Path) -> None:
    registry = made(tmp_path, {"low/a.json": spec("x"), "high/a.json": spec("x", "x")})
    assert chosen(registry, tmp_path) == {"x": "low/a.json"}


def test_the_result_does_not_depend_on_the_names_of_files(tmp_path: Path) -> None:
    """Within a directory the order of the files has no meaning."""
    specs = [spec("x", "y"), spec("y", "z"), spec("w")]
    results = set()
    for number, order in enumerate(itertools.permutations("abc")):
        base = tmp_path / str(number)
        for name, data in zip(order, specs, strict=True):
            write(base / f"{name}.json", data)
        registry = read([str(base)])
        results.add((frozenset(registry.devices), frozenset(registry.conflicts)))
    assert results == {
        (
            frozenset(f"vendor.com/class={name}" for name in "xzw"),
            frozenset(["vendor.com/class=y"]),
        )
    }


def test_as_plain_data(tmp_path: Path) -> None:
    registry = made(
        tmp_path,
        {
            "low/a.json": spec("x", edits={"env": ["G=1"]}),
            "low/b.json": spec("y"),
            "low/c.json": spec("y"),
            "low/d.json": "{",
        },
    )
    data = plain(registry)
    described = data["specs"][data["devices"]["vendor.com/class=x"]]
    assert described["path"] == f"{tmp_path}/low/a.json"
    assert described["content"] == {
        "format": 1,
        "edits": {"env": ["G=1"]},
        "devices": {"x": {"env": ["DEVICE_x=vendor.com/class"]}},
    }
    assert "vendor.com/class=y" not in data["devices"]
    first, second = problems(data)
    assert first.startswith(f"{tmp_path}/low/d.json, line 1")
    assert second == (
        "The CDI device vendor.com/class=y is described by several files: "
        f"{tmp_path}/low/b.json, {tmp_path}/low/c.json."
    )
