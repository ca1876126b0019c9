"""Directories of the harness outside pytest's own, collected when their test was killed.

Roots of containers must be reachable for other users and on a disk, and sockets need
short paths, so pytest's directory does not do.  Each directory here is locked for as
long as its process lives: one without a holder is rubbish, and the next session that
makes one unmounts and removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.harness import processes

_PREFIX = "gpushim-harness-"
_PARENTS = (Path("/var/tmp"), Path("/run"))
# A directory is made and locked in two steps; nobody is that slow.
_SECONDS_TO_LOCK = 60
_held: dict[Path, int] = {}


def make(kind: str, parent: Path) -> Path:
    """Make a directory that everybody may walk through, and hold it."""
    if not _held:
        _collect()
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=parent))
    path.chmod(0o711)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    _held[path] = descriptor
    return path


def remove(path: Path) -> None:
    """Unmount what lies below a directory, remove it, and let go of it."""
    processes.unmount_below(path)
    shutil.rmtree(path, ignore_errors=True)
    if path in _held:
        os.close(_held.pop(path))


def _collect() -> None:
    for parent in _PARENTS:
        for path in parent.glob(f"{_PREFIX}*-*"):
            try:
                if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
                    _collect_one(path)
            except FileNotFoundError:
                continue  # another worker removes its own at this moment


def _collect_one(path: Path) -> None:
    if time.time() - path.stat().st_ctime < _SECONDS_TO_LOCK:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its test is running
    else:
        delete_containers(path / "root")
        remove(path)
    finally:
        os.close(descriptor)


def delete_containers(root: Path) -> None:
    """Delete all containers below a state root; they are runc's, whoever called it."""
    if root.is_dir():
        for container in root.iterdir():
            command = ["runc", f"--root={root}", "delete", "--force", container.name]
            subprocess.run(command, capture_output=True, timeout=30)
