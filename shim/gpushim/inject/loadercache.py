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

import posix

from gpushim.errors import why
from gpushim.host.ldsocache import AARCH64, BITS_32, X86_64, LoaderCacheError, merge
from gpushim.inject.container import TREE_PLACES
from gpushim.oci.edits import Edits, Mount
from gpushim.oci.files import digest_of
from gpushim.oci.rootentry import RootFsError
from gpushim.oci.rootfs import RootFs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.host.ldsocache import Addition
    from gpushim.host.model import DriverTree
    from gpushim.places import Places

CACHE = "/etc/ld.so.cache"
CONF = "/etc/ld.so.conf"
CONF_DIRECTORY = "/etc/ld.so.conf.d"
DROP_IN = CONF_DIRECTORY + "/00-gpushim.conf"
MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "bind", "rprivate")

_INCLUDE = b"include /etc/ld.so.conf.d/*.conf\n"
_LARGEST_CACHE = 8 << 20
_LARGEST_CONF = 1 << 20
_FLAGS = {"x86_64": X86_64, "aarch64": AARCH64}
_LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}
_LDCONFIGS = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "/usr/bin/ldconfig")


class LoaderCacheResult:
    """What was done: edits for the spec, warnings (sentences for the user), notes for the log."""

    __slots__ = ("edits", "notes", "warnings")

    def __init__(self) -> None:
        self.edits = Edits()
        self.warnings: list[str] = []
        self.notes: list[str] = []


class Target:
    """What is to become visible, and how.

    tree: the libraries; destination: where the container sees the tree ("/usr/local/nvidia");
    library_path: the container's own LD_LIBRARY_PATH, None without; machine: as uname -m.
    """

    __slots__ = ("destination", "library_path", "machine", "tree")

    def __init__(
        self,
        tree: DriverTree,
        destination: str,
        library_path: str | None,
        machine: str,
    ) -> None:
        self.tree = tree
        self.destination = destination
        self.library_path = library_path
        self.machine = machine

    def directories(self) -> list[str]:
        """The directories that have libraries, as the container sees them."""
        found = [self.destination + "/lib64"]
        if self.tree.libraries32:
            found.append(self.destination + "/lib")
        return found


def make_visible(
    root: RootFs, target: Target, may_write: bool, is_host_root: bool, places: Places
) -> LoaderCacheResult:
    """Make the target's libraries visible to the loader of the image in `root`.

    may_write: the root is the container's own and neither the spec nor the configuration makes
    it read-only. Nothing that an image holds makes this fail: what can't be used leads to the
    next way, with a warning or a note.
    """
    result = LoaderCacheResult()
    if is_host_root:
        _use_library_path(result, target, "the container's root is the host's own root file system")
        return result
    try:
        musl = musl_reason(root, target.machine)
        if musl:
            _use_library_path(result, target, musl)
            return result
        cache = root.read_regular(CACHE, _LARGEST_CACHE)
        merged = merged_cache(cache, target)
    except RootFsError as error:
        _use_library_path(result, target, error.sentence.rstrip("."))
        return result
    except LoaderCacheError as error:
        _use_library_path(result, target, f"{CACHE} of the image can't be used: {error}")
        return result
    if may_write and _write_into_root(root, target, cache, merged, result):
        return result
    _mount_over(root, target, cache, merged, places, result)
    return result


def merged_cache(image: bytes | None, target: Target) -> bytes:
    """The image's cache with the driver's libraries; LoaderCacheError if it can't be merged."""
    flags = _FLAGS.get(target.machine)
    if flags is None:
        raise LoaderCacheError(f"gpushim does not know the loader of {target.machine}")
    lib64, lib = target.destination + "/lib64", target.destination + "/lib"
    additions: list[Addition] = [(lib64, target.tree.libraries, flags)]
    if target.tree.libraries32:
        additions.append((lib, target.tree.libraries32, BITS_32))
    former = [place + below for place in TREE_PLACES for below in ("/lib64", "/lib")]
    return merge(image, additions, strip=(lib64, lib, *former))


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


def library_path(own: str | None, directories: list[str]) -> str:
    """The container's own LD_LIBRARY_PATH with `directories` after it, each once."""
    parts = own.split(":") if own else []
    return ":".join(parts + [directory for directory in directories if directory not in parts])


def _use_library_path(result: LoaderCacheResult, target: Target, reason: str) -> None:
    value = library_path(target.library_path, target.directories())
    result.edits.env["LD_LIBRARY_PATH"] = value
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
        if conf is None:
            root.replace(CONF, _INCLUDE)
    except RootFsError as error:
        result.notes.append(
            f"ldconfig in the container will drop the driver's libraries: {error.sentence}"
        )


def _mount_over(
    root: RootFs,
    target: Target,
    cache: bytes | None,
    merged: bytes,
    places: Places,
    result: LoaderCacheResult,
) -> None:
    """Have the merged cache mounted over the image's, unless it is equal already."""
    if cache == merged:
        return
    if cache is None and root.read_only():
        _use_library_path(result, target, f"the image has no {CACHE} and can't be given one")
        return
    try:
        source = _write_beside(places, merged)
    except OSError as error:
        reason = f"{places.loader_caches} can't be written to: {why(error)}"
        _use_library_path(result, target, reason)
        return
    result.edits.mounts.append(Mount(source, CACHE, list(MOUNT_OPTIONS)))


def _write_beside(places: Places, merged: bytes) -> str:
    """The path of a file of ours with this content, which is written if it is not there yet."""
    path = f"{places.loader_caches}/{digest_of(merged)}"
    try:
        if posix.stat(path).st_size == len(merged):
            posix.utime(path)  # so that it is not collected before it is mounted
            return path
    except FileNotFoundError:
        pass
    for directory in (places.run, places.loader_caches):
        try:
            posix.mkdir(directory, 0o755)
        except FileExistsError:
            pass
    temporary = f"{path}.{posix.urandom(6).hex()}"
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
    fd = posix.open(temporary, flags, 0o644)
    try:
        try:
            view = memoryview(merged)
            while view:
                view = view[posix.write(fd, view) :]
            posix.fchmod(fd, 0o644)
        finally:
            posix.close(fd)
        posix.rename(temporary, path)
    except BaseException:
        posix.unlink(temporary)
        raise
    return path
