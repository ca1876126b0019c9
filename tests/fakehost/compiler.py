"""Compiles the few templates that all fake libraries and programs are made from, once.

The results are kept by the digest of sources and options in $XDG_CACHE_HOME/gpushim-fakehost. A
host's files are copies of them with names and state put in place of marks, so that building a host
starts no compiler.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).parent / "c"
SONAME_MARK = "libFAKEHOST-SONAME" + "." * 60
IDENTITY_MARK = b"@FAKEHOST-IDENTITY@" + b"." * 89
STATE_MARK = b"FAKEHOST-STATE-1\n"
STATE_SIZE = 65536

_PLAIN = [
    "-O1",
    "-g0",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-fno-asynchronous-unwind-tables",
]
_SMALL = ["-s", "-Wl,--build-id=none", "-Wl,-z,noseparate-code"]
_WARN = ["-std=gnu11", "-Wall", "-Wextra"]
_SHARED = ["-fPIC", "-shared", "-fvisibility=hidden"]
_STATE = ["state.c", "parse.c"]
_NVML = ["nvml_system.c", "nvml_handles.c", "nvml_device.c", "nvml_usage.c", "nvml_topology.c",
         "nvml_mig.c", "nvml_limits.c", "nvml_unsupported.c"]  # fmt: skip
_SMI = ["smi.c", "smi_query.c", "smi_table.c"]
_BARE = [*_SMALL, *_PLAIN, "-fPIC", "-shared", "-nostdlib"]
_STUB = [*_BARE, f"-Wl,-soname,{SONAME_MARK}", "-Wl,--no-as-needed", "stub.c"]
_LIBC = [*_BARE, "-Wl,-soname,libc.so.6", "stub.c"]

# The driver's libraries need libc.so.6, and that is how ldconfig tells "libc6" from other ELF
# files. As there may be no 32-bit libc to link with, one that is empty stands in for it.
_FIRST: dict[str, list[str]] = {"libc64": _LIBC, "libc32": ["-m32", *_LIBC]}

# @NAME stands for the path of a file that was compiled before, or of the machine's libdl.so.2.
TEMPLATES: dict[str, list[str]] = {
    "stub64": [*_STUB, "@libc64"],
    "stub32": ["-m32", *_STUB, "@libc32"],
    "cuda32": ["-m32", "-DCUDA", *_STUB, "@libc32"],
    "tool": [*_SMALL, *_PLAIN, *_WARN, "-static", "-nostdlib", "-fno-pie", "-no-pie", "tool.c"],
    "nvml": [*_SMALL, *_PLAIN, *_WARN, *_SHARED, "-Wl,-soname,libnvidia-ml.so.1", *_STATE, *_NVML],
    "cuda64": [*_SMALL, *_PLAIN, *_WARN, *_SHARED, "-Wl,-soname,libcuda.so.1", *_STATE, "cuda.c"],
    "smi": [*_SMALL, *_PLAIN, *_WARN, "-fPIE", "-pie", "-nostartfiles", *_SMI,
            "-Wl,--no-as-needed", "@libdl"],
}  # fmt: skip


def cache_directory() -> Path:
    """Where compiled templates are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "gpushim-fakehost"


@functools.lru_cache(maxsize=1)
def _digest() -> str:
    digest = hashlib.sha256(repr([sorted(_FIRST.items()), sorted(TEMPLATES.items())]).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:24]


def _libdl() -> str:
    """The C library's libdl.so.2, which holds dlopen before glibc 2.34 and nothing since then."""
    answer = subprocess.run(
        ["gcc", "-print-file-name=libdl.so.2"], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def _run_compilers(directory: Path, jobs: dict[str, list[str]]) -> None:
    """Some files at once; each compiler is a process, so they share the processors."""
    running = []
    for name, options in jobs.items():
        words = []
        for word in options:
            if word == "@libdl":
                words.append(_libdl())
            elif word.startswith("@"):
                words.append(str(directory / word[1:]))
            else:
                words.append(word)
        command = ["gcc", *words, "-o", str(directory / name)]
        running.append((name, subprocess.Popen(command, cwd=_SOURCES, stderr=subprocess.PIPE)))
    failed = []
    for name, process in running:
        errors = process.communicate()[1].decode(errors="replace")
        if process.returncode:
            failed.append(f"{name}: {errors}")
    if failed:
        raise RuntimeError("the fake host's files could not be compiled:\n" + "\n".join(failed))


@functools.cache
def template(name: str) -> bytes:
    """The bytes of a template. Two processes may compile at once; the first to end is taken."""
    place = cache_directory() / _digest()
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="new-") as work:
            made = Path(work) / "made"
            made.mkdir()
            _run_compilers(made, _FIRST)
            _run_compilers(made, TEMPLATES)
            try:
                made.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
    return (place / name).read_bytes()


def _replace(data: bytes, mark: bytes, value: bytes) -> bytes:
    if len(value) >= len(mark):
        raise ValueError(f"{value!r} is too long for the template")
    return data.replace(mark, value.ljust(len(mark), b"\0"))


def stub(kind: str, soname: str, identity: str) -> bytes:
    """A library or program of a template without state."""
    data = _replace(template(kind), SONAME_MARK.encode(), soname.encode())
    return _replace(data, IDENTITY_MARK, identity.encode())


def stateful(kind: str, state: str, hidden: tuple[str, ...] = ()) -> bytes:
    """A library that carries a state, and from which some symbols are taken away.

    A symbol whose name is spoiled in the string table is one that no lookup finds, which is what
    an older driver looks like.
    """
    data = bytearray(template(kind))
    place = data.index(STATE_MARK) + len(STATE_MARK)
    content = state.encode()
    if len(content) >= STATE_SIZE - len(STATE_MARK):
        raise ValueError("the description of the fake host is too long for its libraries")
    data[place : place + len(content)] = content
    for symbol in hidden:
        start = data.index(b"\0" + symbol.encode() + b"\0") + 1
        data[start : start + 1] = b"~"
    return bytes(data)
