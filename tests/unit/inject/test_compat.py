"""When an image's own newer libcuda comes before the driver's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpushim.allocate.grant import Grant
from gpushim.host.model import Gpu
from gpushim.inject.compat import (
    Compat,
    branch,
    find_compat,
    is_library,
    is_versioned,
    loadable,
    supports,
)
from gpushim.inject.compatnote import supported_branches
from gpushim.inject.container import Container
from gpushim.oci.rootfs import RootFs
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.inject import compatlibrary
from tests.unit.inject.compatlibrary import elf, install, libcuda, note

NEWER, HOST = "570.124.06", "535.183.01"
PLACE = "/usr/local/cuda-12.8/compat"
JSON = b'{"Format": 1, "CUDA Version": "13.1", "Driver": [535, 550, 570]}'


def gpu(brand: str | None = "nvidia", model: str = "NVIDIA A100-SXM4-80GB") -> Gpu:
    found = Gpu(0, "GPU-0", 0, "0000:07:00.0", model)
    found.brand = brand
    return found


def container(
    environment: list[str] | None = None, mounts: dict[str, str] | None = None
) -> Container:
    return Container("/r", False, environment or [], mounts or {}, False, False, [])


def find(
    root: Path,
    gpus: list[Gpu] | None = None,
    host: str = HOST,
    of: Container | None = None,
    capabilities: tuple[str, ...] = ("compute", "utility"),
) -> Compat | None:
    grant = Grant([gpu()] if gpus is None else gpus, list(capabilities))
    with RootFs(str(root)) as opened:
        return find_compat(opened, of or container(), host, grant)


def test_a_newer_one_is_used(tmp_path: Path) -> None:
    """Through the links of CUDA images, whose targets are absolute and the image's own."""
    install(tmp_path, NEWER)
    found = find(tmp_path)
    assert found
    assert (found.directory, found.version) == (PLACE, NEWER)
    assert sorted(found.libraries) == [
        "libcuda.so",
        "libcuda.so.1",
        "libcudadebugger.so.1",
        "libnvidia-nvvm.so.4",
        f"libnvidia-pkcs11-openssl3.so.{NEWER}",
        "libnvidia-ptxjitcompiler.so.1",
    ]
    assert NEWER in found.said
    assert not found.warning


@pytest.mark.parametrize(
    ("version", "host", "branches", "reason"),
    [
        ("570.124.06", "535.183.01", "", ""),
        ("570.124.06", "550.163.01", "535, 550, 560", ""),
        ("570.124.06", "545.23.08", "535, 550, 560", "branches 535, 550, 560"),
        ("570.124.06", "570.86.10", "", "no newer branch"),
        ("570.124.06", "570.133.20", "535, 570", "no newer branch"),
        ("535.54.03", "550.163.01", "", "no newer branch"),
        # As numbers: a text comparison would have it the other way round.
        ("1000.10.01", "990.10.01", "", ""),
        ("990.10.01", "1000.10.01", "", "no newer branch"),
        ("535.54.03", "450.80.02", "", ""),
        ("535.54.03", "440.33.01", "", "older than any"),
    ],
)
def test_by_version(tmp_path: Path, version: str, host: str, branches: str, reason: str) -> None:
    """A greater major, and one that the library says that it works with."""
    install(tmp_path, version, libcuda(branches))
    found = find(tmp_path, host=host)
    assert found
    assert bool(found.libraries) is not bool(reason)
    assert reason in found.said


@pytest.mark.parametrize(
    ("brand", "model", "supported"),
    [
        ("nvidia", "NVIDIA H100 80GB HBM3", True),
        ("tesla", "Tesla T4", True),
        ("quadro", "Quadro P4000", True),
        ("quadrortx", "Quadro RTX 6000", True),
        ("nvidiartx", "NVIDIA RTX A6000", True),
        ("vws", "GRID RTX6000-8Q", True),
        ("geforce", "NVIDIA GeForce RTX 4090", False),
        ("geforcertx", "NVIDIA GeForce RTX 3090", False),
        ("titan", "NVIDIA TITAN V", False),
        ("titanrtx", "TITAN RTX", False),
        ("nvs", "NVS 310", False),
        ("nvidia", "NVIDIA GeForce RTX 5090", False),
        ("unknown", "NVIDIA Graphics Device", False),
        (None, "NVIDIA A100-SXM4-80GB", True),
        (None, "NVIDIA GeForce RTX 4090", False),
        (None, "NVIDIA TITAN Xp", False),
    ],
)
def test_by_board(tmp_path: Path, brand: str | None, model: str, supported: bool) -> None:
    """On a consumer board CUDA would fail with error 804."""
    assert supports(gpu(brand, model)) is supported
    install(tmp_path, NEWER)
    found = find(tmp_path, [gpu(), gpu(brand, model)])
    assert found
    assert bool(found.libraries) is supported
    assert (model in found.said) is not supported


def test_where_no_cuda_program_can_run(tmp_path: Path) -> None:
    install(tmp_path, NEWER)
    assert find(tmp_path, []) is None
    assert find(tmp_path, capabilities=("utility", "video")) is None


@pytest.mark.parametrize(
    "mounted", ["/usr/local/cuda", "/usr/local", "/usr/local/cuda-12.8", "/usr/local/cuda/compat"]
)
def test_behind_a_volume(tmp_path: Path, mounted: str) -> None:
    """What the container sees there is not what the image has."""
    install(tmp_path, NEWER)
    assert find(tmp_path, of=container(mounts={mounted: "bind"})) is None


def test_images_without_one(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda/lib64").mkdir(parents=True)
    assert find(tmp_path) is None
    (tmp_path / "usr/local/cuda/compat").write_bytes(b"")
    assert find(tmp_path) is None


def test_a_link_on_the_way(tmp_path: Path) -> None:
    install(tmp_path, NEWER, directory="var/usrlocal/cuda/compat")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/local").symlink_to("../var/usrlocal")
    found = find(tmp_path)
    assert found
    assert found.directory == "/var/usrlocal/cuda/compat"


def test_links_out_of_the_image_stay_in_it(tmp_path: Path) -> None:
    (tmp_path / "root/usr/local").mkdir(parents=True)
    install(tmp_path, NEWER, directory="outside/compat")
    (tmp_path / "root/usr/local/cuda").symlink_to(
        "../../../../../../../.." + str(tmp_path / "outside")
    )
    assert find(tmp_path / "root") is None


ELF = elf(None)
MACHINE = os.uname().machine


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(1 << 16),
        b"garbage" * 100,
        b"#!/bin/sh\n" + b"#" * 100,
        ELF[:63],
        b"\x7fELF\x01" + ELF[5:],  # 32 bits
        b"\x7fELF\x02\x02" + ELF[6:],  # big-endian
        ELF[:16] + b"\x02\0" + ELF[18:],  # a program
        ELF[:16] + b"\x01\0" + ELF[18:],  # an object file
        ELF[:18] + b"\x15\0" + ELF[20:],  # another machine's
    ],
)
@pytest.mark.parametrize("which", [f"libcuda.so.{NEWER}", "libcuda.so.1"])
def test_a_library_that_no_loader_would_take(tmp_path: Path, content: bytes, which: str) -> None:
    """The driver's own is used then: a container with none would find no GPU."""
    place = install(tmp_path, NEWER)
    (place / which).unlink()
    (place / which).write_bytes(content)
    found = find(tmp_path)
    assert found
    assert not found.libraries
    assert f"not used: {PLACE}/{which} " in found.said
    assert f"no 64-bit shared object for {MACHINE}" in found.said


def test_a_sparse_library(tmp_path: Path) -> None:
    library = install(tmp_path, NEWER) / f"libcuda.so.{NEWER}"
    os.truncate(library, 0)
    os.truncate(library, 1 << 40)
    found = find(tmp_path)
    assert found
    assert not found.libraries


def test_a_soname_that_leads_nowhere(tmp_path: Path) -> None:
    place = install(tmp_path, NEWER)
    (place / "libcuda.so.1").unlink()
    (place / "libcuda.so.1").symlink_to("libcuda.so.9")
    found = find(tmp_path)
    assert found
    assert not found.libraries
    assert "libcuda.so.9 in the container's root file system can't be used" in found.said


@pytest.mark.parametrize(
    ("machine", "number", "fits"),
    [
        *(("x86_64", 62, True), ("aarch64", 183, True), ("x86_64", 183, False)),
        *(("aarch64", 62, False), ("riscv64", 243, False)),
    ],
)
def test_libraries_by_machine(machine: str, number: int, fits: bool) -> None:
    assert is_library(ELF[:18] + bytes([number, 0]) + ELF[20:64], machine) is fits


@given(st.binary(max_size=80))
def test_any_header(header: bytes) -> None:
    assert is_library(header, "x86_64") in (True, False)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("make", [fifo, link, Path.mkdir])
def test_a_library_that_is_none(tmp_path: Path, make: object) -> None:
    place = install(tmp_path, NEWER)
    library = place / f"libcuda.so.{NEWER}"
    library.unlink()
    assert callable(make)
    make(library)
    found = find(tmp_path)
    assert found
    assert not found.libraries
    assert "can't be used" in found.said


def test_incomplete_or_doubtful_directories(tmp_path: Path) -> None:
    place = install(tmp_path, NEWER)
    (place / "libcuda.so.560.35.05").write_bytes(libcuda())
    found = find(tmp_path)
    assert found
    assert not found.libraries
    assert "more than one libcuda" in found.said
    (place / "libcuda.so.560.35.05").unlink()
    (place / "libcuda.so.1").unlink()
    found = find(tmp_path)
    assert found
    assert not found.libraries
    assert "no libcuda.so.1" in found.said


@pytest.mark.parametrize(
    ("value", "moves"),
    [
        # What CUDA images set up to 12.6.
        ("/usr/local/nvidia/lib:/usr/local/nvidia/lib64", True),
        ("/usr/local/nvidia/lib64/", True),
        ("/usr/local/cuda/lib64", False),
        ("", False),
    ],
)
def test_the_tree_gives_way_to_a_search_path(tmp_path: Path, value: str, moves: bool) -> None:
    """LD_LIBRARY_PATH comes before the cache, so the driver must not be where it leads."""
    install(tmp_path, NEWER)
    asking = container([f"LD_LIBRARY_PATH={value}"])
    found = find(tmp_path, of=asking)
    assert found
    assert found.libraries
    place = "/opt/gpushim/nvidia" if moves else "/usr/local/nvidia"
    assert asking.tree_place() == place


@pytest.mark.parametrize(
    ("value", "warns"),
    [
        ("/usr/local/cuda/compat:/usr/local/nvidia/lib64", True),
        ("/opt/x:/usr/local/cuda-12.8/compat/", True),
        ("/usr/local/nvidia/lib64:/usr/local/cuda/compat", False),
        ("/usr/local/cuda/lib64", False),
    ],
)
def test_a_search_path_that_names_what_can_not_be_used(
    tmp_path: Path, value: str, warns: bool
) -> None:
    install(tmp_path, NEWER)
    asking = container([f"LD_LIBRARY_PATH={value}"])
    found = find(tmp_path, [gpu("geforce", "NVIDIA GeForce RTX 4090")], of=asking)
    assert found
    assert asking.tree_place() == "/usr/local/nvidia"
    assert bool(found.warning) is warns
    if warns:
        assert "LD_LIBRARY_PATH" in found.warning
        assert "GeForce" in found.warning


@pytest.mark.parametrize(
    ("name", "versioned"),
    [
        ("libcuda.so.560.35.05", True),
        ("libcuda.so.550.1", True),
        ("libcuda.so.1", False),
        ("libcuda.so", False),
        ("libcuda.so.1.1", True),
        ("libcudart.so.12.4", False),
        ("libcuda.so.560.x", False),
        ("libcuda.so.560.", False),
        ("libcuda.so.99999.1", False),
        ("libcuda.so.\u0663.\u0661", False),
    ],
)
def test_names_with_a_version(name: str, versioned: bool) -> None:
    assert is_versioned(name) is versioned


def test_what_the_loader_gets() -> None:
    names = [
        *("libcuda.so", "libcuda.so.1", "libcuda.so.5.1", "libx.so.5.1", "libnvvm.so.4"),
        *("libnvvm.so.5.1", "libold.so.4.9", "README", "notlib.so", "liby.so.1x"),
    ]
    assert loadable(names, "5.1") == ["libcuda.so", "libcuda.so.1", "libx.so.5.1", "libnvvm.so.4"]


@pytest.mark.parametrize(
    ("data", "branches"),
    [
        (elf(note(JSON)), [535, 550, 570]),
        (elf(note(JSON, alignment=8)), [535, 550, 570]),
        (elf(note(JSON + bytes(40))), [535, 550, 570]),
        (elf(None), []),
        (elf(note(JSON, owner=b"GNU\0")), []),
        (elf(note(JSON), section=b".note.gnu.build-id"), []),
        (elf(note(b'{"CUDA Version": "13.2"}')), []),
        (elf(note(b'{"Driver": "535"}')), []),
        (elf(note(b'{"Driver": [535, "550", true, -1, 1.5]}')), [535]),
        (elf(note(b'["Driver"]')), []),
        (elf(note(b'{"Driver": [535')), []),
        (elf(note(b"[" * 60000)), []),
        (elf(note(b"\xff")), []),
        (elf(b"\1\2\3"), []),
        (elf(bytes(1 << 17)), []),
        (elf(note(JSON))[:-1], []),
        (b"\x7fELF\x02\x01", []),
        (b"", []),
    ],
)
def test_the_note(tmp_path: Path, data: bytes, branches: list[int]) -> None:
    path = tmp_path / "library"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert supported_branches(file.fileno()) == branches


@pytest.mark.parametrize("alignment", [4, 8])
def test_the_note_of_a_linker(tmp_path: Path, alignment: int) -> None:
    text = JSON.decode().replace('"', '\\"')
    owner = compatlibrary.OWNER[:-1].decode()
    source = tmp_path / "note.s"
    source.write_text(
        f'.section {compatlibrary.SECTION.decode()},"a",@note\n.balign {alignment}\n'
        f".long 2f-1f\n.long 4f-3f\n.long 1\n"
        f'1: .asciz "{owner}"\n2: .balign {alignment}\n3: .ascii "{text}"\n4: .balign {alignment}\n'
    )
    library = tmp_path / "libcuda.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", library, source], check=True)
    with library.open("rb") as file:
        assert supported_branches(file.fileno()) == [535, 550, 570]


@given(st.data())
def test_nothing_in_a_library_raises(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(elf(note(JSON)))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    descriptor = os.memfd_create("library")
    try:
        os.write(descriptor, content[: data.draw(st.integers(0, len(content)))])
        found = supported_branches(descriptor)
    finally:
        os.close(descriptor)
    assert all(isinstance(number, int) for number in found)


@given(st.text())
def test_branches_are_numbers(text: str) -> None:
    assert branch(text) >= 0
    is_versioned("libcuda.so." + text)
