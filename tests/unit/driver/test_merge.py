"""The merged loader cache is the one that ldconfig itself would write."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from gpushim.host.ldsocache import (
    AARCH64,
    BITS_32,
    X86_64,
    LoaderCache,
    LoaderCacheError,
    merge,
    parse,
    write,
)
from gpushim.host.libraryorder import sort_names
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.driver import ldconfig

LIB64, LIB32 = "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"
DRIVER = [
    ("libcuda.so.550.163.01", "libcuda.so.1"),
    ("libnvidia-ml.so.550.163.01", "libnvidia-ml.so.1"),
    ("libnvidia-gpucomp.so.550.163.01", "libnvidia-gpucomp.so.550.163.01"),
    ("libnvidia-nvvm.so.550.163.01", "libnvidia-nvvm.so.4"),
    ("libEGL_nvidia.so.550.163.01", "libEGL_nvidia.so.0"),
    ("libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-gbm.so.1"),
]
IMAGE = [
    ("libz.so.1.2.13", "libz.so.1"),
    ("libz10.so.1.0", "libz10.so.1"),
    ("libz9.so.1.0", "libz9.so.1"),
    ("libc.so.6", "libc.so.6"),
    ("libstdc++.so.6.0.30", "libstdc++.so.6"),
    ("libX11-xcb.so.1.0.0", "libX11-xcb.so.1"),
    ("libcudart.so.12.4.127", "libcudart.so.12"),
    ("libnvidia-container.so.1.17.8", "libnvidia-container.so.1"),
    ("libGL.so.1.7.0", "libGL.so.1"),
]
NAMES = sort_names([soname for _, soname in DRIVER])


def image_root(root: Path, hwcaps: bool = True) -> Path:
    for name, soname in IMAGE:
        ldconfig.library(root, f"lib/{name}", soname)
    ldconfig.library(root, "lib32/libz.so.1.2.13", "libz.so.1", bits=32)
    if hwcaps:
        ldconfig.library(root, "lib/glibc-hwcaps/x86-64-v3/libz.so.1.2.13", "libz.so.1")
        ldconfig.library(root, "lib/glibc-hwcaps/x86-64-v2/libz.so.1.2.13", "libz.so.1")
        ldconfig.library(root, "lib/glibc-hwcaps/x86-64-v3/libGL.so.1.7.0", "libGL.so.1")
    return root


def add_driver(root: Path) -> None:
    for name, soname in DRIVER:
        ldconfig.library(root, f"{LIB64[1:]}/{name}", soname)
        ldconfig.library(root, f"{LIB32[1:]}/{name}", soname, bits=32)


@pytest.mark.parametrize("hwcaps", [True, False])
@pytest.mark.parametrize("kind", ["new", "compat"])
def test_the_result_is_what_ldconfig_writes(tmp_path: Path, hwcaps: bool, kind: str) -> None:
    root = image_root(tmp_path, hwcaps)
    image = ldconfig.run(root, ["/lib32"], kind)
    add_driver(root)
    expected = ldconfig.run(root, [LIB64, LIB32, "/lib32"])
    assert merge(image, [(LIB64, NAMES, X86_64), (LIB32, NAMES, BITS_32)]) == expected


def test_a_cache_survives_reading_and_writing(tmp_path: Path) -> None:
    image = ldconfig.run(image_root(tmp_path), ["/lib32"])
    assert write(parse(image)) == image


def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    additions = [(LIB64, NAMES, X86_64), (LIB32, NAMES, BITS_32)]
    once = merge(ldconfig.run(image_root(tmp_path), ["/lib32"]), additions)
    assert merge(once, additions) == once


def test_without_a_cache_there_are_only_the_added_entries() -> None:
    merged = parse(merge(None, [(LIB64, ["libcuda.so.1"], X86_64)]))
    assert merged.entries == [(X86_64, b"libcuda.so.1", LIB64.encode() + b"/libcuda.so.1", 0, 0)]


def test_former_entries_of_ours_are_replaced(tmp_path: Path) -> None:
    """A committed image holds those of another driver, perhaps from another place (B14)."""
    image = ldconfig.run(image_root(tmp_path), ["/lib32"])
    former = merge(
        image,
        [(LIB64, ["libold.so.1", "libcuda.so.1"], X86_64), ("/opt/old/lib64", ["liba.so"], X86_64)],
    )
    new = merge(former, [(LIB64, NAMES, X86_64)], strip=[LIB32, "/opt/old/lib64"])
    assert new == merge(image, [(LIB64, NAMES, X86_64)])


@pytest.mark.parametrize(
    ("flags", "theirs", "dropped"),
    [
        (X86_64, X86_64, True),
        (X86_64, BITS_32, False),
        (X86_64, AARCH64, False),
        (AARCH64, AARCH64, True),
        (BITS_32, BITS_32, True),
        (BITS_32, 1, True),  # a 32-bit library that needs no libc
        (BITS_32, X86_64, False),
    ],
)
def test_the_image_s_own_of_the_same_name_go(flags: int, theirs: int, dropped: bool) -> None:
    """One in a glibc-hwcaps directory would be preferred to the driver's (B13)."""
    hwcap = 1 << 62
    own = (theirs, b"libcuda.so.1", b"/lib/glibc-hwcaps/x86-64-v3/libcuda.so.1", 7, hwcap)
    image = write(LoaderCache([own], b"ldconfig", [b"x86-64-v3"]))
    merged = parse(merge(image, [(LIB64, ["libcuda.so.1"], flags)]))
    assert (own not in merged.entries) is dropped
    assert len(merged.entries) == 2 - dropped
    assert (merged.hwcaps, merged.generator) == ([b"x86-64-v3"], b"ldconfig")


def test_fields_that_are_not_ours_are_kept() -> None:
    entry = (X86_64, b"libz.so.1", b"/lib/libz.so.1", 0x20600, 0xDEADBEEF)
    merged = parse(merge(write(LoaderCache([entry])), [(LIB64, NAMES, X86_64)]))
    assert entry in merged.entries


def test_compat_names_of_hwcaps_are_right(tmp_path: Path) -> None:
    """glibc's own compat output tells `ldconfig -p` garbage for them; what we write does not."""
    image = ldconfig.run(image_root(tmp_path), [], "compat")
    (tmp_path / "merged").write_bytes(merge(image, [(LIB64, NAMES, X86_64)]))
    lines = ldconfig.printed(tmp_path / "merged")
    assert any('hwcap: "x86-64-v3"' in line and "libGL" in line for line in lines)
    assert f"libcuda.so.1 (libc6,x86-64) => {LIB64}/libcuda.so.1" in lines


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"garbage",
        b"glibc-ld.so.cache1.1",
        b"glibc-ld.so.cache1.2" + bytes(100),
        b"ld.so-1.7.0\0" + struct.pack("<I", 0),
        b"ld.so-1.7.0\0" + struct.pack("<I", 0xFFFFFFFF) + bytes(64),
        b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 0xFFFFFFFF, 0, 2, 0),
        b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 0, 0, 3, 0),
        b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 0, 0, 2, 48),
        b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 1, 0, 2, 0) + b"\xff" * 24,
    ],
)
def test_what_is_no_cache_is_refused(data: bytes) -> None:
    with pytest.raises(LoaderCacheError):
        merge(data, [(LIB64, NAMES, X86_64)])


def test_old_format_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoaderCacheError, match=r"before 2\.2"):
        parse(ldconfig.run(image_root(tmp_path), [], "old"))


def test_strings_that_share_their_bytes_are_bounded() -> None:
    """A megabyte of entries that all show the same long tail would become gigabytes."""
    count = 20000
    first = 48 + 24 * count
    entries = b"".join(
        struct.pack("<iIIIQ", 0x303, first + i % 4000, first, 0, 0) for i in range(count)
    )
    data = struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", count, 4001, 2, 0)
    started = time.monotonic()
    with pytest.raises(LoaderCacheError):
        parse(data + entries + b"x" * 4000 + b"\0")
    assert time.monotonic() - started < 2


def survives(data: bytes) -> bool:
    try:
        merged = merge(data, [(LIB64, NAMES, X86_64)])
    except LoaderCacheError:
        return False
    assert merge(merged, [(LIB64, NAMES, X86_64)]) == merged
    return True


def test_damaged_caches_raise_nothing_else(tmp_path: Path) -> None:
    images = [
        ldconfig.run(image_root(tmp_path), ["/lib32"], kind) for kind in ("new", "compat", "old")
    ]
    chance = random.Random(1)
    outcomes = []
    started = time.monotonic()
    for number in range(4500):
        data = bytearray(images[number % 3])
        if number % 2:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.randrange(1, 12)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        outcomes.append(survives(bytes(data)))
    assert 0 < sum(outcomes) < len(outcomes)
    assert time.monotonic() - started < 60


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([1, 3, 0x303, 0xA03, -5]),
        st.binary(max_size=12).map(lambda raw: raw.replace(b"\0", b"0")),
        st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b"/")),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
    ),
    max_size=12,
)


@given(ENTRIES, st.lists(st.binary(max_size=6).map(lambda raw: raw.replace(b"\0", b"v"))))
def test_every_cache_comes_back_as_it_was(
    entries: list[tuple[int, bytes, bytes, int, int]], hwcaps: list[bytes]
) -> None:
    data = write(LoaderCache(entries, b"test", hwcaps))
    try:
        read = parse(data)
    except LoaderCacheError:
        # Strings that share most of their bytes are refused, as no ldconfig's are.
        assert sum(len(name) + len(path) for _, name, path, _, _ in entries) > len(data)
        return
    assert (read.entries, read.hwcaps, read.generator) == (entries, hwcaps, b"test")


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_judged(tail: bytes, old: bool) -> None:
    start = b"ld.so-1.7.0\0" if old else b"glibc-ld.so.cache1.1"
    survives(start + tail)


def test_a_large_cache_is_merged_fast() -> None:
    """The create path has no more than a millisecond or so for it; ten leave room for others."""
    image = write(
        LoaderCache(
            [
                (X86_64, name.encode(), b"/usr/lib/x86_64-linux-gnu/" + name.encode(), 0, 0)
                for name in sort_names([f"libexample-{n}.so.{n % 9}" for n in range(600)])
            ],
            b"test",
        )
    )
    times = []
    for _ in range(15):
        started = time.process_time()
        merge(image, [(LIB64, NAMES, X86_64)])
        times.append(time.process_time() - started)
    assert min(times) < 0.010
