"""``python -m tests.bench``: measures, prints a table, and exits with what it says.

0: every bar holds; 1: one is missed; 2: the machine was too noisy to tell; 3: it can't be
measured here, for the reason that is printed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.images import ImageUnavailable

from . import profile, report, statistics
from .measure import BenchError, become_subreaper
from .report import Results
from .rig import Rig
from .runs import Run

_REPEATS = 3
_IMPOSSIBLE = 3


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    made.add_argument("-n", "--pairs", type=_positive, default=60, help="pairs per row (60)")
    made.add_argument("--only", metavar="TEXT", default="", help="rows with TEXT in their titles")
    made.add_argument("--json", metavar="FILE", default="", help="write the figures there, too")
    made.add_argument(
        "--profile", action="store_true", help="show where gpushim's own time goes, and no table"
    )
    return made


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least one pair is needed")
    return value


def main(arguments: argparse.Namespace) -> int:
    # A bench that is told to end has containers and mounts to take away first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    become_subreaper()
    rig = Rig()
    try:
        if arguments.profile:
            print(profile.text(rig, arguments.pairs))
            return 0
        return _bench(rig, arguments)
    finally:
        # Ctrl-C once is understood; what it is to end must not stop half-way by a second.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        rig.close()


def _bench(rig: Rig, arguments: argparse.Namespace) -> int:
    run = Run(rig, arguments.only, _say)
    machine = report.facts(rig)
    print("\n".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    results = _until_quiet(run, arguments.pairs)
    print(f"\nMedians over {arguments.pairs} pairs.\n\n{report.table(results)}")
    if arguments.json:
        text = json.dumps(report.to_json(results, machine), indent=2)
        Path(arguments.json).write_text(text + "\n")
    if not results.quiet:
        print("\nNOISY: runc against itself is not within the bounds, so nothing is proven.")
    elif results.status == statistics.MISSED:
        print("\nA bar is missed.")
    return results.status


def _until_quiet(run: Run, pairs: int) -> Results:
    """The first quiet run's results, or the last one's."""
    results = run.measure(pairs)
    for _ in range(_REPEATS):
        if results.quiet:
            break
        _say("The machine was noisy: once more.")
        results = run.measure(pairs)
    return results


def _say(sentence: str) -> None:
    """Progress, for whoever watches; the table alone goes to stdout."""
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(parser().parse_args()))
    except (BenchError, ImageUnavailable) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(_IMPOSSIBLE)
    except KeyboardInterrupt:
        sys.exit(130)
