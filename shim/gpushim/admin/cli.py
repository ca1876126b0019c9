"""gpushimctl: its command line. Each verb is a module of this package with `add` and `run`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from types import ModuleType

from .. import __version__
from ..errors import GpushimError
from ..places import Places
from . import (
    cdi,
    config,
    doctor,
    drain,
    explain,
    install,
    inventory,
    ps,
    queue,
    refresh,
    release,
    reserve,
    run_verb,
    topology,
    undrain,
    uninstall,
    version,
)
from .checks import CHECKS
from .output import warn

VERBS: dict[str, tuple[ModuleType, str]] = {
    "install": (install, "put gpushim on this machine and register it with Docker"),
    "uninstall": (uninstall, "undo what install did"),
    "doctor": (doctor, "look for what keeps GPUs from working in containers"),
    "inventory": (inventory, "show this machine's GPUs and driver"),
    "topology": (topology, "show how GPUs, processors and network adapters are connected"),
    "ps": (ps, "show which containers have which GPUs"),
    "explain": (explain, "show what was decided for a container, and why"),
    "run": (run_verb, "wait until GPUs are free, then start a container that has them"),
    "reserve": (reserve, "wait until GPUs are free, and print a ticket for a container to come"),
    "queue": (queue, "show who waits for GPUs, or take somebody out of the line"),
    "release": (release, "take a container's lease away from it"),
    "drain": (drain, "give GPUs to no more containers, and perhaps stop those that have them"),
    "undrain": (undrain, "give GPUs to containers again"),
    "cdi": (cdi, "list, check and write CDI specs"),
    "config": (config, "show or check the configuration"),
    "refresh": (refresh, "look at GPUs, driver files and configuration anew"),
    "version": (version, "show versions of gpushim and what it works with"),
}


EPILOGS = {
    "install": """\
examples:
  gpushimctl install                  launcher, configuration, and Docker's daemon.json
  gpushimctl install --default        the same, as Docker's default runtime
  gpushimctl install --dry-run        what it would write
  gpushimctl --root DIR install --config DIR/daemon.json --pidfile DIR/docker.pid
                                      all in DIR, for a dockerd of your own

exit status: 0 if all is done, 1 if something was refused or failed (a sentence on standard
error says what is in place nevertheless), 2 for a wrong command line""",
    "uninstall": """\
exit status: 0 if all is done, 1 if it was refused or a running dockerd still knows the
runtime, 2 for a wrong command line""",
    "doctor": """\
ids:
  """
    + "\n  ".join(CHECKS)
    + """

examples:
  gpushimctl doctor --only device --only gpu.mig
  gpushimctl doctor --skip docker

exit status: 0 if all is well, 1 with warnings (or a wrong id), 2 if something fails""",
    "explain": """\
examples:
  gpushimctl explain web              by Docker's name
  gpushimctl explain 3f2a             by the beginning of its id
  gpushimctl explain ./bundle         by its bundle

exit status: 0, or 1 if there is no such container or it got nothing from gpushim""",
    "config": """\
exit status: 0, or 1 if the configuration is wrong or names no usable low-level runtime""",
}


_EXIT_STATUS = "exit status: 0 or, with a sentence on standard error, 1"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpushimctl",
        description="Administration of gpushim, the OCI runtime that gives containers their GPUs.",
        epilog="exit status: 0; 1 for what a sentence on standard error tells (doctor: warnings); "
        "2 for a wrong command line (doctor: something fails). gpushimctl VERB --help has more.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"gpushim {__version__}")
    made.add_argument(
        "--root",
        metavar="DIR",
        default="",
        help="work on a private installation whose files all lie beneath DIR; before the verb",
    )
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (module, text) in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=text,
            description=text + ".",
            epilog=EPILOGS.get(name) or getattr(module, "EPILOG", _EXIT_STATUS),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add(verb)
    return made


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 for what a sentence on stderr tells, 2 for a wrong command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name or a variable may hold bytes that no text has.
            stream.reconfigure(errors="backslashreplace")
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
