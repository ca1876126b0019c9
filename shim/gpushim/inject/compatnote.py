"""What a libcuda of a forward-compatibility package says of the drivers that it works with.

Since CUDA 12.9 such a library has an ELF note in a section of its own, whose content is JSON:
{"Format": 1, "CUDA Version": "13.1", "Driver": [535, 550, ...]}, the numbers being branches
(majors) of kernel drivers. The file is an image's, so nothing in it is believed.
"""

from __future__ import annotations

import posix
from _struct import Struct

from gpushim.oci.jsontext import loads

_SECTION = b".note.cuda.fwd_compatibility"
_OWNER = b"NVIDIA Corporation"
_SHT_NOTE = 7
_MOST_SECTIONS = 1024
_LARGEST = 1 << 16

# elf(5): e_shoff; e_shentsize, e_shnum and e_shstrndx; sh_name, sh_type, sh_offset and sh_size.
_TABLE = Struct("<40xQ10xHHH")
_HEADER = Struct("<II16xQQ24x")
_NOTE = Struct("<II4x")


def supported_branches(descriptor: int) -> list[int]:
    """The driver branches in the note of the open library; empty if it has none that is valid.

    Reads a few kilobytes at most, whatever the file says of itself.
    """
    try:
        return _branches(_description(descriptor))
    except (OSError, ValueError, OverflowError, RecursionError):
        return []


def _branches(text: str) -> list[int]:
    if not text:
        return []
    said = loads(text)
    listed = said.get("Driver") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return []
    return [branch for branch in listed if type(branch) is int and branch > 0]


def _description(descriptor: int) -> str:
    """The text in the note, "" if there is no such note."""
    start = _read(descriptor, _TABLE.size, 0)
    if start[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return ""
    where, size, count, names_index = _TABLE.unpack(start)
    if size != _HEADER.size or names_index >= count or count > _MOST_SECTIONS:
        return ""
    headers = list(_HEADER.iter_unpack(_read(descriptor, count * size, where)))
    names = _content(descriptor, headers[names_index])
    for header in headers:
        name = names[header[0] : header[0] + len(_SECTION) + 1]
        if header[1] == _SHT_NOTE and name == _SECTION + b"\0":
            return _json_of(_content(descriptor, header))
    return ""


def _content(descriptor: int, header: tuple[int, int, int, int]) -> bytes:
    _, _, offset, size = header
    return _read(descriptor, size, offset) if size <= _LARGEST else b""


def _read(descriptor: int, size: int, offset: int) -> bytes:
    data = posix.pread(descriptor, size, offset)
    if len(data) != size:
        raise ValueError("the file is cut off")
    return data


def _json_of(note: bytes) -> str:
    """The description of a note, without what pads it, which linkers disagree on."""
    if len(note) < _NOTE.size:
        return ""
    name_size, _ = _NOTE.unpack_from(note)
    name = note[_NOTE.size : _NOTE.size + min(name_size, _LARGEST)]
    if name.rstrip(b"\0") != _OWNER:
        return ""
    return note[_NOTE.size + len(name) :].strip(b"\0").decode("utf-8")
