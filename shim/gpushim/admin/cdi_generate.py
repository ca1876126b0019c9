"""gpushimctl cdi generate: this machine's GPUs as a CDI spec, for engines without gpushim."""

from __future__ import annotations

import argparse
import os
import sys

from ..cdi import registry, write
from ..cdi.document import ENDINGS
from ..cdi.names import kind_problem
from ..errors import GpushimError, why
from ..host.model import capability_key
from ..oci.files import make_directories, real_path, write_whole
from ..places import Places
from ..snapshot import Snapshot, load, obtain
from . import installation, refresh
from .cdi_edits import Wanted, common_edits, device_edits_of, notes
from .output import warn

LAYOUTS = ("tree", "files")
NAMES = ("index", "uuid", "both")
EPILOG = """\
examples:
  gpushimctl cdi generate --output /etc/cdi/nvidia.yaml
  docker run --device nvidia.com/gpu=0 IMAGE        by index; by UUID; all; 0:1 for a MIG device
  gpushimctl cdi generate --no-hook --format json   runs no program of gpushim's

The spec names files of this driver and devices of this layout of GPUs: make it anew when either
changes.

exit status: 0 or, with a sentence on standard error, 1"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--output", metavar="FILE", help="write it there as a whole, and not to standard output"
    )
    parser.add_argument(
        "--format", choices=write.FORMATS, help="by default what FILE ends in, else yaml"
    )
    parser.add_argument(
        "--layout", choices=LAYOUTS, help="by default inject.layout of the configuration"
    )
    parser.add_argument(
        "--no-hook",
        action="store_true",
        help="name the driver's directories in LD_LIBRARY_PATH, in place of a hook that makes "
        "each image's own loader find them",
    )
    parser.add_argument(
        "--name",
        choices=NAMES,
        default="both",
        help="how devices are named: 0 and 0:1, by UUID, or both (the default)",
    )
    parser.add_argument(
        "--capabilities",
        metavar="LIST",
        default="all",
        help="driver capabilities whose files are in it, as in NVIDIA_DRIVER_CAPABILITIES "
        "(default: all that the configuration supports)",
    )
    parser.add_argument(
        "--no-all-device", action="store_true", help="leave out the device that means all GPUs"
    )


def run(arguments: argparse.Namespace, places: Places) -> int:
    installation.require(places)
    if load(places) is None:
        refresh.refuse_without_place(places, "cdi generate")
    snapshot, wanted = _wanted(arguments, places)
    devices, said = device_edits_of(wanted, snapshot, places)
    common = common_edits(wanted, snapshot, places)
    named = [(_names(arguments.name, device.names), device.edits) for device in devices]
    if arguments.no_all_device:
        named = [(names, edits) for names, edits in named if names != ["all"]]
    kind = snapshot.config.text("cdi.default-kind")
    if kind_problem(kind):
        raise GpushimError(f"cdi.default-kind is {kind!r}: {kind_problem(kind)}.")
    text = write.as_text(write.document(kind, named, common), _format(arguments))
    if arguments.output:
        path = os.path.abspath(arguments.output)
        _write(path, text)
        said += remarks(path, snapshot.config.texts("cdi.spec-dirs"))
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    for sentence in [*snapshot.problems, *said, *notes(wanted, snapshot)]:
        warn(sentence)
    return 0


def _wanted(arguments: argparse.Namespace, places: Places) -> tuple[Snapshot, Wanted]:
    """What is to be in it, with a snapshot that has the driver tree for that."""
    snapshot = obtain(places, capability_key(["compute", "utility"]))
    supported = snapshot.config.texts("request.supported-driver-capabilities")
    capabilities = capabilities_of(arguments.capabilities, supported)
    if not snapshot.has_tree(capability_key(capabilities)):
        snapshot = obtain(places, capability_key(capabilities))
    layout = arguments.layout or snapshot.config.text("inject.layout")
    hook = not arguments.no_hook
    return snapshot, Wanted(capabilities, layout == "files", hook)


def capabilities_of(text: str, supported: list[str]) -> list[str]:
    """The driver capabilities of a list, sorted; `all` are what is supported here."""
    names = {name.strip() for name in text.split(",")} - {""}
    if "all" in names:
        return sorted(supported)
    refused = sorted(names.difference(supported))
    if refused or not names:
        wrong = f"names {refused[0]!r}" if refused else "names none"
        raise GpushimError(
            f"--capabilities {wrong}; the driver capabilities here are "
            f"{', '.join(sorted(supported))} (request.supported-driver-capabilities)."
        )
    return sorted(names)


def _names(which: str, names: list[str]) -> list[str]:
    """A device's names of one sort; names: index and UUID, or `all` alone."""
    if len(names) < 2 or which == "both":
        return names
    return [names[NAMES.index(which)]]


def _format(arguments: argparse.Namespace) -> str:
    if arguments.format:
        return str(arguments.format)
    return "json" if (arguments.output or "").endswith(".json") else "yaml"


def _write(path: str, text: str) -> None:
    if os.path.isdir(path):
        raise GpushimError(f"{path} is a folder.", "Name a file in it, such as nvidia.yaml.")
    try:
        make_directories(os.path.dirname(path))
        write_whole(path, text.encode(), 0o644)
    except OSError as error:
        raise GpushimError(f"{path} can't be written: {why(error)}.") from None


def remarks(path: str, directories: list[str]) -> list[str]:
    """What keeps the spec that was written to `path` from being used, in sentences.

    directories: those that are read for specs, the later ones outranking the earlier.
    """
    directory, name = os.path.split(real_path(path))
    if directory not in [real_path(one) for one in directories]:
        return [
            f"{path} is in none of the directories that are read for CDI specs "
            f"({', '.join(directories)}; cdi.spec-dirs)."
        ]
    if not name.endswith(ENDINGS):
        return [f"{path} is not read as a CDI spec: its name ends in neither .json nor .yaml."]
    found = registry.read([real_path(one) for one in directories])
    spec = next((one for one in found.specs if one.path == f"{directory}/{name}"), None)
    names = [f"{spec.kind}={device}" for device in spec.devices] if spec else []
    twice = {other for one in names for other in found.conflicts.get(one, [])}
    outranked = {found.devices[one].path for one in names if one in found.devices}
    said = []
    if twice:
        said.append(
            f"Several files of one directory describe the same devices, so that none of these can "
            f"be used: {', '.join(sorted(twice))}. Leave only one of them there."
        )
    if outranked - {f"{directory}/{name}"}:
        others = ", ".join(sorted(outranked - {f"{directory}/{name}"}))
        said.append(f"Devices of the same names in {others} outrank those of {path}.")
    return said
