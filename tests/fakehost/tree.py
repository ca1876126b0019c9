"""A directory tree as data, and how a real one is brought from one such state to another."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class File:
    """A regular file with all its content."""

    data: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Node:
    """A character device."""

    major: int
    minor: int
    mode: int = 0o666
    gid: int = 0


@dataclass(frozen=True)
class Socket:
    """A socket's file, on which nobody listens."""

    mode: int = 0o777


@dataclass(frozen=True)
class Folder:
    """A directory that is to be there even if nothing is in it."""

    mode: int = 0o755


Entry = File | Link | Node | Socket | Folder
Tree = dict[str, Entry]  # by path beneath the root, without a slash before it


def text(content: str, mode: int = 0o644) -> File:
    """A file of text."""
    return File(content.encode(), mode)


def add_under(tree: Tree, prefix: str, part: Tree) -> None:
    """Puts a tree into another one under a path."""
    for path, entry in part.items():
        tree[f"{prefix}/{path}"] = entry


def write_file(path: Path | str, data: bytes, mode: int = 0o644) -> None:
    """Replaces a file whole: a reader sees the old or the new content, and other links are kept."""
    temporary = f"{path}.new.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        if data:
            os.write(descriptor, data)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def make_node(path: str, node: Node) -> None:
    """Makes a device node; without the right to, says so in a sentence."""
    try:
        os.mknod(path, stat.S_IFCHR | node.mode, os.makedev(node.major, node.minor))
    except PermissionError as error:
        raise PermissionError(
            f"the fake host's device node {path} cannot be made: that takes root (CAP_MKNOD)"
        ) from error
    os.chmod(path, node.mode)
    if node.gid:
        os.chown(path, -1, node.gid)


def _write(path: str, entry: Entry, fresh: bool) -> None:
    if isinstance(entry, Folder):
        os.makedirs(path, entry.mode, exist_ok=True)
        return
    if isinstance(entry, File):
        if not fresh:
            write_file(path, entry.data, entry.mode)
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, entry.mode)
        if entry.data:
            os.write(descriptor, entry.data)
        os.fchmod(descriptor, entry.mode)
        os.close(descriptor)
        return
    if not fresh:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if isinstance(entry, Link):
        os.symlink(entry.target, path)
    elif isinstance(entry, Socket):
        os.mknod(path, stat.S_IFSOCK | entry.mode)
    else:
        make_node(path, entry)


def write_tree(root: Path, tree: Tree) -> None:
    """Makes everything in a tree that is not there yet."""
    made: set[str] = set()
    base = str(root)
    for path, entry in tree.items():
        full = f"{base}/{path}"
        parent = full if isinstance(entry, Folder) else os.path.dirname(full)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        _write(full, entry, fresh=True)


def change_tree(root: Path, before: Tree, after: Tree) -> None:
    """Brings what is on the disk from one state to another; what is the same is not touched.

    What others have made or removed since then is left as it is, except where it differs in both.
    """
    base = str(root)
    gone = [path for path in before if path not in after]
    for path in gone:
        if not isinstance(before[path], Folder):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(f"{base}/{path}")
    for path, entry in after.items():
        if before.get(path) != entry:
            os.makedirs(os.path.dirname(f"{base}/{path}"), exist_ok=True)
            _write(f"{base}/{path}", entry, fresh=False)
    kept = {parent for path in after for parent in _parents(path)} | set(after)
    folders = {folder for path in gone for folder in (*_parents(path), path)} - kept
    for folder in sorted(folders, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(f"{base}/{folder}")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:i]) for i in range(1, len(parts))]
