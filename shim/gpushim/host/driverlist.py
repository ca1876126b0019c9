"""What is found of a driver: libraries, programs and other files, and who asks for which."""

from __future__ import annotations

from collections.abc import Iterable

from gpushim.host.model import ExtraMount


class Library:
    """A shared library. name: of its file; path: on the host, no link; directory: beneath the
    tree's lib64 or lib ("" or "vdpau"); soname: "" if it has none; capabilities: any of them calls
    for it.
    """

    __slots__ = ("bits", "capabilities", "directory", "name", "path", "soname")

    def __init__(
        self,
        name: str,
        path: str,
        bits: int,
        soname: str,
        directory: str,
        capabilities: tuple[str, ...],
    ) -> None:
        self.name = name
        self.path = path
        self.bits = bits
        self.soname = soname
        self.directory = directory
        self.capabilities = capabilities

    @property
    def stem(self) -> str:
        return self.name.partition(".so")[0]


class Binary:
    """A program, or what is used like one. name: what it is called; path: on the host, no link."""

    __slots__ = ("capabilities", "name", "path")

    def __init__(self, name: str, path: str, capabilities: tuple[str, ...]) -> None:
        self.name = name
        self.path = path
        self.capabilities = capabilities


class DriverFiles:
    """All files of one driver version.

    firmware and shared: what has a fixed path in the container, as ExtraMounts; texts: path in a
    driver tree -> content, for those of shared that are not fit for containers as they are; links:
    names that programs use besides, each with the soname that it leads to; modules: files that are
    looked for beneath the libraries' directory, their names being paths in it; directories: those
    on the host that were searched, so that a change in them is noticed; unfit: files with a
    library's name that are none, or not yet: a driver's installer may be writing them.
    """

    __slots__ = (
        "binaries",
        "directories",
        "firmware",
        "libraries",
        "links",
        "modules",
        "shared",
        "texts",
        "unfit",
        "version",
    )

    def __init__(self, version: str) -> None:
        self.version = version
        self.libraries: list[Library] = []
        self.binaries: list[Binary] = []
        self.firmware: list[ExtraMount] = []
        self.shared: list[ExtraMount] = []
        self.links: dict[str, str] = {}
        self.modules: list[Binary] = []
        self.texts: dict[str, bytes] = {}
        self.directories: list[str] = []
        self.unfit: list[str] = []

    @property
    def extra_mounts(self) -> list[ExtraMount]:
        return self.shared + self.firmware

    @property
    def paths(self) -> list[str]:
        """Every file on the host, sorted, each once."""
        found = {file.path for file in self.libraries}
        found |= {file.path for file in [*self.binaries, *self.modules]}
        return sorted(found | {mount.host_path for mount in self.extra_mounts})

    def libraries_for(self, capabilities: Iterable[str], bits: int) -> list[Library]:
        """The libraries of one class; 32-bit ones only if compat32 is among the capabilities."""
        wanted = set(capabilities)
        if bits == 32 and "compat32" not in wanted:
            return []
        return [
            library
            for library in self.libraries
            if library.bits == bits and wanted.intersection(library.capabilities)
        ]

    def binaries_for(self, capabilities: Iterable[str]) -> list[Binary]:
        wanted = set(capabilities)
        return [binary for binary in self.binaries if wanted.intersection(binary.capabilities)]

    def modules_for(self, capabilities: Iterable[str]) -> list[Binary]:
        wanted = set(capabilities)
        return [module for module in self.modules if wanted.intersection(module.capabilities)]
