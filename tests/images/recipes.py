"""How each test image is made: one function each, given an empty directory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.images import debian, tools
from tests.images.tools import compile_probe, host_library, install, run, skeleton, write

Recipe = Callable[[Path, Callable[[str], Path]], None]
Get = Callable[[str], Path]

_LIB64 = "usr/lib64"
_MULTIARCH = "usr/lib/x86_64-linux-gnu"


def _copy_tree(source: Path, root: Path) -> None:
    run("cp", "-a", "--reflink=auto", f"{source}/.", root)


def busybox(root: Path, get: Get) -> None:
    skeleton(root, "busybox")
    tools.install_busybox(root)
    compile_probe(root, "-static", "-DSTATIC_PROBE")


def scratch(root: Path, get: Get) -> None:
    compile_probe(root, "-static", "-DSTATIC_PROBE")


def base_bookworm(root: Path, get: Get) -> None:
    debian.bootstrap(root, debian.debian("bookworm"))


def base_trixie(root: Path, get: Get) -> None:
    debian.bootstrap(root, debian.debian("trixie"))


def base_ubuntu(root: Path, get: Get) -> None:
    suite = debian.ubuntu()
    if suite is None:
        raise tools.ImageUnavailable("apt's mirror on this machine is not Ubuntu's")
    debian.bootstrap(root, suite)


def debian12(root: Path, get: Get) -> None:
    _copy_tree(get("base-bookworm"), root)
    compile_probe(root)


def debian32(root: Path, get: Get) -> None:
    """Debian 12 with a C library for 32-bit programs beside its own, as for games."""
    suite = debian.debian("bookworm")
    _copy_tree(get("base-bookworm"), root)
    with tempfile.TemporaryDirectory(dir=root.parent) as work:
        extra = Path(work) / "i386"
        run(
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=directory"),
            *("--architectures=i386", "--include=libc6", f"--keyring={debian.KEYRINGS}"),
            *('--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "3"'),
            '--aptopt=APT::Install-Recommends "false"',
            *(suite, extra, f"deb {debian.mirror()} {suite} main"),
        )
        _copy_tree(extra / "lib", root / "usr/lib")
        _copy_tree(extra / "etc/ld.so.conf.d", root / "etc/ld.so.conf.d")
    run("chroot", root, "/sbin/ldconfig")
    compile_probe(root)


def debian13(root: Path, get: Get) -> None:
    _copy_tree(get("base-trixie"), root)
    compile_probe(root)


def ubuntu_like(root: Path, get: Get) -> None:
    """Make real Ubuntu where its mirror is reachable, else Debian 13 under Ubuntu's name."""
    if debian.ubuntu() is not None:
        _copy_tree(get("base-ubuntu"), root)
    else:
        _copy_tree(get("base-trixie"), root)
        release = 'ID=ubuntu\nID_LIKE=debian\nNAME="Ubuntu"\nVERSION_ID="24.04"\n'
        write(root, {"usr/lib/os-release": release, "etc/debian_version": "trixie/sid\n"})
        # Ubuntu's images carry this file too; it sorts after libc.conf and names nothing new.
        write(root, {"etc/ld.so.conf.d/zz-local.conf": "/usr/local/lib\n"})
    run("chroot", root, "/sbin/ldconfig")
    compile_probe(root)


def fedora_like(root: Path, get: Get) -> None:
    """Lay Debian's programs out as Fedora does; only the cache tells where libraries are."""
    _copy_tree(get("base-ubuntu" if debian.ubuntu() is not None else "base-bookworm"), root)
    for name in ("var/lib/dpkg", "var/lib/apt", "etc/apt", "usr/lib/apt", "var/cache/apt"):
        shutil.rmtree(root / name, ignore_errors=True)
    # Debian has one file in lib64, a link to the loader, whose real file moves with the rest.
    shutil.rmtree(root / _LIB64)
    (root / _MULTIARCH).rename(root / _LIB64)
    for link in ("lib64", "usr/lib64/ld-linux-x86-64.so.2"):
        path = root / link
        if path.is_symlink() and "x86_64-linux-gnu" in str(path.readlink()):
            path.unlink()
    (root / "lib64").unlink(missing_ok=True)
    (root / "lib64").symlink_to("usr/lib64")
    for path in (root / _LIB64).iterdir():
        target = str(path.readlink()) if path.is_symlink() else ""
        if "x86_64-linux-gnu/" in target:
            path.unlink()
            path.symlink_to(target.rsplit("/", 1)[-1])
    for path in (root / "etc/ld.so.conf.d").iterdir():
        path.unlink()
    release = 'ID=fedora\nNAME="Fedora Linux"\nVERSION_ID="43"\n'
    write(
        root,
        {
            "usr/lib/os-release": release,
            # Relative, as Fedora has it: relative to the file's own directory.
            "etc/ld.so.conf": "include ld.so.conf.d/*.conf\n",
            "etc/ld.so.conf.d/lib64.conf": "/usr/lib64\n",
        },
    )
    # Its own ldconfig is a static program, so it runs before there is a cache.
    run("chroot", root, "/sbin/ldconfig")
    compile_probe(root)


def distroless(root: Path, get: Get) -> None:
    skeleton(root, "distroless")
    for name in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"):
        install(host_library(name), root / "lib/x86_64-linux-gnu" / name)
    install(host_library("ld-linux-x86-64.so.2"), root / "lib64/ld-linux-x86-64.so.2")
    compile_probe(root)


def musl(root: Path, get: Get) -> None:
    skeleton(root, "alpine")
    tools.install_busybox(root)
    loader = Path("/lib/ld-musl-x86_64.so.1")
    if not loader.exists():
        raise tools.ImageUnavailable("musl is not installed (package musl-tools)")
    install(loader, root / "lib/ld-musl-x86_64.so.1")
    (root / "lib/libc.musl-x86_64.so.1").symlink_to("ld-musl-x86_64.so.1")
    compile_probe(root, compiler="musl-gcc")


RECIPES: dict[str, Recipe] = {
    "busybox": busybox,
    "scratch": scratch,
    "debian": debian12,
    "debian32": debian32,
    "debian13": debian13,
    "ubuntu-like": ubuntu_like,
    "fedora-like": fedora_like,
    "distroless": distroless,
    "musl": musl,
}

# These take minutes of download on a slow line, so they do not depend on the probe's text.
BASES: dict[str, Recipe] = {
    "base-bookworm": base_bookworm,
    "base-trixie": base_trixie,
    "base-ubuntu": base_ubuntu,
}

# The images whose probe loads libraries by glibc's loader.
GLIBC = ("debian", "debian13", "ubuntu-like", "fedora-like", "distroless")
