"""What injection must know of one container's spec."""

from __future__ import annotations

import posix

from gpushim.inject.landing import Landing
from gpushim.oci.edits import HOOK_STAGES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpushim.oci.bundle import Bundle
    from gpushim.oci.rootfs import RootFs

# Where the driver tree goes. CUDA images have the first in PATH and LD_LIBRARY_PATH; the others
# are for containers in which a user's own mount lies there.
TREE_PLACES = ("/usr/local/nvidia", "/opt/gpushim/nvidia", "/gpushim/nvidia")
NVIDIA_SMI = "/usr/bin/nvidia-smi"
# Of all GPUs' nodes, whatever the driver's version (Linux, Documentation/admin-guide/devices.txt).
_GPU_MAJOR = 195
# What every engine mounts: kernel file systems, and these files of its own.
_KERNELS = ("proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2")
_OF_KERNELS = ("/proc", "/sys", "/dev")
_ENGINES = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


class Container:
    """One container, as its spec describes it.

    root: absolute path of its root file system; readonly: root.readonly; environment: those
    entries of process.env that mean something to gpushim; mounts: destination -> type;
    user_namespace: whether it has one of its own; privileged: whether it may use every device;
    hooks: base names of its hooks' programs; every_gpu: whether its own device rules allow all
    GPUs; obstacles: see `find_obstacles`.

    Between `look_into` and `look_away` links of the image count in what is said of mounts: a path
    that leads into a volume by way of a link lies in the volume.
    """

    __slots__ = (
        "_landing",
        "environment",
        "every_gpu",
        "hooks",
        "mounts",
        "obstacles",
        "privileged",
        "readonly",
        "root",
        "user_namespace",
    )

    def __init__(
        self,
        root: str,
        readonly: bool,
        environment: list[str],
        mounts: dict[str, str],
        user_namespace: bool,
        privileged: bool,
        hooks: list[str],
        every_gpu: bool = False,
    ) -> None:
        self.root = root
        self.readonly = readonly
        self.environment = environment
        self.mounts = mounts
        self.user_namespace = user_namespace
        self.privileged = privileged
        self.hooks = hooks
        self.every_gpu = every_gpu
        self.obstacles: list[str] = []
        self._landing: Landing | None = None

    @property
    def mounts_proc(self) -> bool:
        return self.mounts.get("/proc") == "proc"

    @property
    def has_volumes(self) -> bool:
        """Whether anything is mounted besides what engines mount into every container."""
        return len(self._usual()) < len(self.mounts)

    def _usual(self) -> list[str]:
        return [
            path
            for path, kind in self.mounts.items()
            if path in _ENGINES or (kind in _KERNELS and path.startswith(_OF_KERNELS))
        ]

    def look_into(self, root: RootFs) -> None:
        """Opens the image's directories as far as they are asked about; `root` stays open.

        Called again after `mounts` was changed.
        """
        self.look_away()
        self._landing = Landing(root)
        usual = self._usual()
        if len(usual) < len(self.mounts):
            self._landing.mount(self.mounts, usual)

    def look_away(self) -> None:
        if self._landing is not None:
            self._landing.close()
            self._landing = None

    def landing(self, path: str) -> str:
        """Where `path` leads through links of the image, unless nothing is mounted there anyway."""
        landing = self._landing
        return landing.of(path) if landing is not None and landing.mounts else path

    def find_obstacles(self) -> None:
        """Where the image has something that nothing of ours can be mounted on.

        That is a file or a link in the place of the driver tree, which is a directory, and a
        directory in the place of nvidia-smi. The image must have been looked into.
        """
        landing = self._landing
        assert landing is not None
        self.obstacles = []
        for place in TREE_PLACES:
            above, _, name = place.rpartition("/")
            if not isinstance(landing.look(landing.of(above).rstrip("/"), name), str):
                break
            self.obstacles.append(place)
        above, _, name = landing.of(NVIDIA_SMI).rpartition("/")
        if isinstance(landing.look(above, name), int):
            self.obstacles.append(NVIDIA_SMI)

    def tree_place(self) -> str:
        """Where the driver tree goes: where no mount of the user's is hidden or written to."""
        mounts = self._landed()
        for place in TREE_PLACES:
            if place in self.obstacles:
                continue
            here = self.landing(place)
            if not _in_volume(mounts, here) and not any(
                path.startswith(here) and path[len(here) :][:1] in ("", "/") for path in mounts
            ):
                return place
        return TREE_PLACES[-1]

    def mounted_over(self, path: str) -> str:
        """The type of the mount of the user's that `path` lies in or is; "" if there is none."""
        mounts = self._landed()
        path = self.landing(path)
        while path not in ("", "/"):
            if path in mounts:
                return mounts[path]
            path = path.rpartition("/")[0]
        return ""

    def covered(self, path: str) -> bool:
        """Whether `path` lies in a directory (or is a file) that a bind mount of the user's shows.

        A tmpfs does not count: what is made in it is the container's own.
        """
        return _in_volume(self._landed(), self.landing(path))

    def _landed(self) -> Mapping[str, str]:
        landing = self._landing
        return landing.mounts if landing is not None and landing.mounts else self.mounts


def _in_volume(mounts: Mapping[str, str], path: str) -> bool:
    while path not in ("", "/"):
        if mounts.get(path, "tmpfs") != "tmpfs":
            return True
        path = path.rpartition("/")[0]
    return False


def describe(bundle: Bundle, environment: list[str]) -> Container:
    """Reads the facts out of a spec; odd values count as absent, as runc will judge them.

    environment: as `Container` has it.
    """
    root = bundle.section("root", "path")
    path = root if isinstance(root, str) and root else "rootfs"
    mounts = {
        "/" + mount["destination"].strip("/"): str(mount.get("type") or "bind")
        for mount in bundle.items("mounts")
        if isinstance(mount, dict) and isinstance(mount.get("destination"), str)
    }
    return Container(
        root=path if path.startswith("/") else f"{bundle.directory}/{path}",
        readonly=bundle.section("root", "readonly") is True,
        environment=environment,
        mounts=mounts,
        user_namespace=_has_user_namespace(bundle),
        privileged=_allows_all(bundle, (None, "", "a"), (None, -1)),
        every_gpu=_allows_all(bundle, (None, "", "a", "c"), (None, -1, _GPU_MAJOR)),
        hooks=[
            str(hook.get("path")).rpartition("/")[2]
            for stage in HOOK_STAGES
            for hook in bundle.items("hooks", stage)
            if isinstance(hook, dict)
        ],
    )


def _has_user_namespace(bundle: Bundle) -> bool:
    """Whether mknod is not possible in it: it has a user namespace, or the caller is in one."""
    if posix.geteuid() != 0:
        return True
    return any(
        isinstance(namespace, dict) and namespace.get("type") == "user"
        for namespace in bundle.items("linux", "namespaces")
    )


def _allows_all(bundle: Bundle, types: tuple[object, ...], majors: tuple[object, ...]) -> bool:
    """Whether the last rule for all devices of these types and majors allows them."""
    allowed = False
    for rule in bundle.items("linux", "resources", "devices"):
        if not isinstance(rule, dict) or rule.get("type") not in types:
            continue
        if rule.get("major") in majors and rule.get("minor") in (None, -1):
            allowed = rule.get("allow") is True and "w" in str(rule.get("access") or "rwm")
    return allowed
