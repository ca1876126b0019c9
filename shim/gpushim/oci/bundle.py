"""A bundle's config.json: read, compared with what gpushim wrote, and replaced.

Beside a config.json that gpushim wrote lie the original (config.json.gpushim-orig) and a small
file with the checksum of what was written (config.json.gpushim). A bundle that is run again starts
from the original, so yesterday's GPU or driver never sticks to it. The three are written in an
order in which a kill between any two leaves either the original or a complete result.
"""

from __future__ import annotations

import binascii
import posix

from gpushim.errors import GpushimError, why
from gpushim.oci.edits import CAPABILITY_SETS, HOOK_STAGES
from gpushim.oci.files import read_small, real_path, write_whole
from gpushim.oci.jsonpatch import Members, read
from gpushim.oci.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.oci.jsonpatch import Shape

FORMAT = 1
# Far above any real spec (the largest that was reported is 4 MB), and below what hurts a host.
MAX_SIZE = 64 << 20
# The objects of a spec in which members may change, so that each part of a large one is read once.
_DEEPER: Shape = {"process": {"user": {}}, "linux": {"resources": {}}, "hooks": {}}
# The members that decide what a container gets, as the specification spells them.
_SPELT: Shape = {
    "process": {
        "env": {},
        "user": {"additionalGids": {}},
        "capabilities": {name: {} for name in CAPABILITY_SETS},
        "noNewPrivileges": {},
    },
    "root": {"path": {}, "readonly": {}},
    "mounts": {},
    "linux": {
        "namespaces": {},
        "devices": {},
        "resources": {
            "devices": {},
            "memory": {"limit": {}, "swap": {}, "disableOOMKiller": {}},
            "cpu": {"quota": {}, "period": {}, "cpus": {}, "mems": {}},
            "pids": {"limit": {}},
            "unified": {},
        },
        "memoryPolicy": {},
        "cgroupsPath": {},
    },
    "hooks": {stage: {} for stage in HOOK_STAGES},
}


class UnreadableSpec(GpushimError):
    """config.json is no JSON object, or one that two readers would understand differently."""

    def __init__(self, path: str, reason: str, text: str) -> None:
        super().__init__(f"{path} cannot be read as a spec: {reason}.")
        self.text = text


class Bundle:
    """One bundle's spec as it was before gpushim.

    directory: real path; text: the original config.json, with bytes that are no UTF-8 as
    surrogates; members: where its members lie in the text; spec: the same as plain data; written:
    what gpushim noted about its last output here, None if config.json is not that output.
    """

    __slots__ = (
        "_current",
        "config_path",
        "directory",
        "members",
        "mode",
        "owner",
        "spec",
        "text",
        "written",
    )

    def __init__(self, directory: str, config_path: str, current: bytes) -> None:
        self.directory = directory
        self.config_path = config_path
        self._current = current
        self.mode = 0o644
        self.owner = (0, 0)
        self.written: dict[str, Any] | None = None
        self.text = ""
        self.members = Members({}, 0)
        self.spec: dict[str, Any] = {}

    def section(self, *names: str) -> Any:
        """The value at a path of member names; None where one is absent, null or no object."""
        value: Any = self.spec
        for name in names:
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value

    def items(self, *names: str) -> list[Any]:
        """The list at a path of member names; empty where there is none."""
        value = self.section(*names)
        return value if isinstance(value, list) else []


def load(directory: str, config_name: str) -> Bundle:
    """Reads a bundle. Raises OSError if there is no config.json, GpushimError if it is no spec."""
    directory = real_path(directory)
    # The name may be a path of its own (crun's --config), and a link is followed to what it names.
    name = config_name if config_name.startswith("/") else f"{directory}/{config_name}"
    config_path = real_path(name)
    bundle = Bundle(directory, config_path, read_small(config_path, MAX_SIZE))
    status = posix.stat(config_path)
    bundle.mode = status.st_mode & 0o7777
    bundle.owner = (status.st_uid, status.st_gid)
    original = bundle._current
    bundle.written = _own_output(config_path, bundle._current)
    if bundle.written is not None:
        original = _read_original(config_path)
    bundle.text = original.decode("utf-8", "surrogateescape")
    try:
        bundle.members = read(bundle.text, _DEEPER)
    except ValueError as error:
        if bundle.written is not None:
            raise _damaged_original(config_path, str(error)) from None
        raise UnreadableSpec(config_path, str(error), bundle.text) from None
    bundle.spec = bundle.members.plain()
    odd = _misspelt(bundle.spec, _SPELT)
    if odd:
        raise UnreadableSpec(
            config_path, f"{odd} counts for some readers of JSON and not for others", bundle.text
        )
    return bundle


def _read_original(config_path: str) -> bytes:
    try:
        return read_small(config_path + ".gpushim-orig", MAX_SIZE)
    except OSError as error:
        raise _damaged_original(config_path, why(error)) from None


def _damaged_original(config_path: str, reason: str) -> GpushimError:
    """Without its original, a spec that gpushim wrote would bring back former GPUs."""
    return GpushimError(
        f"{config_path} was written by gpushim, and its original cannot be read: {reason}.",
        "Make the bundle anew.",
    )


def _misspelt(section: Any, shape: Shape) -> str:
    """A member that is named like one of `shape` but for upper and lower case; "" if none is.

    Go, and so runc, takes the one for the other; crun does not.
    """
    if not isinstance(section, dict):
        return ""
    folded = {name.casefold() for name in shape}
    for name in section:
        if name not in shape and name.casefold() in folded:
            return str(name)
    for name, inner in shape.items():
        odd = _misspelt(section.get(name), inner) if inner else ""
        if odd:
            return f"{name}.{odd}"
    return ""


def store(bundle: Bundle, text: str, note: dict[str, Any]) -> str:
    """Replaces config.json with `text`; mode and owner stay. Returns the checksum of what it wrote.

    note: plain data to be kept with it. Raises GpushimError; then config.json is as it was.
    """
    data = text.encode("utf-8", "surrogateescape")
    written_sum = checksum(data)
    path = bundle.config_path
    _remove_what_a_kill_left(path)
    try:
        if bundle.written is None:
            _keep_original(bundle, is_replaced=data != bundle._current)
        # Until config.json is replaced, the former output has to be known as ours, too.
        former = checksum(bundle._current) if bundle.written is not None else ""
        written = dumps({"format": FORMAT, "checksum": written_sum, "former": former, **note})
        write_whole(path + ".gpushim", written.encode("ascii"), 0o600)
        if data != bundle._current:
            write_whole(path, data, bundle.mode, bundle.owner)
            posix.chmod(path + ".gpushim-orig", 0o600)
    except OSError as error:
        if bundle.written is None:
            _remove_beside(path)
        raise GpushimError(f"{path} cannot be rewritten: {why(error)}.") from None
    return written_sum


def _remove_beside(path: str) -> None:
    """Removes what lies beside a config.json that is no output of gpushim's."""
    for ending in (".gpushim", ".gpushim-orig"):
        try:
            posix.unlink(path + ending)
        except OSError:
            pass


def _remove_what_a_kill_left(path: str) -> None:
    """Removes files that were being written beside a config.json by processes that are gone.

    Their names end with the number of the process, since two may write here at once.
    """
    directory, _, name = path.rpartition("/")
    try:
        for other in posix.listdir(directory or "/"):
            if other.startswith((f"{name}.tmp", f"{name}.gpushim")):
                number = other.rpartition(".")[2].replace("tmp", "", 1)
                if number.isdecimal() and not _runs(int(number)):
                    posix.unlink(f"{directory}/{other}")
    except OSError:
        pass  # they are in nobody's way


def _runs(pid: int) -> bool:
    try:
        posix.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is somebody else's
    return True


def _keep_original(bundle: Bundle, is_replaced: bool) -> None:
    """Gives the original a second name, which copies nothing of a large one.

    A copy is made where the two names would stay one file, or where it has others already.
    """
    kept = bundle.config_path + ".gpushim-orig"
    try:
        if is_replaced and posix.stat(bundle.config_path).st_nlink == 1:
            posix.link(bundle.config_path, f"{kept}.{posix.getpid()}")
            posix.replace(f"{kept}.{posix.getpid()}", kept)
            return
    except OSError:
        pass  # The file system has no hard links, or something of that name was left by a kill.
    write_whole(kept, bundle._current, 0o600)


def restore_original(bundle: Bundle) -> None:
    """Puts the original back where config.json is gpushim's output, and removes what lies beside.

    Raises OSError.
    """
    if bundle.written is None:
        return
    path = bundle.config_path
    write_whole(path, bundle.text.encode("utf-8", "surrogateescape"), bundle.mode, bundle.owner)
    for ending in (".gpushim", ".gpushim-orig"):
        posix.unlink(path + ending)


def _own_output(config_path: str, current: bytes) -> dict[str, Any] | None:
    try:
        note = loads(read_small(config_path + ".gpushim", 1 << 20).decode("utf-8", "replace"))
        posix.stat(config_path + ".gpushim-orig")
    except (OSError, ValueError):
        return None
    if not isinstance(note, dict) or checksum(current) not in (
        note.get("checksum"),
        note.get("former"),
    ):
        return None
    if not isinstance(note.get("format"), int) or note["format"] > FORMAT:
        raise GpushimError(
            f"{config_path} was written by a newer gpushim (format {note.get('format')}).",
            "Install that version again, or put the original config.json back.",
        )
    return note


def checksum(data: bytes) -> str:
    """Tells whether a config.json is the one that gpushim wrote.

    Length and CRC-32: whoever can write the bundle needs no collision, and anything stronger takes
    longer than all the rest of a large spec.
    """
    return f"{len(data):x}-{binascii.crc32(data):08x}"
