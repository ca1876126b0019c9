"""What choices depend on besides leases: real use, and devices that are not given."""

from __future__ import annotations

from gpushim.allocate.keptout import kept_out
from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.lease import Lease
    from gpushim.allocate.queue import Terms
    from gpushim.allocate.wish import Wish
    from gpushim.config import Config
    from gpushim.host.deviceuse import Reading
    from gpushim.host.model import Inventory
    from gpushim.places import Places

# For how long NVML is waited for where it need not answer.
_AUTO_SECONDS = 1.0
_UNKNOWN = "not known to be free, as NVML does not tell what it is used for"


def reading_for(places: Places, config: Config, inventory: Inventory, wish: Wish) -> Reading | None:
    """What devices are used for, where allocate.real-use has that asked for a wish; else None.

    It takes its time, so it is asked for without the lock on leases. Its problems are for the log.
    Raises GpushimError where it has to be known (`always`) and NVML tells nothing.
    """
    setting = config.text("allocate.real-use")
    if setting == "never":
        return None
    from gpushim.allocate.realuse import ALWAYS, is_called_for, look, targets

    if not is_called_for(setting, wish, inventory.gpus) or not targets(inventory.gpus):
        return None
    seconds = config.seconds("host.driver-wait") if setting == ALWAYS else _AUTO_SECONDS
    reading = look(places, inventory.nvml, inventory.gpus, seconds)
    if setting == ALWAYS and not reading.devices:
        raise GpushimError(
            "GPUs are given only where it is known what they are used for (allocate.real-use is "
            f'"always"). {" ".join(reading.problems)}',
            "'gpushimctl doctor' looks further.",
        )
    return reading


def fill_in(
    terms: Terms, places: Places, config: Config, leases: Sequence[Lease], reading: Reading | None
) -> None:
    """Puts what is so just now into the terms of a choice; for the holder of the lock on leases.

    leases: all there are. Raises GpushimError for a state file of a newer gpushim.
    """
    troubles = {}
    silent: Sequence[str] = ()
    if reading is not None:
        from gpushim.allocate.realuse import ALWAYS, real_use

        terms.real = real_use(reading, leases)
        terms.reserve = reading.reserve()
        troubles = {uuid: use.trouble for uuid, use in reading.devices.items() if use.trouble}
        if config.text("allocate.real-use") == ALWAYS:
            silent = reading.silent
    names = config.texts("allocate.keep-out")
    kept = kept_out(places, names, terms.gpus, leases, troubles)
    terms.kept_out = {**dict.fromkeys(silent, _UNKNOWN), **kept}
