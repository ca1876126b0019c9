"""Finding the files of NVIDIA's driver beneath a driver root, and which capability each is for.

Runs in refresh only. Symbolic links are resolved beneath the driver root, so that a containerised
driver's (/run/nvidia/driver) lead to its own files and not to the host's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from gpushim.errors import GpushimError, why
from gpushim.host import drivercatalogue as catalogue
from gpushim.host.driverlist import Binary, DriverFiles, Library
from gpushim.host.elf import AARCH64, ARM, I386, X86_64, ElfError, read_elf
from gpushim.host.ldsocache import LoaderCache, LoaderCacheError, parse
from gpushim.host.manifests import portable
from gpushim.host.model import ExtraMount
from gpushim.oci.rootentry import RootFsError
from gpushim.oci.rootfs import RootFs

_MACHINES = {"x86_64": {64: X86_64, 32: I386}, "aarch64": {64: AARCH64, 32: ARM}}
_LARGEST_CACHE = 8 << 20
_LARGEST_TEXT = 1 << 16
_VERSION = re.compile(r"(?:libcuda|libnvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)")
_OWN_VERSION = re.compile(r"(.+)\.so\.\d+(?:\.\d+)*")
_SUBDIRECTORIES = {"vdpau": "vdpau", "tls": ""}  # beside the libraries -> in the tree's lib64


def find(driver_root: str, driver_version: str, machine: str = "") -> DriverFiles:
    """The driver's files beneath `driver_root`. What is not there is left out.

    machine: as uname -m, by default this one's. Raises GpushimError if the root can't be
    opened.
    """
    files = DriverFiles(driver_version)
    with _open(driver_root) as root:
        finder = _Finder(root, driver_version, machine or os.uname().machine)
        finder.find_libraries(files)
        finder.find_binaries(files)
        finder.find_modules(files)
        finder.find_shared(files)
        finder.find_firmware(files)
        files.directories = sorted(finder.searched)
        files.unfit = sorted(finder.unfit)
    return files


def userspace_versions(driver_root: str) -> list[str]:
    """The driver versions that libraries beneath `driver_root` have, the newest first."""
    with _open(driver_root) as root:
        finder = _Finder(root, "", os.uname().machine)
        found = set()
        for directory in finder.library_directories():
            for name in finder.names(directory):
                match = _VERSION.fullmatch(name)
                if match and finder.file(f"{directory}/{name}"):
                    found.add(match.group(1))
    return sorted(found, key=lambda text: [int(part) for part in text.split(".")], reverse=True)


def _open(driver_root: str) -> RootFs:
    try:
        return RootFs(driver_root)
    except RootFsError as error:
        raise GpushimError(
            f"The driver root {driver_root} can't be used: {why(OSError(error.errno, ''))}.",
            "It is host.driver-root of the configuration.",
        ) from None


class _Finder:
    """Looks beneath one root. Paths are relative to it; what it returns are paths on the host."""

    def __init__(self, root: RootFs, version: str, machine: str) -> None:
        self.root = root
        self.base = root.path.rstrip("/")
        self.version = version
        self.machine = machine
        self.searched: set[str] = set()
        self.unfit: set[str] = set()

    def resolve(self, path: str) -> str | None:
        """`path` without links, relative to the root; None if links make no sense."""
        try:
            return "/".join(self.root.resolve_in_root(path))
        except RootFsError:
            return None

    def file(self, path: str) -> str | None:
        """The host path of the regular file that `path` leads to; None if there is none."""
        resolved = self.resolve(path)
        found = f"{self.base}/{resolved}"
        return found if resolved and os.path.isfile(found) else None

    def names(self, directory: str) -> list[str]:
        """The names in a directory; none if it is absent. It counts as searched."""
        try:
            found = self.root.listdir(directory)
        except RootFsError:
            return []
        if self.root.is_directory(directory):
            self.searched.add(f"{self.base}/{directory}")
        return found

    def directories(self, candidates: Iterable[str]) -> Iterator[str]:
        """Those candidates that are directories, without links, each once."""
        seen = set()
        for candidate in candidates:
            resolved = self.resolve(candidate)
            if resolved and resolved not in seen and os.path.isdir(f"{self.base}/{resolved}"):
                seen.add(resolved)
                yield resolved

    def library_directories(self) -> list[str]:
        """Where the driver's libraries may be: what the root's loader knows, and the usual ones."""
        listed: list[str] = []
        try:
            data = self.root.read_regular("/etc/ld.so.cache", _LARGEST_CACHE)
            cache = parse(data) if data is not None else LoaderCache([])
        except (RootFsError, LoaderCacheError):
            cache = LoaderCache([])
        for _, name, path, _, _ in cache.entries:
            if os.fsdecode(name).partition(".so")[0] in catalogue.LIBRARIES:
                listed.append(os.path.dirname(os.fsdecode(path)))
        return list(self.directories([*listed, *catalogue.LIBRARY_DIRECTORIES]))

    def find_libraries(self, files: DriverFiles) -> None:
        seen: set[tuple[int, str]] = set()
        for directory in self.library_directories():
            for below, place in (("", ""), *_SUBDIRECTORIES.items()):
                where = f"{directory}/{below}" if below else directory
                for name in self.names(where):
                    if name in catalogue.EXTRA_LINKS:
                        files.links[name] = catalogue.EXTRA_LINKS[name]
                    library = self._library(where, name, place) if self._is_ours(name) else None
                    if library and (library.bits, library.name) not in seen:
                        seen.add((library.bits, library.name))
                        files.libraries.append(library)

    def _is_ours(self, name: str) -> bool:
        if name.endswith(f".so.{self.version}"):
            return name.startswith("lib")
        match = _OWN_VERSION.fullmatch(name)
        return match is not None and match.group(1) in catalogue.OWN_VERSION

    def _library(self, directory: str, name: str, place: str) -> Library | None:
        """The library of that name; None for a link to one beside it or an unfit file."""
        path = self.file(f"{directory}/{name}")
        if path is None:
            return None
        stem = name.partition(".so")[0]
        here = f"{self.base}/{directory}"
        if stem in catalogue.OWN_VERSION and os.path.dirname(path) == here:
            name = os.path.basename(path)  # a soname link: its target is the library
        try:
            elf = read_elf(path)
        except (ElfError, OSError):
            self.unfit.add(path)
            return None
        if _MACHINES.get(self.machine, {}).get(elf.bits) != elf.machine:
            return None
        capabilities = catalogue.capabilities_of(stem)
        return Library(name, path, elf.bits, elf.soname, place, capabilities)

    def find_binaries(self, files: DriverFiles) -> None:
        directories = list(self.directories(catalogue.BINARY_DIRECTORIES))
        for directory in directories:
            self.names(directory)
        for name, capabilities in catalogue.BINARIES.items():
            for directory in directories:
                path = self.file(f"{directory}/{name}")
                if path:
                    files.binaries.append(Binary(name, path, capabilities))
                    break

    def find_modules(self, files: DriverFiles) -> None:
        """For Windows programs under Wine: there are 64-bit ones only."""
        places = [
            f"{directory}/{catalogue.WINE_DIRECTORY}" for directory in self.library_directories()
        ]
        for name in catalogue.WINE_LIBRARIES:
            path = self._first(places, name)
            if path:
                inside = f"{catalogue.WINE_DIRECTORY}/{name}"
                files.modules.append(Binary(inside, path, catalogue.WINE_CAPABILITIES))

    def find_shared(self, files: DriverFiles) -> None:
        for directories, names, places, capabilities in catalogue.extra_files(self.version):
            for name in names:
                path = self._first(directories, name)
                if path is None:
                    continue
                text = portable(self._text(path)) if name.endswith(".json") else None
                for place in places:
                    mount = ExtraMount(path, f"{place}/{name}", list(capabilities))
                    if text is not None:
                        mount.in_tree = "share/portable" + mount.container_path
                        files.texts[mount.in_tree] = text
                    files.shared.append(mount)
        self._find_gbm(files)

    def _text(self, path: str) -> bytes:
        """The content of a small file of which the host path is known."""
        try:
            return self.root.read_regular(path[len(self.base) :], _LARGEST_TEXT) or b""
        except RootFsError:
            return b""

    def _find_gbm(self, files: DriverFiles) -> None:
        capabilities = list(catalogue.GBM_CAPABILITIES)
        for library in files.libraries:
            if library.stem == catalogue.GBM_LIBRARY and library.bits == 64:
                for place in catalogue.GBM_IN_CONTAINER.get(self.machine, ()):
                    target = f"{place}/{catalogue.GBM_BACK_END}"
                    files.shared.append(ExtraMount(library.path, target, capabilities))
                return

    def _first(self, directories: Iterable[str], name: str) -> str | None:
        for directory in self.directories(directories):
            path = self.file(f"{directory}/{name}")
            if path:
                return path
        return None

    def find_firmware(self, files: DriverFiles) -> None:
        places = [f"{place}/nvidia/{self.version}" for place in catalogue.FIRMWARE_DIRECTORIES]
        for directory in self.directories(places):
            for name in self.names(directory):
                path = self.file(f"{directory}/{name}")
                if path and name.startswith("gsp") and name.endswith(".bin"):
                    target = f"/lib/firmware/nvidia/{self.version}/{name}"
                    capabilities = list(catalogue.FIRMWARE_CAPABILITIES)
                    files.firmware.append(ExtraMount(path, target, capabilities))
            if files.firmware:
                return
