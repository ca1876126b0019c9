"""In which directories an image's loader looks for libraries without any cache."""

from __future__ import annotations

from gpushim.oci.rootentry import RootFsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpushim.oci.rootfs import RootFs

# Debian's names for architectures (its multiarch specification): 64 bits, and 32 beside them.
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_MULTIARCH_32 = {"x86_64": "i386-linux-gnu", "aarch64": "arm-linux-gnueabihf"}
_C_LIBRARY = "libc.so.6"


def library_directory(root: RootFs, machine: str, musl: bool = False) -> tuple[str, bool]:
    """Where an image's loader looks for 64-bit libraries, without links; whether that is certain.

    It is where the C library lies: Debian and Ubuntu have it in a multiarch directory, Fedora,
    RHEL and SUSE in /usr/lib64, Arch in /usr/lib with the others as links to it. An image without
    any (a static program's) gets them in the directory that most distributions have.
    """
    if musl:
        return "/usr/lib", True  # ldso/dynlink.c: /lib, /usr/local/lib, /usr/lib
    found = _with_c_library(root, _candidates(machine))
    return (found, True) if found else ("/usr/lib64", False)


def library_directory_32(root: RootFs, machine: str, beside: str) -> tuple[str, bool]:
    """The same for 32-bit libraries; beside: where the 64-bit ones are."""
    multiarch = _MULTIARCH_32.get(machine, "")
    found = _with_c_library(root, _candidates_32(multiarch), beside)
    if found:
        return found, True
    if beside.endswith("-gnu"):
        return f"/usr/lib/{multiarch}", False
    # Arch has its 64-bit libraries in /usr/lib and all others the 32-bit ones.
    return ("/usr/lib32" if beside == "/usr/lib" else "/usr/lib"), False


def _candidates(machine: str) -> tuple[str, ...]:
    # 64 bits before /usr/lib, which holds 32-bit libraries on Fedora, RHEL and SUSE.
    multiarch = _MULTIARCH.get(machine)
    first = (f"/usr/lib/{multiarch}", f"/lib/{multiarch}") if multiarch else ()
    return (*first, "/usr/lib64", "/lib64", "/usr/lib", "/lib")


def _candidates_32(multiarch: str) -> tuple[str, ...]:
    first = (f"/usr/lib/{multiarch}", f"/lib/{multiarch}") if multiarch else ()
    return (*first, "/usr/lib32", "/lib32", "/usr/lib", "/lib")


def _with_c_library(root: RootFs, candidates: Iterable[str], other_than: str = "") -> str:
    """The first of the directories that has the C library, resolved; "" if none has.

    Of an image that keeps /lib and /usr/lib apart the loader searches both, and the one beneath
    /usr is where software expects a driver.
    """
    for candidate in candidates:
        path = resolved(root, candidate)
        if path == other_than or _C_LIBRARY not in names_in(root, path):
            continue
        preferred = "/usr" + path
        is_apart = not path.startswith("/usr/") and names_in(root, preferred)
        return preferred if is_apart and preferred != other_than else path
    return ""


def names_in(root: RootFs, directory: str) -> list[str]:
    """What is in a directory of the image; nothing if it is none."""
    try:
        return root.listdir(directory)
    except RootFsError:
        return []


def resolved(root: RootFs, path: str) -> str:
    return "/" + "/".join(root.resolve_in_root(path))
