"""The cache of built images: content-addressed, made once however many tests ask."""

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

from tests.images import recipes
from tests.images.tools import ImageUnavailable, run

_HERE = Path(__file__).parent
_FOR_BASES = ("debian.py",)
_KEPT_DAYS = 14


def directory() -> Path:
    """Return the cache's directory: a disk, since images are large, and only this user's."""
    chosen = os.environ.get("GPUSHIM_TEST_IMAGES")
    if chosen:
        path = Path(chosen)
    elif os.environ.get("XDG_CACHE_HOME"):
        path = Path(os.environ["XDG_CACHE_HOME"], "gpushim-test-images")
    else:
        path = Path("/var/tmp/gpushim-test-images")
    # 0711: a container in a user namespace must be able to walk through to its root.
    path.mkdir(mode=0o711, parents=True, exist_ok=True)
    info = path.lstat()
    if info.st_uid != os.geteuid() or not path.is_dir() or path.is_symlink():
        raise ImageUnavailable(f"{path} is not a directory of this user's")
    return path


def key(name: str) -> str:
    """Return a digest of all that an image is made from."""
    digest = hashlib.sha256(name.encode())
    files = [*sorted(_HERE.glob("*.py")), _HERE / "probe.c"]
    if name in recipes.BASES:
        files = [_HERE / f for f in _FOR_BASES]
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    if name not in recipes.BASES:
        # A new compiler or C library makes other programs.
        for tool in ("gcc", "musl-gcc", "busybox"):
            found = shutil.which(tool)
            info = os.stat(found) if found else None
            digest.update(f"{tool} {info and (info.st_size, int(info.st_mtime))}".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def image(name: str) -> Path:
    """Return the template root of an image, built if need be.  Never write to it."""
    recipe = {**recipes.RECIPES, **recipes.BASES}[name]
    if os.geteuid() != 0:
        raise ImageUnavailable("test images are built by root only")
    cache = directory()
    final = cache / f"{name}-{key(name)}"
    with _locked(cache / f"{name}.lock"):
        if not final.is_dir():
            _build(recipe, final)
        os.utime(cache / f"{name}.lock")
        _collect(cache, name, final)
    return final


def _build(recipe: recipes.Recipe, final: Path) -> None:
    # The umask of whoever runs the tests must not get into the image.
    umask = os.umask(0o022)
    work = Path(tempfile.mkdtemp(prefix="new-", dir=final.parent))
    try:
        root = work / "root"
        root.mkdir()
        recipe(root, image)
        root.rename(final)
    finally:
        os.umask(umask)
        _remove(work)


def _collect(cache: Path, name: str, current: Path) -> None:
    """Remove what other versions of the recipes made, unless it is recent."""
    oldest = time.time() - _KEPT_DAYS * 86400
    for path in cache.glob(f"{name}-{'[0-9a-f]' * 16}"):
        if path != current and path.stat().st_ctime < oldest:
            _remove(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def copy(name: str, dest: Path) -> Path:
    """Give a test its own root: a full copy at ``dest``, which must not exist or be empty."""
    template = image(name)
    dest.mkdir(parents=True, exist_ok=True)
    if any(dest.iterdir()):
        raise FileExistsError(f"{dest} is not empty")
    run("cp", "-a", "--reflink=auto", f"{template}/.", dest)
    return dest
