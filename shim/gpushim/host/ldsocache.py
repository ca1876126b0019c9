"""The cache of glibc's loader, /etc/ld.so.cache: reading it, and adding libraries to it.

Layout and order are glibc's (sysdeps/generic/dl-cache.h, elf/cache.c, elf/dl-cache.c and
elf/stringtable.c of glibc 2.33 and later); all numbers are little-endian, as on every machine
that NVIDIA's driver runs on. A merged cache is what ldconfig itself would write if the added
directories came first in ld.so.conf, so that the loader's binary search finds everything.

Strings of a cache are bytes without NUL, of at most PATH_MAX.
"""

from __future__ import annotations

from _struct import Struct, pack

from gpushim.host.libraryorder import name_bytes, order_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    # directory, file names in the order of libraryorder.sort_names, flags of the entries
    Addition = tuple[str, Sequence[str], int]
    # flags, name, path, OS version, hwcap: the fields of glibc's struct file_entry_new
    Entry = tuple[int, bytes, bytes, int, int]

X86_64 = 0x0303
AARCH64 = 0x0A03
BITS_32 = 0x0003

_BITS_32_WITHOUT_LIBC = 0x0001  # what ldconfig writes for a 32-bit library that needs no libc
_MAGIC_OLD = b"ld.so-1.7.0"
_MAGIC = b"glibc-ld.so.cache1.1"
_EXTENSION_MAGIC = 0xEAA42174
_GENERATOR, _HWCAPS = 0, 1
_UNSET_ENDIAN, _LITTLE_ENDIAN = 0, 2
_LONGEST = 4096

_HEADER = Struct("<20sIIB3xI12x")  # magic, entries, size of strings, endianness, extensions
_ENTRY = Struct("<iIIIQ")
_OLD_HEADER = 16
_OLD_ENTRY = 12
_SECTION = Struct("<IIII")  # tag, flags, offset, size


class LoaderCacheError(ValueError):
    """The bytes are no loader cache that glibc would read, or contradict themselves."""


class LoaderCache:
    """A parsed cache: its entries in order, and what its extension section says.

    hwcaps: names of glibc-hwcaps subdirectories, to which entries refer by number; generator:
    which ldconfig wrote it, None without an extension section; endian: the header's flag.
    """

    __slots__ = ("endian", "entries", "generator", "hwcaps")

    def __init__(
        self,
        entries: list[Entry],
        generator: bytes | None = None,
        hwcaps: list[bytes] | None = None,
        endian: int = _LITTLE_ENDIAN,
    ) -> None:
        self.entries = entries
        self.generator = generator
        self.hwcaps = hwcaps or []
        self.endian = endian


def _string(data: bytes, offset: int) -> bytes:
    end = data.find(b"\0", offset, offset + _LONGEST + 1)
    if end < 0:
        raise LoaderCacheError("a string of the loader cache has no end")
    return data[offset:end]


def _start_of_new_format(data: bytes) -> int:
    """Where the 1.1 format begins: at 0, or after a table in the format of glibc before 2.2."""
    if data.startswith(_MAGIC):
        return 0
    if not data.startswith(_MAGIC_OLD) or len(data) < _OLD_HEADER:
        raise LoaderCacheError("the file is no loader cache that glibc would read")
    end = _OLD_HEADER + _OLD_ENTRY * int.from_bytes(data[12:16], "little")
    for alignment in (8, 4):  # of the machine for which ldconfig was built: 64 or 32 bits
        start = (end + alignment - 1) & -alignment
        if data.startswith(_MAGIC, start):
            return start
    raise LoaderCacheError("the loader cache is in the format of glibc before 2.2 only")


def parse(data: bytes) -> LoaderCache:
    """The cache in `data`: format 1.1 alone, or after a table in the older one.

    Raises LoaderCacheError for everything else. Ends in a time that is linear in the size of
    `data`, whatever it holds.
    """
    start = _start_of_new_format(data)
    if len(data) < start + _HEADER.size:
        raise LoaderCacheError("the loader cache ends within its header")
    _, count, _, endian, extensions = _HEADER.unpack_from(data, start)
    if endian not in (_UNSET_ENDIAN, _LITTLE_ENDIAN):
        raise LoaderCacheError("the loader cache was not written for this kind of machine")
    first = start + _HEADER.size
    table = data[first : first + count * _ENTRY.size]
    if len(table) != count * _ENTRY.size:
        raise LoaderCacheError("the loader cache ends within its table")
    strings = data[start:] if start else data  # offsets of names and paths count from the header
    entries: list[Entry] = []
    # Strings may share their ends, so that a small hostile file could stand for a huge amount.
    budget = 4 * len(data)
    find = strings.find
    for flags, key, value, osversion, hwcap in _ENTRY.iter_unpack(table):
        key_end = find(b"\0", key, key + _LONGEST + 1)
        value_end = find(b"\0", value, value + _LONGEST + 1)
        budget -= key_end - key + value_end - value
        if key_end < 0 or value_end < 0 or budget < 0:
            raise LoaderCacheError("a string of the loader cache has no end")
        entries.append((flags, strings[key:key_end], strings[value:value_end], osversion, hwcap))
    generator, hwcaps = _extensions(data, strings, extensions) if extensions else (None, [])
    return LoaderCache(entries, generator, hwcaps, endian)


def _extensions(data: bytes, strings: bytes, offset: int) -> tuple[bytes | None, list[bytes]]:
    """The generator's name and the hwcaps names. Unlike strings, sections count from the file."""
    if offset % 4 or offset + 8 > len(data):
        raise LoaderCacheError("the loader cache's extension section lies outside of it")
    magic = int.from_bytes(data[offset : offset + 4], "little")
    count = int.from_bytes(data[offset + 4 : offset + 8], "little")
    sections = data[offset + 8 : offset + 8 + count * _SECTION.size]
    if magic != _EXTENSION_MAGIC or len(sections) != count * _SECTION.size:
        raise LoaderCacheError("the loader cache's extension section is damaged")
    generator: bytes | None = None
    hwcaps: list[bytes] = []
    for tag, _, start, size in _SECTION.iter_unpack(sections):
        content = data[start : start + size]
        if len(content) != size:
            raise LoaderCacheError("an extension of the loader cache lies outside of it")
        if tag == _GENERATOR and generator is None and size <= _LONGEST:
            generator = content
        elif tag == _HWCAPS and not hwcaps:
            if size % 4 or size > _LONGEST:
                raise LoaderCacheError("the loader cache's list of hwcaps is damaged")
            numbers = [int.from_bytes(content[i : i + 4], "little") for i in range(0, size, 4)]
            hwcaps = [_string(strings, number) for number in numbers]
    return generator, hwcaps


def merge(image: bytes | None, additions: Sequence[Addition], strip: Sequence[str] = ()) -> bytes:
    """The cache `image` (None: there is none) with the libraries of `additions` put first.

    Dropped from the image's own entries are those in the directories of `additions` and of
    `strip` (of an earlier merge), and those with a name and architecture that is added: a copy
    in a glibc-hwcaps directory would be preferred to the driver's. Merging twice changes nothing.
    Raises LoaderCacheError if `image` is not a cache that glibc reads.
    """
    cache = parse(image) if image is not None else LoaderCache([])
    ours = [name_bytes(directory) + b"/" for directory in strip]
    added: list[Entry] = []
    taken: dict[bytes, list[int]] = {}
    for directory, names, flags in additions:
        prefix = name_bytes(directory) + b"/"
        ours.append(prefix)
        same = [flags, _BITS_32_WITHOUT_LIBC] if flags == BITS_32 else [flags]
        for name in map(name_bytes, names):
            added.append((flags, name, prefix + name, 0, 0))
            taken[name] = taken.get(name, []) + same
    prefixes = tuple(ours)
    kept = [
        entry
        for entry in cache.entries
        if not entry[2].startswith(prefixes)
        and (entry[1] not in taken or entry[0] not in taken[entry[1]])
    ]
    cache.entries = _insert(kept, added)
    return write(cache)


def _insert(kept: list[Entry], added: list[Entry]) -> list[Entry]:
    """`kept`, which is in cache order, with each of `added` before the first that is not before it.

    Only the entries that a binary search meets get a key: most of an image's never do.
    """
    keys: dict[int, tuple[bytes, int]] = {}
    wanted = [((order_key(entry[1]), entry[0]), entry) for entry in added]
    wanted.sort(key=lambda item: item[0], reverse=True)  # stable, also in reverse
    result: list[Entry] = []
    done = 0
    for key, entry in wanted:
        low, high = done, len(kept)
        while low < high:
            middle = (low + high) // 2
            other = keys.get(middle)
            if other is None:
                other = keys[middle] = (order_key(kept[middle][1]), kept[middle][0])
            if other > key:
                low = middle + 1
            else:
                high = middle
        result += kept[done:low]
        result.append(entry)
        done = low
    return result + kept[done:]


def write(cache: LoaderCache) -> bytes:
    """The bytes of `cache` in format 1.1, laid out as ldconfig of glibc 2.33 and later does."""
    first = _HEADER.size + len(cache.entries) * _ENTRY.size
    strings, offsets = _string_table(cache, first)
    packed = _ENTRY.pack
    table = [
        packed(flags, offsets[name], offsets[path], osversion, hwcap)
        for flags, name, path, osversion, hwcap in cache.entries
    ]
    extensions = 0
    tail = b""
    if cache.generator is not None or cache.hwcaps:
        extensions = (first + len(strings) + 3) & -4
        padding = bytes(extensions - first - len(strings))
        tail = padding + _write_extensions(cache, offsets, extensions)
    header = _HEADER.pack(_MAGIC, len(table), len(strings), cache.endian, extensions)
    return b"".join([header, *table, strings, tail])


def _string_table(cache: LoaderCache, first: int) -> tuple[bytes, dict[bytes, int]]:
    """All strings, and the offset of each from the header, the table being at offset `first`.

    They are in descending order of their bytes read from the end, and one that ends the string
    before it shares its bytes.
    """
    # A name is nearly always the end of its path and need not be sorted too: the last path that
    # ends with it is the one that it shares bytes with.
    turned: dict[bytes, bytes] = {}
    for _, name, path, _, _ in cache.entries:
        if not path.endswith(name) or turned.setdefault(path[::-1], name) != name:
            turned.setdefault(path[::-1], path)
            turned.setdefault(name[::-1], name)
    for name in cache.hwcaps:
        turned.setdefault(name[::-1], name)
    table: list[bytes] = []
    offsets: dict[bytes, int] = {}
    last, end = b"", first
    for backwards in sorted(turned, reverse=True):
        size = len(backwards)
        string = backwards[::-1]
        if not table or not last.startswith(backwards):
            table.append(string)
            end += size + 1
        offsets[string] = end - 1 - size
        name = turned[backwards]
        offsets[name] = end - 1 - len(name)
        last = backwards
    table.append(b"")
    return b"\0".join(table), offsets


def _write_extensions(cache: LoaderCache, offsets: dict[bytes, int], start: int) -> bytes:
    """The extension section, which begins at offset `start` of the file."""
    hwcaps = b"".join([pack("<I", offsets[name]) for name in cache.hwcaps])
    tags = [_GENERATOR] * (cache.generator is not None) + [_HWCAPS] * bool(hwcaps)
    content = start + 8 + len(tags) * _SECTION.size
    sections = []
    for tag in tags:
        if tag == _GENERATOR:
            place, size = content + len(hwcaps), len(cache.generator or b"")
        else:
            place, size = content, len(hwcaps)
        sections.append(_SECTION.pack(tag, 0, place, size))
    header = pack("<II", _EXTENSION_MAGIC, len(tags))
    return b"".join([header, *sections, hwcaps, cache.generator or b""])
