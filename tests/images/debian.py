"""Minimal Debian (or Ubuntu) systems from the mirror that apt itself uses.

No mirror is named here: a developer's, a company's and a build machine's differ, and
all of them have told apt.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from tests.images.tools import ImageUnavailable, run, write

# Documentation and translations are most of the files and no test looks at them.
_LEFT_OUT = ("man", "doc", "locale", "info", "lintian", "bug")
KEYRINGS = "/usr/share/keyrings"


def machine() -> str:
    """Return this machine's distribution: debian, ubuntu, or something else."""
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""


def mirror() -> str:
    """Return the first main archive that apt is configured with."""
    wanted = "$(SITE)|$(CODENAME)|$(COMPONENT)|$(CREATED_BY)"
    for line in run("apt-get", "indextargets", "--format", wanted).splitlines():
        site, suite, component, kind = line.split("|")
        special = any(word in site + suite for word in ("security", "backports", "updates"))
        if kind == "Packages" and component == "main" and not special:
            return site
    raise ImageUnavailable("apt has no package archive configured")


def bootstrap(root: Path, suite: str) -> None:
    """Install a minimal system of a suite into ``root``."""
    source = mirror()
    components = "main universe" if machine() == "ubuntu" else "main"
    options = [
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--keyring={KEYRINGS}",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=Acquire::Retries "3"',
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT),
    ]
    run("mmdebstrap", *options, suite, root, f"deb {source} {suite} {components}")
    # Nothing of this machine belongs into an image: neither its mirror nor its name.
    shutil.rmtree(root / "etc/apt/sources.list.d", ignore_errors=True)
    files = {"etc/apt/sources.list": "", "etc/resolv.conf": "", "etc/hostname": "image\n"}
    write(root, files)
    run("chroot", root, "/sbin/ldconfig")


def debian(suite: str) -> str:
    """Return the suite, if this machine's mirror is one that has it."""
    if machine() != "debian":
        raise ImageUnavailable(f"apt's mirror on this machine is not Debian's, so no {suite}")
    return suite


def ubuntu() -> str | None:
    """Return the suite of this machine if that is Ubuntu's."""
    if machine() != "ubuntu":
        return None
    return platform.freedesktop_os_release()["VERSION_CODENAME"]
