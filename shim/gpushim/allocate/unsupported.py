"""What of a request this version understands and cannot act on: it is refused by name."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.request.request import Request

# Keys of a request that nothing acts on while a container is created.
_NOT_YET = ("priority", "wait")


def refuse_unsupported(request: Request) -> None:
    """Raises GpushimError for a key that only waiting can act on."""
    waiting = [key for key in _NOT_YET if key in request.keys]
    if waiting:
        said = ", ".join(request.sources[key] for key in waiting)
        names = ", ".join(f"'{key}'" for key in waiting)
        raise GpushimError(
            f"{names} {'is' if len(waiting) == 1 else 'are'} understood ({said}), but this version "
            "of gpushim does not act on it yet: a container that asked for it would get something "
            "else.",
            "Leave it out, or wait for the version whose changelog names it.",
        )
