"""The real ldconfig as the judge of what a loader cache has to be."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.fakehost import write_library

PROGRAM = shutil.which("ldconfig", path="/sbin:/usr/sbin") or ""


def run(root: Path, directories: Iterable[str], kind: str = "new") -> bytes:
    """Run ldconfig for `root` with these directories in ld.so.conf, and return the cache."""
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/ld.so.conf").write_text("".join(f"{name}\n" for name in directories))
    done = subprocess.run([PROGRAM, "-r", root, "-c", kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (root / "etc/ld.so.cache").read_bytes()


def printed(cache: Path) -> list[str]:
    """What `ldconfig -p` lists of a cache file."""
    done = subprocess.run([PROGRAM, "-C", cache, "-p"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines() if "=>" in line]


def library(root: Path, path: str, soname: str, bits: int = 64) -> None:
    """Write a library with its soname link, so that ldconfig has none to make."""
    file = root / path
    write_library(file, soname, bits)
    link = file.with_name(soname)
    if link != file and not link.is_symlink():
        link.symlink_to(file.name)
