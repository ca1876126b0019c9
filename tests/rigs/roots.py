"""Root file systems of other distributions with their engines in them, made once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.images import ImageUnavailable, cache, debian
from tests.images.tools import run, write

# The docker command is a package of its own since Debian 13, and only a recommendation of
# docker.io's; Debian 12 has no Compose 2.
_DOCKER = ("docker.io", "docker-cli", "docker-compose")
_SYSTEM = ("systemd", "systemd-sysv", "dbus")
_BASE = ("mount", "iproute2", "procps", "python3", "python3-venv", *_SYSTEM)
# A kernel that is a program, and what a machine of its own needs. The kernels of older suites trace
# each system call of their programs, which takes longer. There is none but for x86.
_KERNEL = ("user-mode-linux",) if os.uname().machine == "x86_64" else ()
_GUEST = ("kmod", *_KERNEL)
PACKAGES = {
    "bookworm": (*_BASE, "docker.io"),
    "trixie": (*_BASE, *_DOCKER, "podman"),
    "forky": (*_BASE, *_DOCKER, *_GUEST),
}
# Files that no test looks at, by patterns of dpkg's.
_LEFT_OUT = (
    *("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"),
    *("/usr/share/lintian/*", "/usr/share/bug/*", "/usr/libexec/docker/cli-plugins/docker-buildx"),
)
_KEPT_DAYS = 14


def _key(suite: str) -> str:
    """A digest of what a root is made from; the day is no part of it, although forky moves on."""
    return hashlib.sha256(repr((suite, PACKAGES[suite], _LEFT_OUT)).encode()).hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two sessions make a thing once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def root(suite: str) -> Path:
    """The root of a suite, built if need be. Never write to it.

    Raises ImageUnavailable where this machine can't build it.
    """
    if os.geteuid() != 0:
        raise ImageUnavailable("roots are built by root only")
    directory = cache.directory()
    final = directory / f"rig-{suite}-{_key(suite)}"
    with locked(directory / f"rig-{suite}.lock"):
        if not final.is_dir():
            _build(suite, final)
        collect(directory, f"rig-{suite}", final)
    return final


def collect(directory: Path, name: str, current: Path) -> None:
    """Remove what was made from another recipe, unless that is recent."""
    oldest = time.time() - _KEPT_DAYS * 86400
    for path in directory.glob(f"{name}-{'[0-9a-f]' * 16}"):
        if path != current and path.stat().st_ctime < oldest:
            shutil.rmtree(path, ignore_errors=True)


def _build(suite: str, final: Path) -> None:
    source = f"deb {debian.mirror()} {debian.debian(suite)} main"
    options = [
        *("--quiet", "--mode=root", "--variant=minbase", "--format=directory"),
        f"--keyring={debian.KEYRINGS}",
        f"--include={','.join(PACKAGES[suite])}",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=Acquire::Retries "3"',
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
    ]
    # The umask of whoever runs the tests must not get into the root.
    umask = os.umask(0o022)
    work = Path(tempfile.mkdtemp(prefix="new-", dir=final.parent))
    try:
        made = work / "root"
        run("mmdebstrap", *options, suite, made, source)
        # Nothing of this machine belongs into it: neither its mirror nor its name.
        shutil.rmtree(made / "etc/apt/sources.list.d", ignore_errors=True)
        write(made, {"etc/apt/sources.list": "", "etc/resolv.conf": "", "etc/hostname": "rig\n"})
        made.rename(final)
    finally:
        os.umask(umask)
        shutil.rmtree(work, ignore_errors=True)
