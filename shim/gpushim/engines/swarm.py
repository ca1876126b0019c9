"""What a node of Docker Swarm has to hand out: `node-generic-resources` of daemon.json.

Pure. Source: docs.docker.com, "dockerd", "Node generic resources"; moby, api/genericresource: an
entry is "KIND=VALUE", and a value that is no number names one thing. dockerd reads the member when
it starts, and at no reload.
"""

from __future__ import annotations

from typing import Any

from ..errors import GpushimError
from ..request.swarm import MOST_SLOTS
from .jsontext import drop, put

# Services ask for the first for whole GPUs, and for the second for a part of one.
KIND, SLOT_KIND = "NVIDIA-GPU", "NVIDIA-GPU-SLOT"
MEMBER = "node-generic-resources"


def kind(slots: int) -> str:
    """The kind of resource that a service asks for."""
    return SLOT_KIND if slots else KIND


def entries(uuids: list[str], slots: int) -> list[str]:
    """The entries for these GPUs and MIG devices: whole, or cut into so many slots each."""
    if not slots:
        return [f"{KIND}={uuid}" for uuid in uuids]
    return [
        f"{SLOT_KIND}={uuid}/{number}of{slots}" for uuid in uuids for number in range(1, slots + 1)
    ]


def check_slots(slots: int) -> None:
    """Raises GpushimError for a number of slots that can't be told in percent; 0 is for none."""
    if slots and not 2 <= slots <= MOST_SLOTS:
        raise GpushimError(
            f"A GPU can't be cut into {slots} slots.", f"From 2 to {MOST_SLOTS} are possible."
        )


def merged(present: Any, ours: list[str]) -> list[str]:
    """The member with `ours` in place of all that it had of these kinds; others' stay in front.

    present: the member as it is, None if there is none. Raises GpushimError unless it is a list of
    texts.
    """
    return [*others(present), *ours]


def others(present: Any) -> list[str]:
    """What a member has of other kinds than ours. Raises GpushimError as `merged` does."""
    if present is None:
        return []
    if not isinstance(present, list) or not all(isinstance(each, str) for each in present):
        raise GpushimError(
            f"{MEMBER} is not a list of texts; the file was left as it is.", "Correct it first."
        )
    return [each for each in present if each.partition("=")[0] not in (KIND, SLOT_KIND)]


def without_ours(text: str, present: Any, former: list[str] | None) -> str:
    """The text of daemon.json with the member as it was, but for what others changed meanwhile.

    present: the member as it is; former: as it was before install, None if there was none.
    """
    of_ours = [each for each in former or [] if each not in others(former)]
    left = merged(present, of_ours)
    if left or former is not None:
        return put(text, [MEMBER], left)
    return drop(text, [MEMBER])
