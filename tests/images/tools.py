"""Small helpers that the image recipes share."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

PROBE_SOURCE = Path(__file__).with_name("probe.c")
PROBE = "usr/local/bin/probe"

PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


class ImageUnavailable(Exception):
    """This machine can't build the image; the text says why, and a test may skip."""


def run(*command: str | Path) -> str:
    """Run a tool; what it printed is the reason if it fails."""
    words = [str(word) for word in command]
    # The tools' own directories: a caller's PATH may lack the sbin ones.
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    environment = {**os.environ, "PATH": path, "LC_ALL": "C"}
    try:
        result = subprocess.run(words, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        raise ImageUnavailable(f"{words[0]} is not installed") from None
    if result.returncode != 0:
        raise ImageUnavailable(f"{' '.join(words[:3])} failed: {result.stderr.strip()[-2000:]}")
    return result.stdout


def write(root: Path, files: dict[str, str]) -> None:
    """Write text files below a root that only this recipe has seen so far."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)


def skeleton(root: Path, system: str) -> None:
    """Make the directories and accounts that even the smallest distribution has."""
    for name in ("dev", "proc", "sys", "run", "root", "var", "etc", "usr/bin", "usr/lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(mode=0o1777, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    release = f'ID={system}\nNAME="{system}"\nVERSION_ID="0"\n'
    write(root, {"etc/passwd": PASSWD, "etc/group": GROUP, "etc/os-release": release})


def install(source: Path, target: Path, mode: int = 0o755) -> None:
    """Copy one file, following links, as an ordinary file with this mode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def compile_probe(root: Path, *options: str, compiler: str = "gcc") -> None:
    """Compile the probe into a root."""
    target = root / PROBE
    target.parent.mkdir(parents=True, exist_ok=True)
    run(compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-s", *options, "-o", target, PROBE_SOURCE)


def _has_interpreter(path: Path) -> bool:
    """Tell whether a 64-bit ELF program has a PT_INTERP header, that is, needs a loader."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    kinds = [struct.unpack_from("<I", data, table + i * size)[0] for i in range(count)]
    return 3 in kinds


def static_busybox() -> Path:
    """Find a static busybox; a dynamic one would not run in an image without libraries."""
    found = shutil.which("busybox", path="/usr/bin:/bin:/usr/local/bin")
    if found is None or _has_interpreter(Path(found)):
        raise ImageUnavailable("there is no static busybox (package busybox-static)")
    return Path(found)


def install_busybox(root: Path) -> None:
    """Install busybox with a link for each of its programs."""
    busybox = static_busybox()
    install(busybox, root / "bin/busybox")
    for name in run(busybox, "--list-full").split():
        link = root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists() and not link.is_symlink():
            link.symlink_to("/bin/busybox")


def host_library(name: str) -> Path:
    """Find a file of this machine's C library by the compiler's own search."""
    path = Path(run("gcc", f"-print-file-name={name}").strip())
    if not path.is_absolute():
        raise ImageUnavailable(f"the compiler does not find {name}")
    return path.resolve()
