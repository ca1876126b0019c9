"""gpushimctl cdi: devices of the Container Device Interface, and the spec files that describe them.

Each action is a module of this package with `add` and `run`, as a verb is.
"""

from __future__ import annotations

import argparse
from types import ModuleType

from ..places import Places
from . import cdi_generate, cdi_list, cdi_show, cdi_validate

# Name -> module with `add` and `run`, what it does; in the order of help.
ACTIONS: dict[str, tuple[ModuleType, str]] = {
    "list": (cdi_list, "list the devices that the spec files describe"),
    "show": (cdi_show, "show what a device changes in a container, and which file says so"),
    "validate": (cdi_validate, "check spec files"),
    "generate": (cdi_generate, "write this machine's GPUs as a CDI spec"),
}


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (module, text) in ACTIONS.items():
        action = actions.add_parser(
            name,
            help=text,
            description=text + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add(action)


def run(arguments: argparse.Namespace, places: Places) -> int:
    module, _ = ACTIONS[arguments.action]
    status: int = module.run(arguments, places)
    return status
