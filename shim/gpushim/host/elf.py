"""What the loader needs to know of a shared library: its class, machine and soname (elf(5))."""

from __future__ import annotations

import os
import struct

X86_64, AARCH64, I386, ARM = 62, 183, 3, 40

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14
_MOST_HEADERS = 256
_LARGEST_DYNAMIC = 1 << 20
_LONGEST_NAME = 255


class ElfError(ValueError):
    """Not an ELF file that a loader on this kind of machine would take."""


class Elf:
    """bits: 64 or 32; machine: e_machine; soname: "" without one that is a plain file name."""

    __slots__ = ("bits", "machine", "soname")

    def __init__(self, bits: int, machine: int, soname: str) -> None:
        self.bits = bits
        self.machine = machine
        self.soname = soname


def read_elf(path: str) -> Elf:
    """Class, machine and soname of the file at `path`.

    Reads a few kilobytes at most, whatever the file says of itself. Raises ElfError for what is
    no little-endian ELF file, and OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _read(fd)
    finally:
        os.close(fd)


def _at(fd: int, offset: int, size: int) -> bytes:
    if offset >= 1 << 62:
        raise ElfError("an offset lies outside the file")
    data = os.pread(fd, size, offset)
    if len(data) != size:
        raise ElfError("the file is cut off")
    return data


def _read(fd: int) -> Elf:
    ident = _at(fd, 0, 20)
    if ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] != 1:
        raise ElfError("not a little-endian ELF file")
    bits = 64 if ident[4] == 2 else 32
    (machine,) = struct.unpack_from("<H", ident, 18)
    if bits == 64:
        (phoff,) = struct.unpack("<Q", _at(fd, 32, 8))
        entry_size, count = struct.unpack("<HH", _at(fd, 54, 4))
        layout = struct.Struct("<IIQQQQQQ")  # type, flags, offset, vaddr, paddr, filesz, ...
    else:
        (phoff,) = struct.unpack("<I", _at(fd, 28, 4))
        entry_size, count = struct.unpack("<HH", _at(fd, 42, 4))
        layout = struct.Struct("<IIIIIIII")  # type, offset, vaddr, paddr, filesz, ...
    if count > _MOST_HEADERS or (count and entry_size != layout.size):
        raise ElfError("its program headers make no sense")
    loads: list[tuple[int, int, int]] = []  # address, size, offset
    dynamic: tuple[int, int] | None = None  # offset, size
    for fields in layout.iter_unpack(_at(fd, phoff, count * entry_size)):
        kind = fields[0]
        offset, address = fields[2:4] if bits == 64 else fields[1:3]
        size = fields[5] if bits == 64 else fields[4]
        if kind == _PT_LOAD:
            loads.append((address, size, offset))
        elif kind == _PT_DYNAMIC and dynamic is None:
            dynamic = (offset, size)
    return Elf(bits, machine, _soname(fd, bits, loads, dynamic) if dynamic else "")


def _soname(fd: int, bits: int, loads: list[tuple[int, int, int]], dynamic: tuple[int, int]) -> str:
    pair = struct.Struct("<QQ" if bits == 64 else "<II")
    offset, size = dynamic
    if size > _LARGEST_DYNAMIC:
        raise ElfError("its dynamic section makes no sense")
    name = strings = None
    for tag, value in pair.iter_unpack(_at(fd, offset, size - size % pair.size)):
        if tag == _DT_NULL:
            break
        if tag == _DT_SONAME:
            name = value
        elif tag == _DT_STRTAB:
            strings = value
    if name is None or strings is None:
        return ""
    for address, length, start in loads:
        if address <= strings < address + length:
            place = strings - address + start + name
            break
    else:
        raise ElfError("its string table is not in the file")
    if place >= 1 << 62:
        raise ElfError("an offset lies outside the file")
    raw, end, _ = os.pread(fd, _LONGEST_NAME + 1, place).partition(b"\0")
    if not end:
        raise ElfError("its soname has no end")
    name = os.fsdecode(raw)
    return "" if "/" in name or name in (".", "..") else name
