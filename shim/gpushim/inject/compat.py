"""Forward compatibility: a libcuda of the image's own that is newer than the driver's.

CUDA images bring one in /usr/local/cuda/compat (package cuda-compat), made to run on an older
kernel driver (NVIDIA, "CUDA Compatibility", Forward Compatibility). It comes before the driver's
where that works, and only there: on a board that does not support it CUDA fails with error 804,
with a driver that it was not made for with error 803.
"""

from __future__ import annotations

import posix

from gpushim.errors import harmless, why
from gpushim.inject.compatnote import supported_branches
from gpushim.inject.container import TREE_PLACES
from gpushim.inject.environment import LIBRARY_PATH
from gpushim.oci.rootentry import RootFsError
from gpushim.request.nvidia import brief, variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.grant import Grant
    from gpushim.host.model import Gpu
    from gpushim.inject.container import Container
    from gpushim.oci.rootfs import RootFs

CUDA = "/usr/local/cuda"
DIRECTORY = CUDA + "/compat"

_LIBCUDA = "libcuda.so."
# NVML's names of the brands that support it: data-centre and professional boards, whole or as
# virtual GPUs. A library's own note lists the same ones by their numbers in nvml.h.
_BRANDS = frozenset(
    {
        *("tesla", "quadro", "quadrortx", "nvidiartx", "nvidia"),
        *("vapps", "vpc", "vcs", "vws", "cloudgaming"),
    }
)
_CONSUMER = ("geforce", "titan")
# The oldest long-term branch that packages without a list of drivers were made for.
_OLDEST_BRANCH = 450


# elf(5): the size of a 64-bit header, ET_DYN, and EM_X86_64 and EM_AARCH64, little-endian.
_HEADER = 64
_SHARED_OBJECT = b"\3\0"
_MACHINES = {"x86_64": b"\x3e\0", "aarch64": b"\xb7\0"}


class Compat:
    """The image's own libcuda.

    directory: as the container sees it, without links; version: of the driver that it was built
    with; libraries: names that its directory gives the loader, empty if it is not to be used;
    said: a sentence for the log; warning: one for the user, or "".
    """

    __slots__ = ("directory", "libraries", "said", "version", "warning")

    def __init__(self, directory: str, version: str) -> None:
        self.directory = directory
        self.version = version
        self.libraries: list[str] = []
        self.said = ""
        self.warning = ""


def find_compat(
    root: RootFs, container: Container, driver_version: str, grant: Grant
) -> Compat | None:
    """The image's own libcuda; None without one, and where no CUDA program can run.

    If it is to be used and LD_LIBRARY_PATH, which the loader heeds before its cache, names the
    usual place of the driver tree, that place counts as an obstacle from now on, so that the tree
    goes elsewhere.
    """
    gpus = grant.boards()
    if not gpus or "compute" not in grant.capabilities:
        return None
    try:
        directory = "/" + "/".join(root.resolve_in_root(DIRECTORY))
        if container.covered(DIRECTORY) or container.covered(directory):
            return None  # what a volume shows there is not seen from here
        names = root.listdir(directory)
    except RootFsError:
        return None
    versions = [name[len(_LIBCUDA) :] for name in names if is_versioned(name)]
    if not versions:
        return None
    found = Compat(directory, versions[0])
    if len(versions) > 1:
        reason = "there is more than one libcuda in it"
    elif _LIBCUDA + "1" not in names:
        reason = "there is no libcuda.so.1 in it"
    else:
        reason = unusable(found.version, driver_version, gpus) or _unfit(
            root, found, driver_version
        )
    if not reason:
        found.libraries = loadable(names, found.version)
        found.said = harmless(
            f"The image's own CUDA driver library {found.version} ({directory}) comes before that "
            f"of the driver {driver_version} (forward compatibility)."
        )
        _keep_tree_behind(container)
    else:
        found.said = harmless(
            f"The image's own CUDA driver library {found.version} ({directory}) is not used: "
            f"{reason}."
        )
        found.warning = _warning(container, found, reason)
    return found


def is_versioned(name: str) -> bool:
    """Whether this is the name of a libcuda with a driver's version ("libcuda.so.560.35.05")."""
    parts = name[len(_LIBCUDA) :].split(".")
    return (
        name.startswith(_LIBCUDA)
        and 2 <= len(parts) <= 4
        and all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts)
    )


def branch(version: str) -> int:
    """The major number of a driver's version; 0 if it has none."""
    major = version.partition(".")[0]
    return int(major) if major.isascii() and major.isdigit() and len(major) <= 4 else 0


def unusable(version: str, driver_version: str, gpus: Sequence[Gpu]) -> str:
    """Why a libcuda of `version` is not to be used here, as a clause; "" if it may be."""
    if branch(version) <= branch(driver_version):
        return f"it is of no newer branch than the driver {driver_version}"
    for gpu in gpus:
        if not supports(gpu):
            return (
                f"GPU {gpu.index} ({gpu.model}) does not support that, which only data-centre "
                "and professional boards do"
            )
    return ""


def supports(gpu: Gpu) -> bool:
    """Whether forward compatibility works on a board, by its brand or, without NVML, its name."""
    if any(word in gpu.model.lower() for word in _CONSUMER):
        return False
    return gpu.brand in _BRANDS or gpu.brand is None


def loadable(names: Sequence[str], version: str) -> list[str]:
    """The names in the directory that ldconfig would list: sonames and links without a version.

    A file with a version in its name is the target of such a link, or has that name as its soname.
    """
    unversioned = {name: _is_unversioned(name) for name in names}
    linked = {name.partition(".so.")[0] for name in names if unversioned[name]}
    return [
        name
        for name in names
        if unversioned[name]
        or (name.endswith(f".so.{version}") and name.partition(".so.")[0] not in linked)
    ]


def _is_unversioned(name: str) -> bool:
    """Whether this is "libx.so" or "libx.so.1"."""
    _, so, rest = name.partition(".so")
    number = rest[1:]
    return (
        bool(so)
        and name.startswith("lib")
        and (not rest or (rest[0] == "." and number.isascii() and number.isdigit()))
    )


def _unfit(root: RootFs, found: Compat, driver_version: str) -> str:
    """Why the library itself is not to be used, by what it is and says of drivers, as a clause."""
    try:
        supported = _examine(root, f"{found.directory}/{_LIBCUDA}{found.version}")
        # The loader opens it by its soname, which may be a copy in the place of a link.
        loaded = "/" + "/".join(root.resolve_in_root(f"{found.directory}/{_LIBCUDA}1"))
        _examine(root, loaded)
    except RootFsError as error:
        return error.sentence.rstrip(".")
    host = branch(driver_version)
    if supported and host not in supported:
        listed = ", ".join(map(str, supported[:20]))
        return f"it works with drivers of the branches {listed}, and not with {driver_version}"
    if host < _OLDEST_BRANCH:
        return f"the driver {driver_version} is older than any that it works with"
    return ""


def _examine(root: RootFs, path: str) -> list[int]:
    """The driver branches in a library's note, if any. RootFsError if no loader would take it."""
    descriptor = root.open_regular(path)
    if descriptor is None:
        raise RootFsError(path, "it does not exist")
    try:
        machine = posix.uname().machine
        if not is_library(posix.pread(descriptor, _HEADER, 0), machine):
            raise RootFsError(path, f"it is no 64-bit shared object for {machine}")
        return supported_branches(descriptor)
    except OSError as error:
        raise RootFsError(path, why(error), error.errno or 0) from None
    finally:
        posix.close(descriptor)


def is_library(header: bytes, machine: str) -> bool:
    """Whether a file that begins so is a shared object for 64-bit programs of this machine.

    As elf(5) has it: e_ident, e_type and e_machine; machine: as uname -m.
    """
    return (
        len(header) == _HEADER
        and header[:6] == b"\x7fELF\x02\x01"
        and header[16:18] == _SHARED_OBJECT
        and header[18:20] == _MACHINES.get(machine)
    )


def _library_path(container: Container) -> list[str]:
    value = variable(container.environment, LIBRARY_PATH) or ""
    return ["/" + entry.strip("/") for entry in value.split(":") if entry.startswith("/")]


def _keep_tree_behind(container: Container) -> None:
    usual = TREE_PLACES[0]
    if usual + "/lib64" in _library_path(container) and usual not in container.obstacles:
        container.obstacles.append(usual)


def _warning(container: Container, found: Compat, reason: str) -> str:
    """A sentence if LD_LIBRARY_PATH makes the loader take it all the same."""
    for entry in _library_path(container):
        if any(entry == place + "/lib64" for place in TREE_PLACES):
            return ""
        if entry in (DIRECTORY, found.directory):
            return harmless(
                f"LD_LIBRARY_PATH of the container names {brief(entry)}, so that the image's own "
                f"CUDA driver library {found.version} comes before the driver's, although {reason}:"
                " CUDA may fail with error 803 or 804 until it is taken out."
            )
    return ""
