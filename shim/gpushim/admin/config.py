"""gpushimctl config: the values that hold, where each comes from, and whether the file is right."""

from __future__ import annotations

import argparse
import os

from ..errors import GpushimError
from ..places import Places
from .output import print_json, print_table, say, warn


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["show", "check"],
        default="show",
        help="show the effective values (the default), or check the file",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--markdown", action="store_true", help="print the documentation of all keys"
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    from .. import config_file, launcher_settings
    from . import config_text

    if arguments.markdown:
        print(config_text.markdown(), end="")
        return 0
    try:
        config = config_file.read(places.config)
    except GpushimError as error:
        if arguments.action == "check":
            # Its hint would be to run what is running.
            if arguments.json:
                print_json({"path": places.config, "valid": False, "reason": error.sentence})
            else:
                warn(error.sentence)
            return error.exit_status
        raise
    changed = [name for name, source in config.sources.items() if source != "default"]
    if arguments.action == "check":
        problem = launcher_settings.problem(config, places, os.environ.get("PATH", ""))
        if arguments.json:
            shown = {"path": places.config, "valid": not problem, "keys": changed}
            print_json({**shown, "reason": problem} if problem else shown)
        elif problem:
            warn(problem)
        elif changed:
            say(f"{places.config} is right and sets {', '.join(changed)}.")
        else:
            say(f"{places.config} is right and sets nothing: all defaults hold.")
        return 1 if problem else 0
    if arguments.json:
        print_json(
            {
                name: {"value": value, "source": config.sources[name]}
                for name, value in config.values.items()
            }
        )
        return 0
    rows = [
        (name, config.sources[name], config_text.toml(value))
        for name, value in config.values.items()
    ]
    print_table(("key", "source", "value"), rows, 2)
    return 0
