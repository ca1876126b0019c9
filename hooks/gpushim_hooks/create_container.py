"""The createContainer hook that specs of `gpushimctl cdi generate` name.

Run as `python3 -I -m gpushim_hooks.create_container --NAME=VALUE...` by the low-level runtime, with
the container's state on standard input. What it does is in gpushim.inject.hookcontainer.
"""

from __future__ import annotations

import sys

from gpushim.errors import GpushimError, harmless, why
from gpushim.inject.hookcontainer import run
from gpushim.inject.hookoptions import parse


def main(arguments: list[str]) -> int:
    """Exit status 0, or 1 with the reason in one sentence: then the container does not start."""
    try:
        warnings = run(_state(), parse(arguments))
    except GpushimError as error:
        print(f"gpushim: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        reason = why(error) if isinstance(error, OSError) else harmless(str(error))
        print(f"gpushim: The createContainer hook failed: {reason}.", file=sys.stderr)
        return 1
    for warning in warnings:
        print(f"gpushim: {harmless(warning)}", file=sys.stderr)
    return 0


def _state() -> str:
    """The container's state; raises GpushimError if standard input does not give it."""
    if sys.stdin is None:  # it was closed before the interpreter started
        raise GpushimError("Standard input, which has the container's state, is closed.")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise GpushimError("The container's state on standard input is not UTF-8.") from None
    except OSError as error:
        raise GpushimError(
            f"The container's state on standard input can't be read: {why(error)}."
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
