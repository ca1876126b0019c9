"""One request out of all that was said: for each key the first place that says something wins.

The order: annotations; for Docker the container's device requests and labels; mounts that name
devices; Docker Swarm's resources; the environment. Pure: what the places hold is in an `Asked`.
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request import wanted
from gpushim.request.gather import OWN_PREFIX, own_annotations
from gpushim.request.nvidia import (
    DRIVER_CAPABILITIES,
    brief,
    driver_capabilities,
    is_legacy,
    variable,
)
from gpushim.request.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.config import Config
    from gpushim.request.gather import Asked
    from gpushim.request.ticketed import Reserved
    from gpushim.request.wanted import Wanted

    Said = dict[str, tuple[str, str]]  # key -> (text, where it was said)

# Keys that say what a GPU must be or how much of it: they ask for one GPU where nothing else does.
_RESOURCES = ("memory", "compute", "mode", "model", "compute-capability", "mig")
_TICKET = "GPUSHIM_TICKET="
_ACCEPT = "request.accept-nvidia-visible-devices-envvar-when-unprivileged"


def read_request(
    asked: Asked, config: Config, reserved: Reserved | None = None
) -> tuple[Request | None, list[str]]:
    """What the container asks for, None for nothing; and sentences to warn with.

    reserved: the id of a ticket -> what it was taken for, where tickets count. Raises GpushimError
    for what can't be understood, or what this installation does not allow.
    """
    if asked.sandbox:
        return None, []
    warnings: list[str] = []
    environment = asked.environment
    if not (asked.administrator or config.flag(_ACCEPT)):
        # No image has a ticket in it: somebody of this machine took it.
        environment = [entry for entry in environment if entry.startswith(_TICKET)]
    places = _own_keys(asked, environment)
    said: Said = {}
    for place in places:
        for key, pair in place.items():
            said.setdefault(key, pair)
    if "ticket" in said and reserved is not None:
        request = _by_ticket(asked, environment, places, said, config, reserved, warnings)
        if request is not None:
            return request, warnings
    left_out: list[str] = []
    found = wanted.find(asked, environment, places, config, warnings, left_out)
    if found is None and any(key in said for key in _RESOURCES):
        source = next(said[key][1] for key in _RESOURCES if key in said)
        found = wanted.counted(1, f"{source}, which asks for one GPU")
    elif found is None:
        warnings += left_out
    if found is not None and found.share and "mode" not in said:
        said.setdefault("memory", (f"{found.share}%", found.source))
    if found is None and not environment:
        _mention_unaccepted(asked, config, warnings)
    if found is None or found.nothing:
        if said and "gpus" not in said:
            names = ", ".join(source for _, source in said.values())
            warnings.append(f"No GPU was asked for, so this means nothing: {names}.")
        if found is None or not found.cdi:
            return None, warnings
    return _request(found, said, asked, environment, config, warnings), warnings


def _by_ticket(
    asked: Asked,
    environment: list[str],
    places: list[Said],
    said: Said,
    config: Config,
    reserved: Reserved,
    warnings: list[str],
) -> Request | None:
    """What a ticket was taken for; None if it counts for nothing, and then is said no more."""
    from gpushim.request import ticketed

    also = wanted.find(asked, [], places, config, [], [])
    asks = also is not None or any(key in said for key in _RESOURCES)
    held = ticketed.held_by(said, reserved, asks, warnings)
    if held is None:
        return None
    found = ticketed.found_by(held, said, also)
    request = _request(found, {}, asked, environment, config, warnings)
    ticketed.add_keys(request, held, said)
    return request


def _own_keys(asked: Asked, environment: list[str]) -> list[Said]:
    """What gpushim's own keys were given, by place: annotations, Docker's record, environment."""
    places: list[Said] = [{}, {}, {}]
    annotations = own_annotations(asked)
    has_variables = any(entry.startswith("GPUSHIM_") for entry in environment)
    if not (annotations or asked.has_record or has_variables):
        return places
    from gpushim.request import keys

    places[0] = keys.from_names(annotations, OWN_PREFIX, "annotation")
    if asked.record is not None:
        labels = [pair for pair in asked.record.labels.items() if pair[0].startswith(OWN_PREFIX)]
        options: dict[str, object] = {}
        for device_request in wanted.gpu_requests(asked.record):
            options.update(device_request.options)
        places[1] = {
            **keys.from_names(labels, OWN_PREFIX, "label"),
            **keys.from_names(options.items(), "", "option of the device request"),
        }
    if has_variables:
        places[2] = keys.from_variables(environment)
    return places


def _mention_unaccepted(asked: Asked, config: Config, warnings: list[str]) -> None:
    """Says that a request in the environment does not count, or refuses the container for it."""
    if config.flag(_ACCEPT) or asked.administrator:
        return
    source = wanted.in_environment(asked.environment, config)
    if not source:
        return
    sentence = (
        f"GPUs were asked for by {source}, but here a container without CAP_SYS_ADMIN may not "
        f"ask by its environment ({_ACCEPT} is false)"
    )
    if config.flag("request.refuse-unaccepted-environment"):
        raise GpushimError(
            f"{sentence}.",
            "Ask by --gpus, by an annotation or by a label, as docs/requests.md has.",
        )
    warnings.append(f"{sentence}: it starts without.")


def _request(
    found: Wanted,
    said: Said,
    asked: Asked,
    environment: list[str],
    config: Config,
    warnings: list[str],
) -> Request:
    request = Request([] if found.nothing else found.names, [], {"devices": found.source})
    request.cdi = found.cdi
    if found.cdi:
        request.sources["cdi"] = found.cdi_source
    request.driver = not found.nothing and (bool(found.names) or not found.only_cdi)
    request.count = found.count
    request.open = found.open
    _add_keys(request, said)
    if request.driver:
        _add_driver(request, asked.environment, config)
        _add_extras(request, asked, environment, warnings, config)
    return request


def _add_keys(request: Request, said: Said) -> None:
    """Adds gpushim's own keys, each with its value as parsed."""
    for key, (text, source) in said.items():
        if key == "gpus":
            continue
        from gpushim.request import keys

        request.keys[key] = keys.parse(key, text, source)
        request.sources[key] = source


def _add_driver(request: Request, environment: list[str], config: Config) -> None:
    """Adds what of the driver is wanted, and what the image demands of it."""
    legacy = is_legacy(environment)
    text = variable(environment, DRIVER_CAPABILITIES)
    supported = config.texts("request.supported-driver-capabilities")
    request.capabilities = driver_capabilities(text, supported, legacy)
    request.sources["capabilities"] = (
        f"environment {DRIVER_CAPABILITIES}={brief(text)}" if text else "default"
    )
    demands = legacy or any(entry.startswith("NVIDIA_REQUIRE_") for entry in environment)
    if demands and not config.flag("request.disable-require"):
        from gpushim.request.requirements import requirements

        request.requirements = requirements(environment, legacy)


def _add_extras(
    request: Request,
    asked: Asked,
    environment: list[str],
    warnings: list[str],
    config: Config,
) -> None:
    """Adds MIG administration, IMEX channels and the features that have devices of their own."""
    names = {entry.partition("=")[0] for entry in environment if entry.startswith("NVIDIA_")}
    mounted = wanted.mounted_channels(asked, config)
    if not mounted and names.isdisjoint(_EXTRAS):
        return
    from gpushim.request import extras

    request.mig_config, request.mig_monitor = extras.mig_modes(environment, asked.administrator)
    request.features, said = extras.features(environment)
    warnings += said
    request.imex_channels = extras.imex_channels(variable(environment, _IMEX), mounted)
    for name in sorted(names.intersection(_EXTRAS)):
        value = variable(environment, name) or ""
        if value:
            request.sources[name] = f"environment {name}={brief(value)}"


_IMEX = "NVIDIA_IMEX_CHANNELS"
_EXTRAS = frozenset(
    (
        _IMEX,
        "NVIDIA_GDS",
        "NVIDIA_MOFED",
        "NVIDIA_GDRCOPY",
        "NVIDIA_NVSWITCH",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
    )
)
