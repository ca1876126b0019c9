"""gpushimctl cdi list: the devices that the spec files describe, and those that they do not."""

from __future__ import annotations

import argparse

from .. import config_file
from ..cdi.collect import plain, problems
from ..cdi.registry import read
from ..places import Places
from .output import print_json, print_table, say, warn


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def spec_directories(places: Places) -> list[str]:
    """The configured directories of spec files. Raises GpushimError for a wrong configuration."""
    return config_file.read(places.config).texts("cdi.spec-dirs")


def run(arguments: argparse.Namespace, places: Places) -> int:
    config = config_file.read(places.config)
    directories = config.texts("cdi.spec-dirs")
    found = plain(read(directories))
    names = sorted(found["devices"], key=order)
    rows = [(name, found["specs"][found["devices"][name]]["path"]) for name in names]
    if arguments.json:
        print_json(
            {
                "spec_dirs": directories,
                "devices": [{"name": name, "spec": path} for name, path in rows],
                "conflicts": found["conflicts"],
                "problems": problems(found),
            }
        )
        return 0
    if rows:
        print_table(("device", "spec file"), rows)
    else:
        say(f"No spec file in {', '.join(directories)} describes a device.")
        warn(
            f"GPUs need none with gpushim, which gives {config.text('cdi.default-kind')}=0 and so "
            "on by itself; `gpushimctl cdi generate` prints one for engines without gpushim."
        )
    for problem in problems(found):
        warn(problem)
    return 0


def order(name: str) -> tuple[str, list[tuple[bool, int, str]]]:
    """A key by which names of devices sort as people count: 2 before 10."""
    kind, _, device = name.partition("=")
    parts = device.split(":")
    return kind, [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts]
