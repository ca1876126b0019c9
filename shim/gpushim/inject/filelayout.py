"""The layout "files": each of the driver's files mounted into the image's own directories.

The loader of every distribution looks into the directory that its C library lies in, so what is
mounted there is found without any change to a cache. Only where the image has a copy of its own
that the loader would prefer is the driver's file mounted over that one, too.
"""

from __future__ import annotations

import posix

from gpushim.host.libraryorder import name_bytes
from gpushim.inject.container import NVIDIA_SMI
from gpushim.inject.gpus import FILE_OPTIONS
from gpushim.inject.librarydirectory import (
    library_directory,
    library_directory_32,
    names_in,
    resolved,
)
from gpushim.inject.loadercache import CACHE, LoaderCacheResult, musl_reason
from gpushim.oci.edits import Mount
from gpushim.oci.rootentry import RootFsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.host.model import DriverTree
    from gpushim.inject.container import Container
    from gpushim.oci.edits import Edits
    from gpushim.oci.rootfs import RootFs

PROGRAMS = NVIDIA_SMI.rpartition("/")[0]

_LARGEST_CACHE = 8 << 20
_DEEPEST = 4  # directories of a driver tree within each other; it has two


def file_layout(
    root: RootFs,
    container: Container,
    tree: DriverTree,
    machine: str,
    edits: Edits,
    compat: str = "",
) -> LoaderCacheResult:
    """Has the driver's files mounted one by one; takes the place of `loadercache.make_visible`.

    machine: as uname -m; edits: those with the driver as one directory, whose mounts of the tree
    are taken out again; compat: a directory of the image whose libraries are to be preferred to
    the driver's, "" for none. The result has mounts, directories for LD_LIBRARY_PATH where the
    loader would not look otherwise, warnings and notes. What the user mounts stays the user's. Not
    for the host's own root, in which the mount points would be made.
    """
    result = LoaderCacheResult()
    taken = _take_out(edits, tree)
    try:
        reason = musl_reason(root, machine)
        if reason:
            result.warnings.append(f"The driver's libraries can't be loaded as usual: {reason}.")
        where, found = library_directory(root, machine, bool(reason))
        beside = where
        if container.covered(where):
            where = _elsewhere(container, where, "lib64", result)
        elif not found and not reason:
            result.library_path.append(where)
            result.notes.append(
                f"The image has no C library in a directory known to gpushim; the driver's are "
                f"in {where}, and LD_LIBRARY_PATH names it."
            )
        placed = _Placed(root, container, taken, result)
        names = listing(tree.path + "/lib64")
        placed.add(tree.path + "/lib64", where, names)
        _over_copies(placed, tree.path + "/lib64", where, names, compat, machine)
        names32 = listing(tree.path + "/lib")
        if names32:
            where32, found32 = library_directory_32(root, machine, beside)
            if container.covered(where32):
                where32 = _elsewhere(container, where32, "lib", result)
            elif not found and not found32:
                result.library_path.append(where32)
            placed.add(tree.path + "/lib", where32, names32)
        placed.add(tree.path + "/bin", PROGRAMS, listing(tree.path + "/bin"))
    except RootFsError as error:
        result.warnings.append(f"Not all of the driver's files are in the container: {error}")
    if compat:
        result.library_path.insert(0, compat)
    return result


def _elsewhere(container: Container, where: str, part: str, result: LoaderCacheResult) -> str:
    """Another directory for libraries whose own lies in a volume, which is to stay as it is.

    Mount points that are missing would be made in there, and so on the host.
    """
    place = f"{container.tree_place()}/{part}"
    result.library_path.append(place)
    result.warnings.append(
        f"The driver's libraries are in {place} and found through LD_LIBRARY_PATH only, because "
        f"{where}, where the image's loader looks, lies in a volume."
    )
    return place


def plain_mounts(tree: DriverTree, lib64: str, lib: str, taken: set[str]) -> list[Mount]:
    """The same for an image that nobody knows yet, with its directories given.

    taken: destinations that have a mount already.
    """
    return [
        Mount(f"{tree.path}/{part}/{name}", f"{directory}/{name}", list(FILE_OPTIONS))
        for part, directory in (("lib64", lib64), ("lib", lib), ("bin", PROGRAMS))
        for name in listing(f"{tree.path}/{part}")
        if f"{directory}/{name}" not in taken
    ]


def mounts_over_copies(
    root: RootFs, container: Container, tree: str, where: str, machine: str
) -> tuple[list[Mount], list[str]]:
    """What has to cover copies that the image's loader would prefer to the files in `where`.

    tree: path of the driver tree whose files are there already. Returns notes, too.
    """
    result = LoaderCacheResult()
    source = tree + "/lib64"
    placed = _Placed(root, container, set(), result)
    _over_copies(placed, source, where, listing(source), "", machine)
    return result.mounts, result.notes


def listing(directory: str, below: str = "", depth: int = 0) -> list[str]:
    """Every file and link in a part of a driver tree, as paths relative to it, in order."""
    names = []
    try:
        with posix.scandir(f"{directory}/{below}") as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return []  # a capability set may have no programs, say
    for name, is_directory in found:
        if not is_directory:
            names.append(below + name)
        elif depth < _DEEPEST:
            names += listing(directory, f"{below}{name}/", depth + 1)
    return names


def _take_out(edits: Edits, tree: DriverTree) -> set[str]:
    """Drops the mounts of the tree as a whole and of its nvidia-smi; what else is mounted where."""
    whole = (tree.path, f"{tree.path}/bin/nvidia-smi")
    edits.mounts = [mount for mount in edits.mounts if mount.host_path not in whole]
    return {mount.container_path for mount in edits.mounts}


class _Placed:
    """The mounts made so far.

    taken: destinations that have one already; in_volumes: whether the user's mounts may be in the
    way at all, which are not those that engines make.
    """

    __slots__ = ("container", "in_volumes", "result", "root", "taken")

    def __init__(
        self, root: RootFs, container: Container, taken: set[str], result: LoaderCacheResult
    ) -> None:
        self.root = root
        self.container = container
        self.taken = taken
        self.result = result
        self.in_volumes = container.has_volumes

    def add(self, source: str, destination: str, names: list[str]) -> None:
        """Mounts each of `names` from one directory into another."""
        if self.in_volumes and names and self.container.covered(destination):
            self.result.warnings.append(
                f"The driver's files for {destination} are left out: it lies in a volume."
            )
            return
        present: dict[str, set[str]] = {}
        for name in names:
            path = f"{destination}/{name}"
            directory, _, last = path.rpartition("/")
            if directory not in present:
                present[directory] = set(names_in(self.root, resolved(self.root, directory)))
            self.one(f"{source}/{name}", path, last in present[directory])

    def one(self, source: str, path: str, is_there: bool) -> bool:
        """Mounts one file, unless something is in the way; is_there: whether the image has one."""
        if path in self.taken or (self.in_volumes and self.container.covered(path)):
            return False
        if is_there and self.root.is_directory(resolved(self.root, path)):
            # Docker leaves such directories where it was told to mount a file that was missing.
            self.result.warnings.append(
                f"{path} of the driver is left out: the image has a folder there."
            )
            return False
        self.taken.add(path)
        self.result.mounts.append(Mount(source, path, list(FILE_OPTIONS)))
        return True


def _over_copies(
    placed: _Placed, source: str, where: str, names: list[str], compat: str, machine: str
) -> None:
    """Mounts the driver's 64-bit files over copies that the image's loader would prefer.

    Those are the ones in its cache, and those in directories that it searches first: the one of
    the same name outside /usr, where that is another, and the ones for kinds of processors.
    """
    root = placed.root
    known = set(names)
    copies = _cached_copies(root, known, machine)
    for directory in _searched_first(root, where):
        copies.update((f"{directory}/{name}", name) for name in names_in(root, directory))
    spared = resolved(root, compat) + "/" if compat else ""
    for copy, name in copies.items():
        path = resolved(root, copy)
        if name not in known or path == resolved(root, f"{where}/{name}"):
            continue
        if (spared and path.startswith(spared)) or not root.exists(path):
            continue
        if placed.one(f"{source}/{name}", path, True):
            placed.result.notes.append(f"{copy} of the image is covered by the driver's {name}.")


def _searched_first(root: RootFs, where: str) -> list[str]:
    apart = resolved(root, where.removeprefix("/usr"))
    directories = [apart] if apart != where else []
    for base in (apart, where):
        hwcaps = f"{base}/glibc-hwcaps"  # ld.so(8), "glibc-hwcaps subdirectories"
        directories += [f"{hwcaps}/{level}" for level in names_in(root, hwcaps)]
    return directories


def _cached_copies(root: RootFs, names: set[str], machine: str) -> dict[str, str]:
    """The 64-bit libraries of these names in the image's cache: path -> name."""
    try:
        cache = root.read_regular(CACHE, _LARGEST_CACHE)
    except RootFsError:
        return {}
    # Most images know none of them, and their cache need not be read entry by entry.
    if not cache or not any(name_bytes(name) + b"\0" in cache for name in names):
        return {}
    from gpushim.host.ldsocache import AARCH64, X86_64, LoaderCacheError, parse

    wanted = {"x86_64": X86_64, "aarch64": AARCH64}.get(machine)
    try:
        entries = parse(cache).entries
    except LoaderCacheError:
        return {}  # then the loader does not use it either
    known = {name_bytes(name): name for name in names}
    return {
        path.decode("utf-8", "surrogateescape"): known[name]
        for flags, name, path, _, _ in entries
        if flags == wanted and name in known and path.startswith(b"/")
    }
