"""Which containers a process is in, by the names of its cgroups.

Engines and their cgroup managers name the cgroup of a container in several ways; these are known:

| engine                | systemd                              | cgroupfs                        |
|-----------------------|--------------------------------------|---------------------------------|
| Docker                | docker-ID.scope                      | docker/ID                       |
| Podman                | libpod-ID.scope, and /container in it | libpod_parent/libpod-ID         |
| containerd under CRI  | cri-containerd-ID.scope              | kubepods/.../podUID/ID          |
| CRI-O                 | crio-ID.scope                        | kubepods/.../podUID/crio-ID     |
| nerdctl               | nerdctl-ID.scope                     | default/ID                      |
| containerd, mixed     | SLICE:cri-containerd:ID              |                                 |

A container can make cgroups within its own, and engines can run within containers, so a path may
name several containers, the outer ones first.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable

_ENGINES = {
    "docker": "docker",
    "libpod": "podman",
    "cri-containerd": "containerd",
    "crio": "cri-o",
    "nerdctl": "containerd",
}
_ID_LENGTH = 64
_POD = "pod"


class Named:
    """A container as a cgroup names it: its id, and its engine or "" where the name says none."""

    __slots__ = ("engine", "id")

    def __init__(self, id: str, engine: str) -> None:
        self.id = id
        self.engine = engine

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and (self.id, self.engine) == (other.id, other.engine)

    def __hash__(self) -> int:
        return hash((self.id, self.engine))

    def __repr__(self) -> str:
        return f"Named({self.id!r}, {self.engine!r})"


def paths(text: str) -> list[str]:
    """The cgroups of a process, each once, from its /proc/PID/cgroup (cgroups(7)).

    The root says nothing and is left out. Where the reader is in a cgroup namespace, others begin
    with /.. (cgroup_namespaces(7)).
    """
    found: dict[str, None] = {}
    for line in text.split("\n"):
        path = line.partition(":")[2].partition(":")[2]
        if path.startswith("/") and path != "/":
            found[path.removesuffix(" (deleted)")] = None
    return list(found)


def containers(path: str) -> list[Named]:
    """The containers whose cgroups make up a path, the outer ones first."""
    found = []
    before = ""
    for part in _parts(path):
        named = _named(part, before)
        if named is not None:
            found.append(named)
        before = part
    return found


def first_known(cgroups: Iterable[str], ids: Container[str]) -> str:
    """The outermost container of a process that is among `ids`; "" if none is.

    Any id will do here, as those that people give to a low-level runtime themselves.
    """
    for path in cgroups:
        for part in _parts(path):
            for name in _names(part):
                if name in ids:
                    return name
    return ""


def pod(path: str) -> str:
    """The UID of the Kubernetes pod that a path is of; "" if it is of none.

    podUID, or kubepods-QOS-podUID.slice with underscores for hyphens; guaranteed pods have no QOS.
    """
    for part in _parts(path):
        stem = part.removesuffix(".slice")
        before, found, uid = stem.rpartition(_POD)
        uid = uid.replace("_", "-")
        if found and (not before or before.endswith("-")) and _is_pod_uid(uid):
            return uid
    return ""


def _parts(path: str) -> list[str]:
    return [
        part for whole in path.split("/") for part in whole.split(":") if part not in ("", "..")
    ]


def _names(part: str) -> list[str]:
    """What a part may be the name of: itself, and what is behind an engine's prefix."""
    stem = part.removesuffix(".scope")
    names = [part, stem]
    for prefix in _ENGINES:
        if stem.startswith(prefix + "-"):
            names.append(stem[len(prefix) + 1 :])
    return names


def _named(part: str, before: str) -> Named | None:
    stem = part.removesuffix(".scope")
    if _is_id(stem):
        return Named(stem, _ENGINES.get(before, ""))
    prefix, _, rest = stem.rpartition("-")
    # crio-conmon-ID and libpod-conmon-ID are of the container's monitor.
    if _is_id(rest) and prefix in _ENGINES:
        return Named(rest, _ENGINES[prefix])
    return None


def _is_id(text: str) -> bool:
    return len(text) == _ID_LENGTH and all(letter in "0123456789abcdef" for letter in text)


def _is_pod_uid(text: str) -> bool:
    """A UUID, or the digest that a static pod has in its place."""
    digits = text.replace("-", "")
    return len(digits) == 32 and all(letter in "0123456789abcdef" for letter in digits)
