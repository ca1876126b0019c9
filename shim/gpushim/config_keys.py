"""The configuration keys, in one table.

It is the one source for defaults, for the JSON Schema, for docs/configuration.md and for the
commented file that `gpushimctl install` writes.
"""

from __future__ import annotations

from .config import Config
from .config_keys_allocate import ALLOCATE
from .config_keys_share import SHARE
from .config_kinds import (
    CDI_KIND,
    DURATION,
    FLAG,
    PATH,
    PATHS,
    PREFIXES,
    PROGRAMS,
    SIZE,
    TEXT,
    TEXTS,
    VARIABLES,
    Key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .config import Value

DEFAULT_SOURCE = "default"

# In the order in which they are documented.
SECTIONS = {
    "runtime": "The low-level runtime that does the work of containers, and gpushim's own log.",
    "host": "Where this machine keeps its driver, and how a missing driver is dealt with.",
    "request": "What a container may ask for.",
    "cdi": "Container Device Interface: devices that spec files describe.",
    "inject": "How a container is given its GPUs.",
    "allocate": "Which GPUs a container gets.",
    "limits": "What containers with GPUs get of the rest of the machine, if users set nothing.",
    "security": "What is demanded of every container with GPUs.",
}

KEYS = (
    Key(
        "runtime",
        "low-level-runtimes",
        PROGRAMS,
        ["runc", "crun"],
        "Low-level runtimes, the first usable one is taken: an absolute path, or a name that is "
        "looked for on PATH and then in the usual sbin and libexec directories.",
    ),
    Key(
        "runtime",
        "log-level",
        TEXT,
        "info",
        "The least severe entries that go into gpushim's own log.",
        ("debug", "info", "warning", "error"),
    ),
    Key(
        "runtime",
        "log-file",
        PATH,
        "",
        "gpushim's own log; empty means /var/log/gpushim/gpushim.log.",
    ),
    Key(
        "runtime",
        "log-max-size",
        SIZE,
        "10m",
        "The size at which the log is put aside as a file ending in .1 (replacing the one before) "
        "and a new one begun.",
    ),
    Key(
        "host",
        "driver-root",
        PATH,
        "/",
        "The directory beneath which the driver's libraries and programs are looked for, such as "
        "/run/nvidia/driver for a containerised driver.",
    ),
    Key("host", "dev-root", PATH, "/dev", "The directory that holds the driver's device nodes."),
    Key("host", "proc-root", PATH, "/proc", "Where proc is mounted."),
    Key("host", "sys-root", PATH, "/sys", "Where sysfs is mounted."),
    Key(
        "host",
        "helpers",
        PATHS,
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"],
        "Directories in which nvidia-modprobe, modprobe and ldconfig are looked for.",
    ),
    Key(
        "host",
        "load-driver",
        FLAG,
        True,
        "Whether a driver that is not loaded is loaded, and missing device nodes are made, when a "
        "container asks for a GPU.",
    ),
    Key(
        "host",
        "driver-wait",
        DURATION,
        "10s",
        "How long a container that asks for a GPU waits for the driver to come up.",
    ),
    Key(
        "request",
        "visible-devices",
        TEXT,
        "grant",
        "What NVIDIA_VISIBLE_DEVICES counts for: what it names is given, as with the vendor's "
        "runtime (grant), it is a request like any other (allocate), or nothing (ignore).",
        ("grant", "allocate", "ignore"),
    ),
    Key(
        "request",
        "all-from-environment",
        TEXT,
        "free",
        "What `all` in NVIDIA_VISIBLE_DEVICES means, which images of CUDA have in them: every GPU "
        "that nobody holds exclusively (free), every GPU (all), or no request (none).",
        ("free", "all", "none"),
    ),
    Key(
        "request",
        "grant-over-exclusive",
        FLAG,
        False,
        "Whether GPUs that are asked for by name or by `all` are given although another container "
        "has them for itself.",
    ),
    Key(
        "request",
        "accept-nvidia-visible-devices-envvar-when-unprivileged",
        FLAG,
        True,
        "Whether a container without CAP_SYS_ADMIN may ask for GPUs by its environment; if not, it "
        "starts without, and the log says so.",
    ),
    Key(
        "request",
        "refuse-unaccepted-environment",
        FLAG,
        False,
        "Whether a container that asks for GPUs by its environment and may not is refused instead "
        "of started without.",
    ),
    Key(
        "request",
        "accept-nvidia-visible-devices-as-volume-mounts",
        FLAG,
        False,
        "Whether mounts of /dev/null beneath /var/run/nvidia-container-devices name GPUs.",
    ),
    Key(
        "request",
        "swarm-resource",
        VARIABLES,
        [],
        "Variables in which Docker Swarm hands a service its generic resources, such as "
        "DOCKER_RESOURCE_GPU, and which outrank NVIDIA_VISIBLE_DEVICES; empty means each "
        "DOCKER_RESOURCE_ variable that holds UUIDs of GPUs.",
    ),
    Key(
        "request",
        "docker-records",
        FLAG,
        True,
        "Whether Docker's own record of a container is read: it tells --gpus 2 from --gpus "
        "device=0,1, and has labels and the options of device requests.",
    ),
    Key(
        "request",
        "disable-require",
        FLAG,
        False,
        "Whether what images demand of the driver (NVIDIA_REQUIRE_CUDA and others) is not checked.",
    ),
    Key(
        "request",
        "supported-driver-capabilities",
        TEXTS,
        ["compat32", "compute", "display", "graphics", "ngx", "utility", "video"],
        "The driver capabilities that containers may have; `all` in "
        "NVIDIA_DRIVER_CAPABILITIES means these.",
        ("compat32", "compute", "display", "graphics", "ngx", "utility", "video"),
    ),
    Key(
        "request",
        "cuda-visible-devices",
        TEXT,
        "translate",
        "What happens to a CUDA_VISIBLE_DEVICES that CUDA would not understand inside the "
        "container: host indices of granted GPUs are translated to UUIDs and anything else is "
        "warned about, or (strict) anything else is refused.",
        ("translate", "strict"),
    ),
    Key(
        "cdi",
        "spec-dirs",
        PATHS,
        ["/etc/cdi", "/var/run/cdi"],
        "Directories of CDI spec files; a device in a later one replaces that in an earlier one.",
    ),
    Key(
        "cdi",
        "default-kind",
        CDI_KIND,
        "nvidia.com/gpu",
        "The kind whose devices are this machine's GPUs by index, UUID or `all`, for names in "
        "requests and for the specs that gpushim generates.",
    ),
    Key(
        "cdi",
        "annotation-prefixes",
        PREFIXES,
        ["cdi.k8s.io/"],
        "How the annotations begin whose values are CDI device names.",
    ),
    Key(
        "inject",
        "layout",
        TEXT,
        "tree",
        "How a container sees the driver's files: as one directory, /usr/local/nvidia, or each "
        "file mounted into the image's own library directory (files).",
        ("tree", "files"),
    ),
    Key(
        "inject",
        "nccl",
        TEXT,
        "off",
        "Whether a container with two or more GPUs is given the network adapters nearest to them, "
        "by NCCL_SOCKET_IFNAME, NCCL_IB_HCA and nodes in /dev/infiniband, unless it has such "
        "variables (auto).",
        ("off", "auto"),
    ),
    Key(
        "inject",
        "params-hook",
        FLAG,
        True,
        "Whether the driver's params file in the container is covered by one that keeps programs "
        "there from making device nodes themselves.",
    ),
    Key(
        "inject",
        "rootfs-write",
        TEXT,
        "private",
        "Whether the loader cache is written into a container's root file system where it is "
        "private to the container, or never (it is then mounted over the image's).",
        ("private", "never"),
    ),
    *ALLOCATE,
    *SHARE,
)


def table() -> dict[str, Key]:
    """Every key by its full name ("section.key"), in the order of documentation."""
    return {key.full_name: key for key in KEYS}


def configured(values: Mapping[str, Value] | None = None, source: str = DEFAULT_SOURCE) -> Config:
    """The defaults, except for `values`, which come from `source`."""
    given = values or {}
    return Config(
        {key.full_name: given.get(key.full_name, key.default) for key in KEYS},
        {key.full_name: source if key.full_name in given else DEFAULT_SOURCE for key in KEYS},
    )
