"""Making the driver's libraries visible to the image's own loader.

`make_visible` reads the image, decides, and writes; everything beside it and the functions whose
names begin with `_write` is pure. The ways, the best first:

1. the merged cache in the place of the image's /etc/ld.so.cache, with a drop-in so that a later
   ldconfig in the container keeps the entries: only in a root that is the container's own;
2. the merged cache in a file of ours, mounted read-only over the image's: for a root that takes no
   writes or that others may share (an ldconfig in the container then fails to rename its file);
3. LD_LIBRARY_PATH and a warning, since neither `exec` nor set-uid programs get it: for the host's
   own root, for musl, and where the image's cache can't be used.
"""

from __future__ import annotations

from gpushim.inject import keptcaches
from gpushim.inject.container import TREE_PLACES
from gpushim.oci.edits import Mount
from gpushim.oci.rootentry import RootFsError
from gpushim.oci.rootfs import RootFs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.host.ldsocache import Addition
    from gpushim.host.model import DriverTree
    from gpushim.inject.compat import Compat
    from gpushim.places import Places

CACHE = "/etc/ld.so.cache"
CONF = "/etc/ld.so.conf"
CONF_DIRECTORY = "/etc/ld.so.conf.d"
DROP_IN = CONF_DIRECTORY + "/00-gpushim.conf"
MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "bind", "rprivate")

_INCLUDE = b"include /etc/ld.so.conf.d/*.conf\n"
_LARGEST_CACHE = keptcaches.LARGEST
_LARGEST_CONF = 1 << 20
_LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}
_LDCONFIGS = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "/usr/bin/ldconfig")


class LoaderCacheResult:
    """What was done, and what is still to be done.

    mounts: for the spec; library_path: directories that LD_LIBRARY_PATH has to name; written: what
    was written into the root, in sentences; warnings: sentences for the user; notes: for the log.
    """

    __slots__ = ("library_path", "mounts", "notes", "warnings", "written")

    def __init__(self) -> None:
        self.mounts: list[Mount] = []
        self.library_path: list[str] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.written: list[str] = []


class Target:
    """What is to become visible, and how.

    tree: the libraries; destination: where the container sees the tree ("/usr/local/nvidia");
    machine: as uname -m; compat: the image's own newer libcuda and what belongs to it, which
    comes before the tree's; lib64 and lib: where the container sees the libraries, by default in
    the tree.
    """

    __slots__ = ("compat", "destination", "lib", "lib64", "machine", "tree")

    def __init__(
        self,
        tree: DriverTree,
        destination: str,
        machine: str,
        compat: Compat | None = None,
        lib64: str = "",
        lib: str = "",
    ) -> None:
        self.tree = tree
        self.destination = destination
        self.machine = machine
        self.compat = compat
        self.lib64 = lib64 or destination + "/lib64"
        self.lib = lib or destination + "/lib"

    def directories(self) -> list[str]:
        """The directories that have libraries, as the container sees them, in their order."""
        found = [self.compat.directory] if self.compat and self.compat.libraries else []
        found.append(self.lib64)
        if self.tree.libraries32:
            found.append(self.lib)
        return found

    def identity(self) -> str:
        """What makes a cache that was merged for this target the right one for another."""
        words = [self.tree.path, self.destination, self.lib64, self.lib, self.machine]
        if self.compat:
            words += [self.compat.directory, *self.compat.libraries]
        return "\n".join(words)


def make_visible(
    root: RootFs,
    target: Target,
    may_write: bool,
    is_host_root: bool,
    places: Places,
    mounted_over: str = "",
) -> LoaderCacheResult:
    """Make the target's libraries visible to the loader of the image in `root`.

    may_write: the root is the container's own and neither the spec nor the configuration makes
    it read-only; mounted_over: the type of a mount of the user's that hides the image's cache, ""
    if none does. Nothing that an image holds makes this fail: what can't be used leads to the
    next way, with a warning or a note.
    """
    result = LoaderCacheResult()
    if target.compat:
        result.notes.append(target.compat.said)
        result.warnings += [target.compat.warning] if target.compat.warning else []
    if is_host_root:
        _use_library_path(result, target, "the container's root is the host's own root file system")
        return result
    if mounted_over not in ("", "tmpfs"):
        # The loader reads the user's cache, which is no image's and stays as it is.
        _use_library_path(result, target, f"a volume is mounted over {CACHE}")
        return result
    try:
        musl = musl_reason(root, target.machine)
        if musl:
            _use_library_path(result, target, musl)
            return result
        cache = root.read_regular(CACHE, _LARGEST_CACHE)
        kept = keptcaches.path_of(places, cache, target.identity())
        merged = keptcaches.read(kept)
        if merged is None:
            merged = merged_cache(cache, target)
            kept = keptcaches.keep(kept, merged)
    except RootFsError as error:
        _use_library_path(result, target, error.sentence.rstrip("."))
        return result
    except ValueError as error:  # a LoaderCacheError, of a module that is seldom loaded
        _use_library_path(result, target, f"{CACHE} of the image can't be used: {error}")
        return result
    if may_write and not mounted_over and _write_into_root(root, target, cache, merged, result):
        return result
    if mounted_over or cache != merged:
        _mount_over(root, target, cache, kept, result)
    return result


def merged_cache(image: bytes | None, target: Target) -> bytes:
    """The image's cache with the driver's libraries; LoaderCacheError if it can't be merged."""
    # Only the first container of an image comes here, so the others need not load this.
    from gpushim.host.ldsocache import AARCH64, BITS_32, X86_64, LoaderCacheError, merge

    flags = {"x86_64": X86_64, "aarch64": AARCH64}.get(target.machine)
    if flags is None:
        raise LoaderCacheError(f"gpushim does not know the loader of {target.machine}")
    additions: list[Addition] = [(target.lib64, target.tree.libraries, flags)]
    if target.compat:
        # Without libraries, which means that they can't be used here, this only takes out what
        # the image's own cache has of that directory.
        from gpushim.host.libraryorder import sort_names

        names = sort_names(target.compat.libraries)
        additions.insert(0, (target.compat.directory, names, flags))
    if target.tree.libraries32:
        additions.append((target.lib, target.tree.libraries32, BITS_32))
    former = [place + below for place in TREE_PLACES for below in ("/lib64", "/lib")]
    own = (target.destination + "/lib64", target.destination + "/lib")
    return merge(image, additions, strip=(*own, *former))


def musl_reason(root: RootFs, machine: str) -> str:
    """Why the loader cache is of no use in an image with musl; "" in one without.

    An image may have both loaders: glibc's then uses its cache, unless it is only a stand-in
    for it (gcompat), which has none.
    """
    if not _exists_resolved(root, f"/lib/ld-musl-{machine}.so.1"):
        return ""
    if not _exists_resolved(root, _LOADERS.get(machine, "/lib64")):
        return (
            "the image has musl and not glibc, for which the driver's programs and libraries "
            "are made and which they need in some form (a glibc-based image, or a compatibility "
            "layer)"
        )
    return "" if root.exists(CACHE) else "the image's loader is musl's, which has no cache"


def _exists_resolved(root: RootFs, path: str) -> bool:
    return root.exists("/" + "/".join(root.resolve_in_root(path)))


def _use_library_path(result: LoaderCacheResult, target: Target, reason: str) -> None:
    result.library_path = target.directories()
    result.warnings.append(
        f"The driver's libraries are found through LD_LIBRARY_PATH only, because {reason}."
    )


def includes_drop_ins(conf: bytes) -> bool:
    """Whether an ld.so.conf includes all of /etc/ld.so.conf.d (ldconfig(8); relative to /etc)."""
    patterns = (b"/etc/ld.so.conf.d/*.conf", b"ld.so.conf.d/*.conf", b"/etc/ld.so.conf.d/*")
    for line in conf.splitlines():
        words = line.partition(b"#")[0].split()
        if words[:1] == [b"include"] and any(word in patterns for word in words[1:]):
            return True
    return False


def _write_into_root(
    root: RootFs, target: Target, cache: bytes | None, merged: bytes, result: LoaderCacheResult
) -> bool:
    """Write cache and drop-in into the root, each only if it differs; False if that failed."""
    try:
        if cache is None and not root.is_directory("/etc"):
            root.make_directory("/etc")
        _write_conf(root, target, result)
        if cache != merged:
            root.replace(CACHE, merged)
            result.written.append(f"The driver's libraries were merged into {CACHE}.")
    except RootFsError as error:
        result.notes.append(f"The merged loader cache is mounted, not written: {error.sentence}")
        return False
    return True


def _write_conf(root: RootFs, target: Target, result: LoaderCacheResult) -> None:
    """What keeps the entries when ldconfig runs in the container.

    Nothing in an image that has neither ldconfig nor a file for it. An ld.so.conf that does not
    include the drop-ins is its owner's decision and stays as it is: then ldconfig drops the
    driver's entries, and a note says so.
    """
    try:
        conf = root.read_regular(CONF, _LARGEST_CONF)
        if conf is None:
            if not root.exists(CONF_DIRECTORY) and not any(
                _exists_resolved(root, path) for path in _LDCONFIGS
            ):
                return
        elif not includes_drop_ins(conf):
            result.notes.append(
                f"{CONF} of the image does not include {CONF_DIRECTORY}: ldconfig in the "
                "container will drop the driver's libraries."
            )
            return
        lines = "".join(directory + "\n" for directory in target.directories()).encode()
        root.make_directory(CONF_DIRECTORY)
        if root.read_regular(DROP_IN, _LARGEST_CONF) != lines:
            root.replace(DROP_IN, lines)
            result.written.append(f"{DROP_IN} was written, for ldconfig in the container.")
        if conf is None:
            root.replace(CONF, _INCLUDE)
            result.written.append(f"{CONF} was written, which includes it.")
    except RootFsError as error:
        result.notes.append(
            f"ldconfig in the container will drop the driver's libraries: {error.sentence}"
        )


def _mount_over(
    root: RootFs, target: Target, cache: bytes | None, kept: str, result: LoaderCacheResult
) -> None:
    """Have the merged cache, which is kept as a file of ours, mounted over the image's."""
    if cache is None and root.read_only():
        _use_library_path(result, target, f"the image has no {CACHE} and can't be given one")
    elif not kept:
        _use_library_path(result, target, "the merged loader cache can't be kept for a mount")
    else:
        result.mounts.append(Mount(kept, CACHE, list(MOUNT_OPTIONS)))
