"""The texts of the programs and system files that install puts on the machine."""

from __future__ import annotations

import os
import re

from ..errors import GpushimError
from ..launcher_settings import shell_quote
from ..places import Places

_PLACEHOLDER = re.compile(r"@([A-Z_]+)@")
CONTROL_MARK = "# gpushimctl wrapper"


def launcher(places: Places, python: str, code: str, refresh: str, settings: dict[str, str]) -> str:
    """The launcher with this installation's paths in it.

    settings: those of the launcher's settings file, as values for when that file is missing.
    """
    with open(f"{code}/gpushim/launcher.sh", encoding="utf-8") as file:
        template = file.read()
    return fill_in(
        template,
        {
            "ROOT": places.root,
            "PYTHON": python,
            "CODE": code,
            "REFRESH_PYTHON": refresh,
            "LOW_LEVEL": settings["low_level"],
            "LOW_LEVEL_FAMILY": settings["low_level_family"],
            "OTHER_LOW_LEVEL": settings["other_low_level"],
            "CONTAINERS": places.containers,
            "SETTINGS": places.launcher_settings,
            "CONFIG": places.config,
        },
    )


def fill_in(template: str, values: dict[str, str]) -> str:
    """`template` with each @NAME@ replaced by its value as one shell word.

    Raises GpushimError for a name that has no value: the template is of another version.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise GpushimError(
                f"The launcher's template asks for {name}, which this gpushimctl does not know.",
                "Its files are of different versions: install gpushim again.",
            )
        return shell_quote(values[name])

    return _PLACEHOLDER.sub(value, template)


def control_link(places: Places, refresh: str) -> str:
    """What <bin>/gpushimctl is to link to; "" where it must be a wrapper instead.

    That is the environment's own script, which a private installation can't use, since it has to
    tell its root.
    """
    script = os.path.join(os.path.dirname(refresh), "gpushimctl")
    return script if not places.root and os.access(script, os.X_OK) else ""


def control_wrapper(places: Places, refresh: str) -> str:
    """A gpushimctl that runs the environment's interpreter."""
    root = f" --root {shell_quote(places.root)}" if places.root else ""
    return (
        f"#!/bin/sh\n{CONTROL_MARK}, made by gpushimctl install.\n"
        f'exec {shell_quote(refresh)} -I -m gpushim.admin.cli{root} "$@"\n'
    )


def tmpfiles(places: Places) -> str:
    """Lines for systemd-tmpfiles(8): /run is empty after a boot, and /var/log may be."""
    lines = [
        "# gpushim's state, which ends with the boot, and its log, which may.",
        *(
            # A path with blanks stands in quotes (tmpfiles.d(5)).
            f'd "{path}" 0755 root root -'
            for path in (places.run, places.containers, places.log)
        ),
        "# Where GPUs are booked, by each user's containers, and where users wait for them.",
        f'd "{places.leases}" 1777 root root -',
        f'd "{places.queue}" 1777 root root -',
        f'f "{places.lease_lock}" 0644 root root -',
    ]
    return "\n".join(lines) + "\n"


def tmpfiles_path(places: Places) -> str:
    return f"{places.root}/etc/tmpfiles.d/gpushim.conf"
