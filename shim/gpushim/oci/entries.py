"""Lists of a spec whose entries are known by one member: mounts, devices."""

from __future__ import annotations

from gpushim.oci.jsonpatch import REMOVE, Before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpushim.oci.jsonpatch import ListChange


def replace_by(
    key: str, wanted: list[dict[str, Any]], removed: Iterable[str], sort: bool = False
) -> ListChange:
    """Entries of the same `key` are taken out, ours are added behind the others.

    An entry that is there already as it is wanted stays where it is. removed: values of `key`
    whose entries are taken out; sort: ours go before present ones that lie beneath them.
    """

    def change(present: list[Any]) -> tuple[dict[int, Any], list[Any]]:
        ours = {normal(entry[key]): entry for entry in wanted}
        gone = {normal(name) for name in removed}
        kept = set()
        replaced: dict[int, Any] = {}
        others: list[tuple[int, str]] = []
        for number, entry in enumerate(present):
            name = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue
            if name[-1:] == "/":
                name = normal(name)
            if name not in ours:
                if name in gone:
                    replaced[number] = REMOVE
                elif sort:
                    others.append((number, name))
            elif entry == ours[name] and name not in kept:
                kept.add(name)
            else:
                replaced[number] = REMOVE
        added = {name: entry for name, entry in ours.items() if name not in kept}
        if sort:
            return _put_in(added, others, replaced)
        return replaced, list(added.values())

    return change


def _put_in(
    added: dict[str, Any], others: list[tuple[int, str]], replaced: dict[int, Any]
) -> tuple[dict[int, Any], list[Any]]:
    """A change in which each added mount covers nothing and is covered by nothing that is there.

    CDI wants all mounts in the order of their depth, of which only this matters: a mount comes
    after those that it lies in, and before those that lie in it. Those that are there stay in
    their order. others: index and destination of each of them.
    """
    appended = []
    for name in sorted(added, key=_depth):
        behind = [number for number, other in others if _lies_in(name, other)]
        last = behind[-1] if behind else -1
        before = [number for number, other in others if number > last and _lies_in(other, name)]
        if before:
            replaced.setdefault(before[0], Before([])).values.append(added[name])
        else:
            appended.append(added[name])
    return replaced, appended


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


def _lies_in(path: str, directory: str) -> bool:
    return path != directory and path.startswith(directory.rstrip("/") + "/")


def normal(path: str) -> str:
    """A path as a mount or device names it, without a slash at its end."""
    return path.rstrip("/") or "/"
