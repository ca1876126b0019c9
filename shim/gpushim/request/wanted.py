"""Which devices a container asks for: by the first of all places that names any.

Source of the order: the design's "Where a request comes from"; for what NVIDIA's toolkit reads,
NVIDIA/nvidia-container-toolkit 1.20, internal/config/image.
"""

from __future__ import annotations

from gpushim.request.gather import DEVICE_LISTS
from gpushim.request.nvidia import VISIBLE_DEVICES, brief, devices_of, variable
from gpushim.request.request import ALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.config import Config
    from gpushim.request.dockerrecord import DeviceRequest, DockerRecord
    from gpushim.request.gather import Asked
    from gpushim.request.read import Said

# NVIDIA's kind for devices that its runtime describes while it runs.
_VENDOR_KIND = "runtime.nvidia.com/gpu"
_ACCEPT_MOUNTS = "request.accept-nvidia-visible-devices-as-volume-mounts"


class Wanted:
    """Devices that one place names.

    names: of GPUs and MIG devices, [ALL], or [] for the driver's files alone; count: how many of
    any, None where names count; cdi: qualified names of other kinds, with cdi_source as their
    place; open: whether others may have the same; share: percent of each that is meant, 0 for no
    part; nothing: the place says that there shall be no GPU; only_cdi: no GPU was named, only
    devices of other kinds.
    """

    __slots__ = (
        *("cdi", "cdi_source", "count", "names", "nothing", "only_cdi", "open", "share"),
        "source",
    )

    def __init__(self, names: list[str], source: str) -> None:
        self.names = names
        self.source = source
        self.count: int | None = None
        self.cdi: list[str] = []
        self.cdi_source = ""
        self.open = True
        self.share = 0
        self.nothing = False
        self.only_cdi = False


def counted(count: int, source: str) -> Wanted:
    """So many GPUs, whichever; none at all for 0."""
    made = Wanted([], source)
    made.count = count
    made.nothing = count == 0
    made.open = False
    return made


def named(names: list[str], source: str, config: Config) -> Wanted:
    """Devices by name: those of this machine's driver, and CDI devices of other kinds."""
    made = Wanted([], source)
    for name in names:
        kind, equals, device = name.partition("=")
        if not equals or "/" not in kind:
            made.names.append(name)
        elif kind in (_VENDOR_KIND, config.text("cdi.default-kind")) and _is_ours(device):
            made.names.append(_plain(device))
        else:
            made.cdi.append(name)
            made.cdi_source = source
    if ALL in made.names:
        made.names = [ALL]
    elif "none" in made.names:
        made.names = []
    else:
        made.only_cdi = bool(made.cdi) and not made.names
        made.names = list(dict.fromkeys(made.names))
    return made


def _is_ours(device: str) -> bool:
    """Whether a CDI device's name means a GPU by itself, and so needs no spec file."""
    if device in (ALL, "none") or device.startswith(("GPU-", "MIG-")):
        return True
    numbers = _plain(device).split(":")
    return len(numbers) <= 2 and all(part.isascii() and part.isdigit() for part in numbers)


def _plain(device: str) -> str:
    """A name as NVIDIA_VISIBLE_DEVICES has it, of one by type and index ("gpu0", "mig1:0")."""
    for kind in ("gpu", "mig"):
        if device.startswith(kind):
            return device[len(kind) :]
    return device


def find(
    asked: Asked,
    environment: list[str],
    places: list[Said],
    config: Config,
    warnings: list[str],
    left_out: list[str],
) -> Wanted | None:
    """What the first place names that names anything; None if there is none.

    environment: entries of it that may ask; places: gpushim's own keys in annotations, in Docker's
    record and in the environment; left_out: gets a sentence if the configuration makes `all` in the
    environment no request. Raises GpushimError for what can't be understood.
    """
    annotations, record, variables = places
    from_cdi = _by_cdi_annotations(asked, config)
    found = _by_key(annotations, config)
    if found is None and from_cdi is not None and not from_cdi.only_cdi:
        return from_cdi
    found = (
        found
        or (_by_device_requests(asked, config) if asked.record is not None else None)
        or _by_key(record, config)
        or _by_mounts(asked, config)
        or _by_swarm(environment, config, warnings)
        or _by_key(variables, config)
        or _by_environment(environment, config, left_out)
    )
    if from_cdi is None:
        return found
    if found is None:
        return from_cdi
    found.cdi += [name for name in from_cdi.cdi if name not in found.cdi]
    found.cdi_source = found.cdi_source or from_cdi.cdi_source
    return found


def _by_key(said: Said, config: Config) -> Wanted | None:
    if "gpus" not in said:
        return None
    from gpushim.request import keys

    text, source = said["gpus"]
    value = keys.parse("gpus", text, source)
    if "count" in value:
        return counted(value["count"], source)
    return named(value["names"] or ["none"], source, config)


def _by_cdi_annotations(asked: Asked, config: Config) -> Wanted | None:
    if not asked.cdi:
        return None
    prefixes = tuple(config.texts("cdi.annotation-prefixes"))
    words = ", ".join(
        f"{name}={brief(str(asked.annotations[name]))}"
        for name in sorted(asked.annotations)
        if name.startswith(prefixes)
    )
    return named(asked.cdi, f"annotation {words}", config)


def gpu_requests(record: DockerRecord) -> list[DeviceRequest]:
    from gpushim.request import dockerrecord

    return dockerrecord.gpu_requests(record)


def _by_device_requests(asked: Asked, config: Config) -> Wanted | None:
    """By what --gpus, --device of a CDI name or compose's reservations left in Docker's record."""
    from gpushim.errors import GpushimError
    from gpushim.request import dockerrecord

    assert asked.record is not None
    requests = dockerrecord.gpu_requests(asked.record)
    if any("gpus" in request.options for request in requests):
        raise GpushimError(
            "A device request says by itself which GPUs are wanted, and has the option gpus, too.",
            "Leave the option out; a count or ids (--gpus 2, --gpus device=0,1) do.",
        )
    ids = [name for request in requests for name in request.ids]
    counts = [request.count for request in requests if not request.ids]
    if ids and any(counts):
        raise GpushimError(
            f"Docker's device requests name GPUs ({', '.join(ids)}) and ask for a number of them, "
            "too.",
            "Ask by one of the two.",
        )
    if ids:
        return named(ids, f"device request for {brief(','.join(ids))}", config)
    if any(count < -1 for count in counts):
        raise GpushimError(
            f"A device request asks for {min(counts)} GPUs.",
            "Ask for a number of them, or for all (--gpus all; -1 in Docker's API).",
        )
    if any(count < 0 for count in counts):
        return Wanted([ALL], "device request for all GPUs")
    if requests:
        return counted(sum(counts), f"device request for a count of {sum(counts)}")
    # The engine has given devices of other kinds already.
    found = named(dockerrecord.cdi_names(asked.record), "", config)
    if not found.names:
        return None
    found.source = f"device request for CDI devices {brief(','.join(found.names))}"
    found.cdi = []
    return found


def _lists(asked: Asked, config: Config) -> tuple[list[str], list[str]] | None:
    """Devices and IMEX channels that mounts name, where that is allowed."""
    if not config.flag(_ACCEPT_MOUNTS):
        return None
    if not any(DEVICE_LISTS in destination for _, destination in asked.mounts):
        return None
    from gpushim.request.devicelists import devices_from_mounts

    return devices_from_mounts(asked.mounts)


def mounted_channels(asked: Asked, config: Config) -> list[str]:
    """IMEX channels that mounts name."""
    lists = _lists(asked, config)
    return lists[1] if lists is not None else []


def _by_mounts(asked: Asked, config: Config) -> Wanted | None:
    lists = _lists(asked, config)
    if lists is None or not lists[0]:
        return None
    names = lists[0]
    source = f"mounts beneath /var/run/nvidia-container-devices: {brief(','.join(names))}"
    if "void" in names:
        return counted(0, source)
    return named(names, source, config)


def _by_swarm(environment: list[str], config: Config, warnings: list[str]) -> Wanted | None:
    if not any(entry.startswith("DOCKER_RESOURCE_") for entry in environment):
        return None
    from gpushim.request import swarm

    configured = config.texts("request.swarm-resource")
    found = swarm.swarm_devices(environment, configured)
    warnings += swarm.ignored_resources(environment, configured)
    if found is None:
        return None
    names, source = found
    if names is None:
        return counted(0, source)
    names, share = swarm.share_of(names)
    made = named(names or ["none"], source, config)
    made.share = share
    # Swarm gives a resource to one task at a time.
    made.open = False
    return made


def _by_environment(environment: list[str], config: Config, left_out: list[str]) -> Wanted | None:
    policy = config.text("request.visible-devices")
    names = devices_of(environment)
    if names is None or policy == "ignore":
        return None
    source = _source(environment)
    made = named(names or ["none"], source, config)
    if made.names == [ALL] and config.text("request.all-from-environment") == "none":
        left_out.append(
            f"No GPU was given for {source}, which images have in them by themselves "
            "(request.all-from-environment is none). Ask by --gpus, by gpushim.gpus as an "
            "annotation or a label, or by the variable GPUSHIM_GPUS."
        )
        return None
    made.open = policy == "grant"
    return made


def in_environment(environment: list[str], config: Config) -> str:
    """What in an environment would be a request if it were allowed to be one; "" if nothing."""
    found = _by_swarm(environment, config, [])
    if found is not None:
        return "" if found.nothing else found.source
    for entry in environment:
        if entry.startswith("GPUSHIM_GPUS="):
            return f"environment {brief(entry)}"
    return "" if _by_environment(environment, config, []) is None else _source(environment)


def _source(environment: list[str]) -> str:
    value = variable(environment, VISIBLE_DEVICES)
    if value is None:
        version = brief(variable(environment, "CUDA_VERSION") or "")
        return f"environment CUDA_VERSION={version} (of an image without NVIDIA_REQUIRE_CUDA)"
    return f"environment {VISIBLE_DEVICES}={brief(value)}"
