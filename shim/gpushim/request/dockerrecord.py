"""Docker's own record of a container: what was asked for by --gpus and labels.

Neither reaches config.json as it was asked: `--gpus 2` and `--gpus device=0,1` look the same there,
and labels and the options of device requests are missing altogether. Docker keeps them in
<data root>/containers/<container id>/{config.v2.json,hostconfig.json} (moby, container.ToDisk), and
both files are complete when the runtime is called. They are Docker's private format, so whatever is
not as expected is said in a sentence for the log, and the record then counts as not there.
"""

from __future__ import annotations

import posix
from _stat import S_IMODE, S_ISREG

from gpushim.errors import why
from gpushim.oci.files import read_descriptor
from gpushim.oci.jsontext import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

CDI_DRIVER = "cdi"
# How moby calls its drivers for NVIDIA's GPUs (daemon/devices_nvidia_linux.go), and ours.
GPU_DRIVERS = ("nvidia", "nvidia.cdi", "nvidia.runtime-hook", "gpushim")
# A request that names no driver gets the one that has all words of one of its capability sets
# (moby, internal/capabilities). These are the words of NVIDIA's.
_GPU_WORDS = frozenset(
    ("gpu", "nvidia", "compute", "compat32", "graphics", "utility", "video", "display", "ngx")
)
# The files that Docker mounts into a container from the directory of a record: the container's own,
# or with --network container:X that of X, which lies beside it.
_MOUNTED = {"/etc/hostname": "hostname", "/etc/hosts": "hosts", "/etc/resolv.conf": "resolv.conf"}
_FLAGS = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
# Far above any real record.
_MAX_SIZE = 16 << 20


class DeviceRequest:
    """One of the container's DeviceRequests (Docker Engine API, HostConfig).

    driver: "" where Docker was to choose one; count: number of devices, -1 for all, 0 where `ids`
    say which; capabilities: sets of words, of which one set has to fit; options: passed through.
    """

    __slots__ = ("capabilities", "count", "driver", "ids", "options")

    def __init__(
        self,
        driver: str,
        count: int,
        ids: list[str],
        capabilities: list[list[str]],
        options: dict[str, str],
    ) -> None:
        self.driver = driver
        self.count = count
        self.ids = ids
        self.capabilities = capabilities
        self.options = options


class DockerRecord:
    """What Docker has on record about one container.

    name: without the slash that Docker puts before it; labels: of the container, those of its image
    included; requests: its DeviceRequests in their order; directory: where the record lies.
    """

    __slots__ = ("directory", "labels", "name", "requests")

    def __init__(
        self, directory: str, name: str, labels: dict[str, str], requests: list[DeviceRequest]
    ) -> None:
        self.directory = directory
        self.name = name
        self.labels = labels
        self.requests = requests


class _Unexpected(Exception):
    """The record is not as Docker writes it; the text says what is wrong, without a full stop."""


def find(
    mounts: Sequence[tuple[str, str]], root_path: str, container_id: str
) -> tuple[DockerRecord | None, list[str]]:
    """The record that Docker keeps of a container, and what is wrong with one that is not used.

    mounts: source and destination of each mount in the spec; root_path: root.path, absolute. A
    container of another engine has no record and no sentence. Never raises for what lies on the
    disk. A record is used only if its directory and files are root's (or this process's own user's)
    and nobody else may write to them, and if it says itself that it is this container's.
    """
    problems: list[str] = []
    for directory in record_directories(mounts, root_path, container_id):
        try:
            descriptor = posix.open(directory, _FLAGS)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        except OSError as error:
            problems.append(_not_used(directory, why(error)))
            continue
        try:
            return _read_record(descriptor, directory, container_id), problems
        except FileNotFoundError:
            continue  # the directory is another program's
        except _Unexpected as error:
            problems.append(_not_used(directory, str(error)))
        finally:
            posix.close(descriptor)
    return None, problems


def find_by_spec(
    spec: Mapping[str, Any], container_id: str
) -> tuple[DockerRecord | None, list[str]]:
    """`find` with what a spec says; odd values in it count as absent."""
    mounts = spec.get("mounts")
    pairs = [
        (mount["source"], mount["destination"])
        for mount in (mounts if isinstance(mounts, list) else [])
        if isinstance(mount, dict)
        and isinstance(mount.get("source"), str)
        and isinstance(mount.get("destination"), str)
    ]
    root = spec.get("root")
    path = root.get("path") if isinstance(root, dict) else None
    return find(pairs, path if isinstance(path, str) else "", container_id)


def name_by_spec(spec: Mapping[str, Any], container_id: str) -> str:
    """The name that Docker knows a container by; "" if it is not Docker's."""
    record, _ = find_by_spec(spec, container_id)
    return record.name if record is not None else ""


def gpu_requests(record: DockerRecord) -> list[DeviceRequest]:
    """Those of the container's device requests that are for NVIDIA's GPUs.

    Docker has taken a driver that is named only for words that it knows, so the name says enough.
    """
    return [request for request in record.requests if _is_for_gpus(request)]


def cdi_names(record: DockerRecord) -> list[str]:
    """The CDI devices that were asked for by name (--device vendor.com/class=name), each once.

    Docker has resolved them itself: their devices, mounts and hooks are in the spec already.
    """
    asked = [request.ids for request in record.requests if request.driver == CDI_DRIVER]
    return list(dict.fromkeys(name for ids in asked for name in ids))


def _is_for_gpus(request: DeviceRequest) -> bool:
    if request.driver:
        return request.driver in GPU_DRIVERS
    return any(words and _GPU_WORDS.issuperset(words) for words in request.capabilities)


def record_directories(
    mounts: Sequence[tuple[str, str]], root_path: str, container_id: str
) -> list[str]:
    """Where Docker's record of this container may lie, the likeliest first, each once.

    Beside the record whose files are mounted; and if a user's mounts cover all of those, by the
    root file system, which lies in <data root>/<storage driver>/<directory>/<layer>, with
    devicemapper one level deeper.
    """
    # The id may come from a command line. An empty one or "." would be the directory itself.
    if container_id in ("", ".", "..") or "/" in container_id:
        return []
    found: list[str] = []
    for source, destination in mounts:
        file = _MOUNTED.get(destination)
        parts = source.rsplit("/", 3)
        # Podman has its files in <...>/overlay-containers/<id>/userdata, the kubelet elsewhere.
        if file is not None and len(parts) == 4 and parts[1] == "containers" and parts[3] == file:
            found.append(f"{parts[0]}/containers/{container_id}")
    path = root_path.rstrip("/")
    if path.startswith("/"):
        for levels in (3, 4):
            parts = path.rsplit("/", levels)
            if len(parts) == levels + 1:
                found.append(f"{parts[0]}/containers/{container_id}")
    return list(dict.fromkeys(found))


def _not_used(directory: str, reason: str) -> str:
    return (
        f"Docker's record of this container in {directory} is not used: {reason}. Its labels and "
        "device requests do not count."
    )


def _read_record(descriptor: int, directory: str, container_id: str) -> DockerRecord:
    """The record in an open directory.

    Raises FileNotFoundError where there is none, and _Unexpected.
    """
    status = posix.fstat(descriptor)
    _check_owner(status, "the directory")
    # First of the two: there is none in other programs' directories.
    config = _object(_read(descriptor, "config.v2.json"), "config.v2.json")
    if config.get("ID") != container_id:
        raise _Unexpected("config.v2.json is about another container")
    name = config.get("Name")
    if not isinstance(name, str):
        raise _Unexpected("Name in config.v2.json is no text")
    settings = _object(config.get("Config"), "Config in config.v2.json")
    labels = _texts_by_name(settings.get("Labels"), "Labels in config.v2.json")
    try:
        host = _object(_read(descriptor, "hostconfig.json"), "hostconfig.json")
    except FileNotFoundError:
        raise _Unexpected("hostconfig.json is missing") from None
    # As in Go, which writes these files, a member that is missing is the same as null.
    entries = _list(host.get("DeviceRequests"), "DeviceRequests in hostconfig.json")
    requests = [_request(entry, number) for number, entry in enumerate(entries, 1)]
    return DockerRecord(directory, name.lstrip("/"), labels, requests)


def _check_owner(status: posix.stat_result, what: str) -> None:
    if status.st_uid not in (0, posix.geteuid()):
        raise _Unexpected(f"{what} belongs to the user with the number {status.st_uid}")
    if S_IMODE(status.st_mode) & 0o022:
        raise _Unexpected(f"others than its owner may write to {what}")


def _read(directory: int, file: str) -> Any:
    """The JSON value in a file of the record."""
    try:
        descriptor = posix.open(file, _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _Unexpected(f"{file} cannot be opened ({why(error)})") from None
    try:
        status = posix.fstat(descriptor)
        if not S_ISREG(status.st_mode):
            raise _Unexpected(f"{file} is no regular file")
        _check_owner(status, file)
        return loads(read_descriptor(descriptor, _MAX_SIZE).decode("utf-8", "surrogateescape"))
    except OSError as error:
        raise _Unexpected(f"{file} cannot be read ({why(error)})") from None
    except ValueError as error:
        raise _Unexpected(f"{file} is no JSON ({error})") from None
    finally:
        posix.close(descriptor)


def _request(entry: Any, number: int) -> DeviceRequest:
    where = f"device request {number} in hostconfig.json"
    data = _object(entry, where)
    driver, count = data.get("Driver"), data.get("Count")
    if not isinstance(driver, str) and driver is not None:
        raise _Unexpected(f"Driver of {where} is no text")
    if (not isinstance(count, int) or isinstance(count, bool)) and count is not None:
        raise _Unexpected(f"Count of {where} is no whole number")
    return DeviceRequest(
        driver or "",
        count or 0,
        _texts(data.get("DeviceIDs"), f"DeviceIDs of {where}"),
        [
            _texts(words, f"Capabilities of {where}")
            for words in _list(data.get("Capabilities"), f"Capabilities of {where}")
        ],
        _texts_by_name(data.get("Options"), f"Options of {where}"),
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unexpected(f"{what} is no JSON object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Unexpected(f"{what} is no list")
    return value


def _texts(value: Any, what: str) -> list[str]:
    texts = _list(value, what)
    if not all(isinstance(text, str) for text in texts):
        raise _Unexpected(f"{what} is no list of texts")
    return texts


def _texts_by_name(value: Any, what: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _Unexpected(f"{what} is no object of texts")
    return value
