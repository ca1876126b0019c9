"""What of a request this version understands and cannot act on: it is refused by name."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.request.request import Request

# Keys of a request that something acts on: `optional` is create's, `numa` is that of limits, `gpus`
# is no key of its own.
_ACTED_ON = ("optional", "numa")


def refuse_unsupported(request: Request) -> None:
    """Raises GpushimError for a key that only an allocation with leases can act on."""
    waiting = [key for key in request.keys if key not in _ACTED_ON]
    if waiting:
        said = ", ".join(request.sources[key] for key in waiting)
        names = ", ".join(f"'{key}'" for key in waiting)
        raise GpushimError(
            f"{names} {'is' if len(waiting) == 1 else 'are'} understood ({said}), but this version "
            "of gpushim does not act on it yet: a container that asked for it would get something "
            "else.",
            "Leave it out, or wait for the version whose changelog names it.",
        )
    by_variable = request.sources["devices"].startswith("environment NVIDIA_")
    if by_variable and not request.open and request.count is None:
        raise GpushimError(
            f"GPUs were asked for by {request.sources['devices']}, and request.visible-devices is "
            "'allocate', which this version of gpushim does not act on yet.",
            "Set it to grant or ignore.",
        )
