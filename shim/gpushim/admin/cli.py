"""gpushimctl: its command line. Each verb is a module of this package with `add` and `run`."""

from __future__ import annotations

import argparse
import os
import sys
from types import ModuleType

from .. import __version__
from ..errors import GpushimError
from ..places import Places
from . import config, doctor, explain, install, inventory, refresh, uninstall, version
from .output import warn

VERBS: dict[str, tuple[ModuleType, str]] = {
    "install": (install, "put gpushim on this machine and register it with Docker"),
    "uninstall": (uninstall, "undo what install did"),
    "doctor": (doctor, "look for what keeps GPUs from working in containers"),
    "inventory": (inventory, "show this machine's GPUs and driver"),
    "explain": (explain, "show what was decided for a container, and why"),
    "config": (config, "show or check the configuration"),
    "refresh": (refresh, "look at GPUs, driver files and configuration anew"),
    "version": (version, "show versions of gpushim and what it works with"),
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpushimctl",
        description="Administration of gpushim, the OCI runtime that gives containers their GPUs.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"gpushim {__version__}")
    made.add_argument(
        "--root",
        metavar="DIR",
        default="",
        help="work on a private installation whose files all lie beneath DIR",
    )
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (module, text) in VERBS.items():
        module.add(verbs.add_parser(name, help=text, description=text + ".", allow_abbrev=False))
    return made


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 for what a sentence on stderr tells, 2 for a wrong command line."""
    arguments = parser().parse_args(argv)
    places = Places(os.path.abspath(arguments.root) if arguments.root else "")
    module, _ = VERBS[arguments.verb]
    try:
        status: int = module.run(arguments, places)
    except GpushimError as error:
        warn(str(error))
        return error.exit_status
    except BrokenPipeError:
        # The reader of our output has gone; so has the interest in the rest of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
