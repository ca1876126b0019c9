"""Where the cgroup of a container is, and who is in it."""

from __future__ import annotations

import posix

from gpushim.host import procfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpushim.allocate.lease import Lease

# A container can make cgroups within its own; no search goes on for ever.
_MOST_DIRECTORIES = 1000


def directories(lease: Lease, state: dict[str, Any], mount: str) -> list[str]:
    """The directories of a container's cgroup, one for each hierarchy; none if it isn't known.

    state: the low-level runtime's; mount: where cgroups are mounted (/sys/fs/cgroup). runc names
    the directories, crun the path within each hierarchy; without either it is what cgroupsPath
    says. Not each of them need be there.
    """
    named = state.get("cgroup_paths")
    if isinstance(named, dict):
        paths = [path for path in named.values() if isinstance(path, str)]
        return [path for path in dict.fromkeys(paths) if _is_within(path, mount)]
    within = state.get("cgroup-path")
    found = [within] if isinstance(within, str) and within else paths_of(lease.cgroup, lease.owner)
    paths = [
        f"{hierarchy}/{path.strip('/')}"
        for hierarchy in _hierarchies(mount)
        for path in found
        if path.strip("/")
    ]
    return [path for path in paths if _is_within(path, mount)]


def paths_of(cgroup: str, owner: int) -> list[str]:
    """Where in a hierarchy the cgroup of a spec's cgroupsPath may be; [] if that can't be told.

    "/a/b" is a path; "slice:prefix:name" is a unit of systemd, which a user's container has below
    that user's own manager. A relative path begins at a cgroup of the runtime's choice.
    """
    if cgroup.startswith("/"):
        return [cgroup]
    parts = cgroup.split(":")
    if len(parts) != 3 or "/" in cgroup:
        return []
    parent, prefix, name = parts
    parent = parent or ("user.slice" if owner else "system.slice")
    if not name.endswith(".slice"):
        name = f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    path = f"{slice_path(parent)}/{name}"
    if not owner:
        return [path]
    manager = f"/user.slice/user-{owner}.slice/user@{owner}.service"
    return [manager + path, path]


def slice_path(name: str) -> str:
    """The path of a slice, whose name tells those it is in: "a-b.slice" is /a.slice/a-b.slice.

    "-.slice" is the root (systemd.slice(5)).
    """
    stem = name.removesuffix(".slice").strip("-")
    words = stem.split("-") if stem else []
    return "".join(f"/{'-'.join(words[: count + 1])}.slice" for count in range(len(words)))


def has_name(path: str, id: str) -> bool:
    """Whether a cgroup has a container's name: ID, docker-ID.scope, libpod-ID/container."""
    names = [part.removesuffix(".scope") for part in path.split("/")]
    return any(name == id or name.endswith("-" + id) for name in names)


def processes(directory: str) -> Iterator[int]:
    """The processes in a cgroup and those within it; none if it is gone."""
    todo = [directory]
    for _ in range(_MOST_DIRECTORIES):
        if not todo:
            return
        path = todo.pop()
        for line in (procfiles.text(path + "/cgroup.procs") or "").split():
            if line.isascii() and line.isdigit() and len(line) < 10:
                yield int(line)
        todo += [f"{path}/{name}" for name in procfiles.names(path) if _is_directory(path, name)]


def is_there(path: str) -> bool:
    """Whether there is such a cgroup."""
    try:
        posix.stat(path)
        return True
    except OSError:
        return False


def _hierarchies(mount: str) -> list[str]:
    """The roots of all hierarchies: one alone for version 2, one for each controller before."""
    names = procfiles.names(mount)
    if "cgroup.controllers" in names:
        return [mount]
    return [f"{mount}/{name}" for name in names]


def _is_directory(path: str, name: str) -> bool:
    if "." in name and name.startswith(("cgroup.", "memory.", "cpu", "pids.", "io.", "blkio.")):
        return False  # most entries are the kernel's files, and need not be asked
    try:
        return posix.stat(f"{path}/{name}").st_mode & 0o170000 == 0o040000
    except OSError:
        return False


def _is_within(path: str, mount: str) -> bool:
    """Whether this is a path below `mount`, and one that the kernel can be asked about."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return path.startswith(mount + "/") and ".." not in path.split("/") and "\0" not in path
