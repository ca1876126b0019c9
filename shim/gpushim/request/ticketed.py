"""A container with a ticket gets what the ticket was taken for, and may ask for nothing else.

Imported only when a ticket is there.
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request import keys, wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpushim.request.read import Said
    from gpushim.request.request import Request
    from gpushim.request.wanted import Wanted

    # The id of a ticket -> what it was taken for; raises Gone for one that holds nothing any more.
    Reserved = Callable[[str], Request]

# What a container may say for itself: it has nothing to do with which devices these are.
_OWN = ("ticket", "optional", "numa", "wait", "priority")


class Gone(GpushimError):
    """A ticket that is not known, or whose time is over."""


def held_by(said: Said, reserved: Reserved, asks: bool, warnings: list[str]) -> Request | None:
    """What the ticket that was said was taken for.

    None if it holds nothing any more and the container itself says what it needs (`asks`): it may
    be one that is started again after a boot, and is treated as one without a ticket. Raises
    GpushimError for any other use of a ticket that can't be redeemed.
    """
    text, source = said["ticket"]
    try:
        return reserved(keys.parse("ticket", text, source))
    except Gone as error:
        if not asks:
            raise
        warnings.append(f"{error.sentence} The container is treated as one without a ticket.")
        del said["ticket"]
        return None


def found_by(held: Request, said: Said, also: Wanted | None) -> Wanted:
    """The devices of a ticket. Raises GpushimError for a contradiction.

    also: what the container asks for otherwise, without NVIDIA_VISIBLE_DEVICES, which images have
    in them by themselves and which contradicts nothing.
    """
    text, source = said["ticket"]
    has_other = also is not None and not also.only_cdi
    if also is not None and has_other and _devices(also) != (held.count, held.devices):
        raise _contradiction(held, text, also.source)
    for key, (value, where) in said.items():
        if key in _OWN or key == "gpus":
            continue
        if keys.parse(key, value, where) != held.keys.get(key):
            raise _contradiction(held, text, where)
    found = wanted.Wanted(list(held.devices), f"{held.sources['devices']} ({source})")
    found.count, found.open = held.count, held.open
    if also is not None:
        found.cdi, found.cdi_source = also.cdi, also.cdi_source
    return found


def _devices(found: Wanted) -> tuple[int | None, list[str]]:
    return found.count, found.names


def add_keys(request: Request, held: Request, said: Mapping[str, tuple[str, str]]) -> None:
    """Adds the keys of a ticket, and those that the container may say for itself."""
    for key, value in held.keys.items():
        request.keys[key] = value
        request.sources[key] = held.sources.get(key, request.sources["devices"])
    for key in _OWN:
        if key in said:
            text, source = said[key]
            request.keys[key] = keys.parse(key, text, source)
            request.sources[key] = source


def _contradiction(held: Request, ticket: str, source: str) -> GpushimError:
    terms = [held.sources["devices"]]
    terms += [held.sources[key] for key in held.keys if key in held.sources]
    return GpushimError(
        f"Ticket {ticket} is for something else ({', '.join(dict.fromkeys(terms))}) than what the "
        f"container asks for ({source}).",
        "Leave that out: the ticket says what the container gets.",
    )
