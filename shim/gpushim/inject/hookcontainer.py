"""What a createContainer hook of ours does for a container that was made from a static CDI spec.

Such a spec can't hold what depends on the image or on the boot: the loader cache merged for this
very image, the covered params file, and links for those DRM nodes that the container was given.
The hook runs in the container's mount namespace before its root is entered (OCI runtime
specification, config.md, "CreateContainer Hooks"), so what it mounts is the container's alone.
"""

from __future__ import annotations

import posix
from _stat import S_ISCHR

from gpushim.errors import GpushimError, why
from gpushim.host import bounded
from gpushim.host.model import DriverTree
from gpushim.inject.container import describe
from gpushim.inject.filelayout import mounts_over_copies
from gpushim.inject.librarydirectory import library_directory
from gpushim.inject.loadercache import CACHE, Target, make_visible
from gpushim.inject.scratch import Scratch
from gpushim.oci.bundle import load
from gpushim.oci.files import make_directories, read_small, write_whole
from gpushim.oci.jsontext import loads
from gpushim.oci.rootentry import RootFsError
from gpushim.oci.rootfs import RootFs
from gpushim.oci.rootkind import escape, is_host_root
from gpushim.places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.inject.container import Container
    from gpushim.inject.hookoptions import Options
    from gpushim.oci.bundle import Bundle

PARAMS = "/proc/driver/nvidia/params"
BY_PATH = "/dev/dri/by-path"

# A user namespace may not drop flags that the source's mount has; /run commonly has all of these.
_OPTIONS = "ro,nosuid,nodev,noexec"
_SECONDS = 30.0
_LARGEST_PARAMS = 64 << 10
_OVERLAYS = (b"overlay", b"fuse.fuse-overlayfs")
_MOUNTINFO = "/proc/self/mountinfo"


def run(state: str, options: Options) -> list[str]:
    """Does all of it; sentences to warn with. Raises GpushimError.

    state: the container's state, as the low-level runtime writes it to a hook's standard input
    (OCI runtime specification, runtime.md, "State").
    """
    bundle = _bundle(state)
    if bundle.written is not None:
        return []  # gpushim is the runtime, too, and has done all this for what it granted
    container = describe(bundle, [])
    said: list[str] = []
    if not _is_name_of_a_file(container.root):
        raise GpushimError(f"root.path of the spec in {bundle.directory} can be no folder's name.")
    with RootFs(container.root) as root:
        work = _Work(root, container, options)
        try:
            container.look_into(root)
            said += _loader_cache(work)
            if options.params and container.mounts_proc:
                _cover_params(work)
            if options.links:
                _link(root, options.links)
        finally:
            container.look_away()
            work.clean()
    return said


def _bundle(state: str) -> Bundle:
    try:
        directory = loads(state)["bundle"]
        found = isinstance(directory, str) and directory.startswith("/")
    except (ValueError, KeyError, TypeError):
        found = False
    if not found:
        raise GpushimError("The low-level runtime's state on standard input names no bundle.")
    if not _is_name_of_a_file(directory):
        raise GpushimError(
            "The bundle in the low-level runtime's state on standard input can be no folder's name."
        )
    try:
        return load(directory, "config.json")
    except OSError as error:
        raise GpushimError(f"{directory}/config.json can't be read: {why(error)}.") from None


def _is_name_of_a_file(path: str) -> bool:
    """Whether it can be one: without NUL, and without surrogates that stand for no byte.

    JSON can hold both (RFC 8259, section 8.2).
    """
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in path


class _Work:
    """One run: the open root, and where to keep what is to be mounted."""

    def __init__(self, root: RootFs, container: Container, options: Options) -> None:
        self.root = root
        self.container = container
        self.options = options
        self.places = Places(options.root)
        self.scratch: Scratch | None = None
        if not _may_keep(self.places.loader_caches):
            self._use_scratch()

    def _use_scratch(self) -> None:
        """Keeps things in the container's /dev, from which they are gone before it starts.

        In a user namespace nothing of the host can be written. What is mounted outlives its name.
        """
        if self.container.mounts.get("/dev") != "tmpfs":
            raise GpushimError(
                f"Neither {self.places.run} nor the container's /dev takes what is to be mounted.",
                "Make the CDI spec with `gpushimctl cdi generate --no-hook`.",
            )
        self.scratch = Scratch(self.root, "/dev")
        self.places.run = self.scratch.path

    def clean(self) -> None:
        if self.scratch is not None:
            self.scratch.remove()

    def bind(self, source: str, path: str) -> None:
        """Mounts a file of ours over one of the container's; the latter must be there."""
        target = self.root.path + path
        command = [self.options.mount, "-n", "--bind", "-o", _OPTIONS, source, target]
        try:
            outcome = bounded.run(command, _SECONDS)
        except OSError as error:
            raise GpushimError(f"{self.options.mount} can't be run: {why(error)}.") from None
        if outcome.status != 0:
            raise GpushimError(
                f"{path} can't be mounted over in the container: "
                f"{outcome.last_words or 'mount(8) did not end'}."
            )


def _may_keep(directory: str) -> bool:
    try:
        make_directories(directory)
    except OSError:
        return False
    return posix.access(directory, posix.W_OK | posix.X_OK)


def _loader_cache(work: _Work) -> list[str]:
    root, container, options = work.root, work.container, work.options
    tree = DriverTree(options.tree, options.libraries, options.libraries32)
    place = options.lib64.rpartition("/")[0]
    machine = posix.uname().machine
    if options.files and library_directory(root, machine)[0] == options.lib64:
        # The loader looks there anyway.
        covering, notes = mounts_over_copies(root, container, tree.path, options.lib64, machine)
        for mount in covering:
            work.bind(mount.host_path, mount.container_path)
        return notes
    target = Target(tree, place, machine, None, options.lib64, options.lib)
    real = posix.readlink(f"/proc/self/fd/{root.fd}")
    mounts = read_small(_MOUNTINFO, 64 << 20)
    may_write = options.write and not container.readonly and own_overlay(mounts, real)
    over = container.mounted_over(CACHE)
    outcome = make_visible(root, target, may_write, is_host_root(root), work.places, over)
    for mount in outcome.mounts:
        _make_mount_point(root, mount.container_path)
        work.bind(mount.host_path, mount.container_path)
    if not outcome.library_path:
        return outcome.warnings
    named = ":".join(outcome.library_path)
    return [*outcome.warnings, f"Set LD_LIBRARY_PATH={named} in the container."]


def own_overlay(mountinfo: bytes, path: str) -> bool:
    """Whether the root at `path` is an overlay of the container's own, and may be written to.

    Low-level runtimes make every root a mount point by binding it to itself, so being one says
    nothing here; an overlay whose top it is was mounted for it (proc_pid_mountinfo(5): the fourth
    field is the place within the file system).
    """
    wanted = escape(path)
    own = False
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) < 10 or fields[4] != wanted or b"-" not in fields:
            continue
        own = fields[3] == b"/" and fields[fields.index(b"-") + 1] in _OVERLAYS
    return own


def _make_mount_point(root: RootFs, path: str) -> None:
    """What the low-level runtime does for a mount of the spec."""
    if not root.exists(path):
        root.make_directory(path.rpartition("/")[0])
        root.replace(path, b"")


def _cover_params(work: _Work) -> None:
    """Tells programs in the container to make no device nodes (see gpus.params_hook)."""
    try:
        data = work.root.read_regular(PARAMS, _LARGEST_PARAMS)
    except RootFsError:
        return
    if data is None:
        return  # the driver is not loaded, or this is no machine with one
    from gpushim.host.driver import Params

    params = Params(data.decode("utf-8", "surrogateescape"))
    if not params.modify_device_files:
        return
    text = params.without_modification().encode("utf-8", "surrogateescape")
    path = work.places.params
    try:
        there = read_small(path, _LARGEST_PARAMS)
    except OSError:
        there = b""
    if there != text:
        try:
            write_whole(path, text, 0o644)
        except OSError as error:
            raise GpushimError(f"{path} can't be written: {why(error)}.") from None
    work.bind(path, PARAMS)


def _link(root: RootFs, links: dict[str, str]) -> None:
    """Makes the by-path links of those DRM nodes that the container has.

    Not where they are already: then /dev is the host's, or a mount of the user's.
    """
    if root.exists(BY_PATH):
        return
    nodes = [name for name in root.listdir("/dev/dri") if name in links]
    present = [name for name in nodes if _is_device(root, f"/dev/dri/{name}")]
    if not present:
        return
    root.make_directory(BY_PATH)
    for name in present:
        posix.symlink(f"../{name}", f"{root.path}{BY_PATH}/{links[name]}")


def _is_device(root: RootFs, path: str) -> bool:
    return S_ISCHR(posix.stat(root.path + path, follow_symlinks=False).st_mode)
