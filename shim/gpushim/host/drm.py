"""Which nodes in /dev/dri belong to a GPU: sysfs tells, where nvidia-drm is loaded."""

from __future__ import annotations

from . import procfiles

DIRECTORY = "dri"

_CARD, _RENDER = "card", "renderD"


def nodes(sys_root: str, bus_id: str) -> list[str]:
    """Names of a GPU's nodes, cards first ("card1", "renderD128"); none without nvidia-drm.

    A PCI device's directory `drm` has one directory for each of its nodes (Linux,
    drivers/gpu/drm/drm_sysfs.c). What else lies there are control nodes of old kernels; the
    connectors lie beneath their card.
    """
    found = procfiles.names(f"{sys_root}/bus/pci/devices/{bus_id}/drm")
    return [name for name in found if is_card(name)] + [name for name in found if is_render(name)]


def is_card(name: str) -> bool:
    return name.startswith(_CARD) and _is_number(name[len(_CARD) :])


def is_render(name: str) -> bool:
    return name.startswith(_RENDER) and _is_number(name[len(_RENDER) :])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7
