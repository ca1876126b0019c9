"""gpushimctl doctor: what keeps GPUs from working in containers, and what to do about it."""

from __future__ import annotations

import argparse

from ..errors import GpushimError, harmless
from ..places import Places
from .check_result import FAIL, OK, SKIP, WARN, Result
from .checks import CHECKS, Context, UnreadableConfigError
from .output import print_json, say

# Exit status: the worst that was found.
_STATUS = {OK: 0, SKIP: 0, WARN: 1, FAIL: 2}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="run only this check, or a group such as device (repeatable)",
    )
    parser.add_argument(
        "--skip",
        metavar="ID",
        action="append",
        default=[],
        help="leave this check out (repeatable)",
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    """Exit status: 0 if all is well, 1 with warnings, 2 if something fails."""
    chosen = choose(arguments.only, arguments.skip)
    context = Context(places)
    results = {name: examine(name, context) for name in chosen}
    if arguments.json:
        print_json(
            {
                name: {"status": result.status, "seen": result.seen, "advice": result.advice}
                for name, result in results.items()
            }
        )
    else:
        for name, result in results.items():
            say(f"{result.status:4} {name}: {result.seen}")
            if result.advice:
                say(f"     {result.advice}")
    return max((_STATUS[result.status] for result in results.values()), default=0)


def choose(only: list[str], skip: list[str]) -> list[str]:
    """The ids of the checks to run, in their order. Raises GpushimError for an unknown one.

    An id, or the part of it before the dot for all that begin so.
    """
    for name in (*only, *skip):
        if not any(_means(name, check) for check in CHECKS):
            raise GpushimError(f"There is no check {name}; there are {', '.join(CHECKS)}.")
    return [
        check
        for check in CHECKS
        if (not only or any(_means(name, check) for name in only))
        and not any(_means(name, check) for name in skip)
    ]


def _means(name: str, check: str) -> bool:
    return name in (check, check.partition(".")[0])


def examine(name: str, context: Context) -> Result:
    """One check. Whatever goes wrong in it is its result: the others still run."""
    try:
        return CHECKS[name](context)
    except UnreadableConfigError:
        return Result(SKIP, "The configuration can't be read.")
    except Exception as error:
        told = str(error) if isinstance(error, GpushimError) else f"{type(error).__name__}: {error}"
        return Result(FAIL, f"The check itself failed: {harmless(told)}.")
