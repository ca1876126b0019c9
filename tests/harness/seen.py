"""What the probe (tests/images) was asked in a container, and what it said."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.bundle import PROBE

CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
NODES = [*(f"/dev/{name}" for name in CONTROL), *(f"/dev/nvidia{minor}" for minor in range(8))]


def probe(*commands: Sequence[str]) -> list[str]:
    """The arguments of a container that runs these commands of the probe, one after the other."""
    words = [PROBE]
    for number, command in enumerate(commands):
        words += (["--"] if number else []) + list(command)
    return words


def outcomes(text: str) -> dict[str, str]:
    """What the probe said of each path or name: "ENXIO", "EPERM", "OK", or what dlopen found."""
    found = {}
    for line in text.splitlines():
        name, arrow, path = line.partition(" -> ")
        if arrow:
            found[name] = path
        elif line.count(" ") == 1:
            name, _, outcome = line.partition(" ")
            found[name] = outcome
    return found


def devices(text: str) -> dict[str, str]:
    """What opening each of ``NODES`` gave, without those that are not there."""
    return {
        path.removeprefix("/dev/"): outcome
        for path, outcome in outcomes(text).items()
        if path.startswith("/dev/nvidia") and outcome != "ENOENT"
    }


def variables(text: str) -> dict[str, str]:
    """What the probe's `env` printed."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def mount_points(text: str) -> set[str]:
    """The mount points in what the probe's `mounts` printed."""
    return {line.split()[4] for line in text.splitlines() if " - " in line}
