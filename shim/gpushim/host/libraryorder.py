"""The order of library names in a loader cache, in which glibc's loader searches it."""

from __future__ import annotations

from _struct import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Ranks of bytes in the order of glibc's _dl_cache_libcmp, where char is signed: first the negative
# ones, then the end of the name (_END), then the positive ones, and digits after any other.
_END = b"\x80"
_NEGATIVE = bytes(range(128, 256))
_POSITIVE = bytes([byte for byte in range(1, 128) if not 48 <= byte <= 57])
_IN_ORDER = _NEGATIVE + b"\0" + _POSITIVE + b"0123456789"
_RANK_TABLE = bytes.maketrans(_IN_ORDER, bytes(range(256)))
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
# After a digit's rank there is never another digit's, so this is above every single digit.
_LARGER_NUMBER = b"\xff\xff"


def order_key(name: bytes) -> bytes:
    """A key that compares as glibc's _dl_cache_libcmp compares names.

    Runs of digits count as numbers, and a digit comes after any other character. (Numbers beyond
    an int, where glibc overflows, are compared by their value.)
    """
    if b"00" not in name.translate(_DIGITS_ALIKE):
        return name.translate(_RANK_TABLE) + _END
    key = []
    position, end = 0, len(name)
    while position < end:
        start = position
        while position < end and 48 <= name[position] <= 57:
            position += 1
        if position > start:
            digits = name[start:position].lstrip(b"0") or b"0"
            if len(digits) > 1:
                key.append(_LARGER_NUMBER + pack(">H", min(len(digits), 0xFFFF)))
            key.append(digits.translate(_RANK_TABLE))
        else:
            position += 1
            key.append(name[start:position].translate(_RANK_TABLE))
    return b"".join(key) + _END


def sort_names(names: Iterable[str]) -> list[str]:
    """`names` in the order in which ldconfig writes them."""
    return sorted(names, key=lambda name: order_key(name_bytes(name)), reverse=True)


def name_bytes(text: str) -> bytes:
    """A file name or path as the file system has it, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")
