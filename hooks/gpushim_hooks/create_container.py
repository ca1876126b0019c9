"""The createContainer hook that specs of `gpushimctl cdi generate` name.

Run as `python3 -I -m gpushim_hooks.create_container --NAME=VALUE...` by the low-level runtime, with
the container's state on standard input. What it does is in gpushim.inject.hookcontainer.
"""

from __future__ import annotations

import sys

from gpushim.errors import GpushimError, harmless
from gpushim.inject.hookcontainer import run
from gpushim.inject.hookoptions import parse


def main(arguments: list[str]) -> int:
    """Exit status 0, or 1 with the reason in one sentence: then the container does not start."""
    try:
        warnings = run(sys.stdin.read(), parse(arguments))
    except GpushimError as error:
        print(f"gpushim: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"gpushim: The createContainer hook failed: {harmless(str(error))}.", file=sys.stderr)
        return 1
    for warning in warnings:
        print(f"gpushim: {harmless(warning)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
