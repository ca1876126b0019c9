"""Sonames of real and of broken libraries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gpushim.host.elf import I386, X86_64, ElfError, read_elf
from hypothesis import given
from hypothesis import strategies as st

from tests.fakehost import write_library


@pytest.mark.parametrize(("bits", "machine"), [(64, X86_64), (32, I386)])
def test_class_machine_and_soname(tmp_path: Path, bits: int, machine: int) -> None:
    write_library(tmp_path / "libx.so.1.2", "libx.so.1", bits)
    found = read_elf(str(tmp_path / "libx.so.1.2"))
    assert (found.bits, found.machine, found.soname) == (bits, machine, "libx.so.1")


def test_a_soname_that_is_a_path_is_none(tmp_path: Path) -> None:
    """A link of that name is made in the driver tree."""
    write_library(tmp_path / "libx.so", "../../x.so.1")
    assert read_elf(str(tmp_path / "libx.so")).soname == ""


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x02" + b"x" * 80])
def test_what_is_no_library(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ElfError):
        read_elf(str(tmp_path / "x"))


@pytest.mark.parametrize("bits", [64, 32])
def test_damaged_libraries_raise_nothing_else(tmp_path: Path, bits: int) -> None:
    file = tmp_path / "libx.so.1"
    write_library(file, "libx.so.1", bits)
    whole = file.read_bytes()
    dynamic = whole.find(b"libx.so.1")
    chance = random.Random(bits)
    failures = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(3):
            data[chance.randrange(min(len(data), dynamic + 600))] = chance.randrange(256)
            data[chance.randrange(400)] = chance.choice([0, 1, 127, 255])
        file.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        try:
            read_elf(str(file))
        except ElfError:
            failures += 1
    assert failures > 100


@given(st.binary(max_size=300))
def test_any_bytes_are_judged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(b"\x7fELF\x02\x01" + data)
    try:
        read_elf(str(file))
    except ElfError:
        pass
