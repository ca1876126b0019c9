"""python3 -m tests.fakehost DIR --gpus 8: a fake host from the command line."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from typing import Any

from . import PRESETS, Description, build


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.fakehost",
        description="Builds a fake NVIDIA host in DIR and prints gpushim's [host] section for it, "
        "for `gpushimctl --root ROOT install --config-from FILE`.",
        epilog="Containers that a real engine runs on a machine without NVIDIA's driver need a "
        "host with --modify-device-files 0: their /proc is the kernel's own, and the hook that "
        "covers the driver's params file would have nothing to mount on. docs/try-without-gpu.md "
        "has the commands.",
    )
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--preset", choices=sorted(PRESETS), help="a machine that people own")
    parser.add_argument("--gpus", type=int, metavar="N")
    parser.add_argument("--model", metavar="NAME")
    parser.add_argument("--driver", metavar="VERSION")
    parser.add_argument("--cuda", metavar="VERSION")
    parser.add_argument("--numa-nodes", type=int, metavar="N")
    parser.add_argument("--gpus-per-switch", type=int, metavar="N")
    parser.add_argument("--nvlink", choices=("none", "pairs", "mesh", "nvswitch"))
    parser.add_argument("--nvswitches", type=int, metavar="N")
    parser.add_argument("--minors", choices=("same", "reversed"))
    parser.add_argument("--layout", choices=("debian", "ubuntu", "fedora", "rhel", "suse", "arch"))
    parser.add_argument(
        "--modify-device-files",
        type=int,
        choices=(0, 1),
        help="whether the params file lets programs make device nodes; 0 to run containers",
    )
    parser.add_argument("--uvm-major", type=int, metavar="N")
    parser.add_argument("--seed", metavar="TEXT", help="hosts of other seeds have other UUIDs")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Builds the host; errors that a user can cause are one sentence."""
    options = vars(_arguments().parse_args(arguments))
    directory, chosen = options.pop("directory"), options.pop("preset")
    known = {field.name for field in fields(Description)}
    changes: dict[str, Any] = {k: v for k, v in options.items() if v is not None and k in known}
    try:
        base = PRESETS[chosen]() if chosen else Description()
        host = build(directory, replace(base, **changes))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"fakehost: {error}", file=sys.stderr)
        return 1
    print(host.toml(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
