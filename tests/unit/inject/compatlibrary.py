"""Libraries of CUDA's forward-compatibility packages, and images that have them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

OWNER = b"NVIDIA Corporation\0"
SECTION = b".note.cuda.fwd_compatibility"
DIRECTORY = "usr/local/cuda-12.8/compat"

# elf(5), e_machine.
_MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def note(text: bytes, owner: bytes = OWNER, alignment: int = 4) -> bytes:
    """An ELF note (elf(5), Elf64_Nhdr) with this description."""
    padding = b"\0" * (-len(owner) % alignment)
    end = b"\0" * (-len(text) % alignment)
    return struct.pack("<III", len(owner), len(text), 1) + owner + padding + text + end


def elf(content: bytes | None, section: bytes = SECTION) -> bytes:
    """A 64-bit ELF file with one note section of this content, or with none."""
    names = b"\0" + section + b"\0.shstrtab\0"
    sections = [(0, 0, 0, 0), (len(section) + 2, 3, _HEADER.size, len(names))]
    body = names
    if content is not None:
        sections.append((1, 7, _HEADER.size + len(body), len(content)))
        body += content
    header = _HEADER.pack(
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(
            3,
            _MACHINES[os.uname().machine],
            1,
            0,
            0,
            _HEADER.size + len(body),
            0,
            _HEADER.size,
            0,
            0,
        ),
        *(_SECTION.size, len(sections), 1),
    )
    table = b"".join(
        _SECTION.pack(name, kind, 0, 0, offset, size, 0, 0, 1, 0)
        for name, kind, offset, size in sections
    )
    return header + body + table


def libcuda(branches: str = "") -> bytes:
    """A libcuda that says that it works with drivers of these branches ("535, 550")."""
    if not branches:
        return elf(None)
    text = f'{{"Format": 1, "CUDA Version": "12.8", "Driver": [{branches}], "Device": [1, 2]}}'
    return elf(note(text.encode()))


def install(root: Path, version: str, library: bytes = b"", directory: str = DIRECTORY) -> Path:
    """What a package cuda-compat puts into an image; where it does by default, with its links."""
    place = root / directory
    place.mkdir(parents=True)
    for name, soname in (
        ("libcuda", "libcuda.so.1"),
        ("libcudadebugger", "libcudadebugger.so.1"),
        ("libnvidia-nvvm", "libnvidia-nvvm.so.4"),
        ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
        ("libnvidia-pkcs11-openssl3", ""),
    ):
        file = place / f"{name}.so.{version}"
        file.write_bytes(library or libcuda())
        if soname:
            (place / soname).symlink_to(file.name)
    (place / "libcuda.so").symlink_to("libcuda.so.1")
    if directory == DIRECTORY:
        (root / "etc/alternatives").mkdir(parents=True, exist_ok=True)
        (root / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
        (root / "etc/alternatives/cuda").symlink_to("/" + directory.rpartition("/")[0])
    return place
