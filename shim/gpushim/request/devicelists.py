"""Devices that are named by mounts of /dev/null beneath /var/run/nvidia-container-devices.

This is how NVIDIA's device plugin for Kubernetes can name them so that a container's environment,
which its image writes, has no say (setting accept-nvidia-visible-devices-as-volume-mounts).
Source: NVIDIA/nvidia-container-toolkit 1.20, internal/config/image (behaviour).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = "/var/run/nvidia-container-devices"
_SOURCE = "/dev/null"
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_ENDS = _LETTERS | frozenset("0123456789")
_MIDDLES = _ENDS | frozenset("_-.")


def devices_from_mounts(mounts: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]] | None:
    """The names of devices and of IMEX channels in a spec's mounts; None if there is neither.

    mounts: (source, destination) in the spec's order, in which the names come out, each once. A
    destination `cdi/VENDOR/CLASS/NAME` or `cdi/VENDOR/CLASS=NAME` names a CDI device, and a
    malformed one of these nothing; `imex/N` names a channel. If there are devices, they alone
    count; if there are only channels, what else the container asks for counts.
    """
    devices: list[str] = []
    channels: list[str] = []
    for source, destination in mounts:
        # Looked at first, since hardly any mount gets beyond it.
        if "nvidia-container-devices" not in destination or clean(source) != _SOURCE:
            continue
        path = clean(destination)
        if not path.startswith(ROOT + "/"):
            continue
        first, slash, rest = path[len(ROOT) + 1 :].partition("/")
        if first == "cdi" and slash:
            name = _cdi_name(rest)
            if name:
                devices.append(name)
        elif first == "imex" and slash:
            channels.append(rest)
        else:
            devices.append(first + slash + rest)
    if not devices and not channels:
        return None
    return list(dict.fromkeys(devices)), list(dict.fromkeys(channels))


def clean(path: str) -> str:
    """The shortest path that means the same by its text alone, as Go's filepath.Clean."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".." or not rooted:
            parts.append(part)
    return ("/" if rooted else "") + "/".join(parts) or "."


def _cdi_name(text: str) -> str | None:
    """VENDOR/CLASS=NAME for that or VENDOR/CLASS/NAME; None if it is no qualified name.

    Names are as the CDI specification has them (SPEC.md 1.1.0, "Kind" and "Device names").
    """
    vendor, _, rest = text.partition("/")
    # A device's name has no slash, so that the first separator is the one.
    ends = [place for place in (rest.find("/"), rest.find("=")) if place >= 0]
    if not ends:
        return None
    group, name = rest[: min(ends)], rest[min(ends) + 1 :]
    for kind in (vendor, group):
        if kind[:1] not in _LETTERS or kind[-1:] not in _ENDS or not _MIDDLES.issuperset(kind):
            return None
    if (
        name[:1] not in _ENDS
        or name[-1:] not in _ENDS
        or not _MIDDLES.issuperset(name.replace(":", "-"))
    ):
        return None
    return f"{vendor}/{group}={name}"
