"""gpushimctl version: gpushim and what it works with."""

from __future__ import annotations

import argparse
import os

from .. import __version__, config_file, lowlevel
from ..config_keys import configured
from ..errors import GpushimError
from ..host import driver
from ..places import Places
from . import installation, interpreters
from .output import print_json, print_table


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, places: Places) -> int:
    found = versions(places)
    if arguments.json:
        print_json(found)
        return 0
    rows = [(name, value or "-") for name, value in found.items()]
    print_table(("what", "version"), rows)
    return 0


def versions(places: Places) -> dict[str, str | None]:
    """Versions as texts, None for what is not there or can't be told."""
    try:
        config = config_file.read(places.config)
    except GpushimError:
        config = configured()
    names = config.texts("runtime.low-level-runtimes")
    try:
        path = lowlevel.find(names, os.environ.get("PATH", ""), places.launcher)[0]
        low_level = f"{lowlevel.version(path).partition(chr(10))[0]} ({path})"
    except GpushimError:
        low_level = None
    try:
        record = installation.read(places)
    except GpushimError:
        record = None
    python = record.python if record is not None else None
    number = ".".join(map(str, interpreters.version(python))) if python else ""
    try:
        nvidia = driver.version(config.text("host.proc-root"))
    except GpushimError:
        nvidia = ""
    return {
        "gpushim": __version__,
        "installed": record.version if record is not None else None,
        "low-level runtime": low_level,
        "python": f"{number} ({python})" if number else python,
        "NVIDIA driver": nvidia or None,
    }
