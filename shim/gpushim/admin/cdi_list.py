"""gpushimctl cdi list: the devices that the spec files describe, and those that they do not."""

from __future__ import annotations

import argparse

from .. import config_file
from ..cdi.registry import Registry, read
from ..places import Places
from .output import print_json, print_table, say, warn


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def spec_directories(places: Places) -> list[str]:
    """The configured directories of spec files. Raises GpushimError for a wrong configuration."""
    return config_file.read(places.config).texts("cdi.spec-dirs")


def run(arguments: argparse.Namespace, places: Places) -> int:
    directories = spec_directories(places)
    registry = read(directories)
    names = sorted(registry.devices, key=order)
    if arguments.json:
        print_json(as_data(registry, names, directories))
        return 0
    if names:
        print_table(("device", "spec file"), [(n, registry.devices[n].path) for n in names])
    else:
        say(f"No spec file in {', '.join(directories)} describes a device.")
    for problem in registry.problems():
        warn(problem)
    return 0


def as_data(registry: Registry, names: list[str], directories: list[str]) -> dict[str, object]:
    return {
        "spec_dirs": directories,
        "devices": [{"name": name, "spec": registry.devices[name].path} for name in names],
        "conflicts": registry.conflicts,
        "problems": registry.problems(),
    }


def order(name: str) -> tuple[str, list[tuple[bool, int, str]]]:
    """A key by which names of devices sort as people count: 2 before 10."""
    kind, _, device = name.partition("=")
    parts = device.split(":")
    return kind, [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts]
