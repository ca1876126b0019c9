"""What the configuration demands of every container with GPUs, all of it off by default."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.limits.settings import Settings
    from gpushim.oci.edits import Edits

REFUSE = "refuse"


def refuse_privileged(settings: Settings, privileged: bool) -> None:
    """Raises GpushimError for a container that may use every device, where that is not wanted."""
    if privileged and settings.privileged == REFUSE:
        raise GpushimError(
            "GPUs were asked for by a privileged container, which would see all of them whatever "
            "it was granted, and security.privileged is 'refuse'.",
            "Start it without --privileged, with the capabilities and devices that it needs.",
        )


def add_security(edits: Edits, settings: Settings) -> None:
    """Takes privileges from the container's processes, those of later execs, too."""
    edits.drop_capabilities += settings.drop_capabilities
    edits.no_new_privileges = edits.no_new_privileges or settings.no_new_privileges
