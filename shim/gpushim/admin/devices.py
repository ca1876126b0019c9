"""What devices are called when people are told of them, as far as this machine is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..allocate.grant import name_of, uuid_of
from ..allocate.names import how_to_ask, matching, table
from ..errors import GpushimError
from ..host import statefiles
from ..host.model import Gpu, MigDevice
from ..places import Places
from ..snapshot import Snapshot

_SHORT_UUID = 12


class Devices:
    """The GPUs of this machine, as they were found last, and their MIG devices, by UUID."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = gpus
        every: list[tuple[Gpu, MigDevice | None]] = [(gpu, None) for gpu in gpus]
        every += [(gpu, mig) for gpu in gpus for mig in gpu.mig_devices]
        # Whole GPUs first, so that neighbours among them are neighbours here.
        self._by_uuid = {uuid_of(device): device for device in every if uuid_of(device)}

    def name(self, uuid: str) -> str:
        """ "3", "3:1", or the beginning of a UUID that is not (or not any more) known here."""
        device = self._by_uuid.get(uuid)
        return name_of(device) if device is not None else uuid[:_SHORT_UUID]

    def model(self, uuid: str) -> str:
        """ "NVIDIA A100", "1g.10gb of NVIDIA A100", or "" for one that is not known."""
        device = self._by_uuid.get(uuid)
        if device is None:
            return ""
        gpu, mig = device
        return f"{mig.profile} of {gpu.model}" if mig is not None else gpu.model

    def words(self, uuids: Iterable[str]) -> str:
        """Names of several devices, those of one model together: "0, 2 to 4 (NVIDIA A100)"."""
        order = list(self._by_uuid)
        groups: dict[str, list[list[str]]] = {}
        for uuid in sorted(set(uuids), key=self._place):
            runs = groups.setdefault(self.model(uuid), [])
            last = runs[-1][-1] if runs else ""
            if last in order and order.index(last) + 1 == self._place(uuid)[1]:
                runs[-1].append(uuid)
            else:
                runs.append([uuid])
        texts = {model: ", ".join(map(self._run, runs)) for model, runs in groups.items()}
        return ", ".join(f"{text} ({model})" if model else text for model, text in texts.items())

    def titled(self, uuids: Collection[str]) -> str:
        """The same with what they are before it: "GPUs 0, 1 (NVIDIA A100)"."""
        found = [self._by_uuid.get(uuid, (None, None)) for uuid in uuids]
        kind = "MIG device" if found and all(mig for _, mig in found) else "GPU"
        return f"{kind}{'' if len(found) == 1 else 's'} {self.words(uuids)}"

    def _place(self, uuid: str) -> tuple[bool, int, str]:
        """What devices are sorted by: as they are in the machine, and then others."""
        is_known = uuid in self._by_uuid
        return not is_known, list(self._by_uuid).index(uuid) if is_known else 0, uuid

    def _run(self, uuids: Sequence[str]) -> str:
        if len(uuids) < 3:
            return ", ".join(map(self.name, uuids))
        return f"{self.name(uuids[0])} to {self.name(uuids[-1])}"

    def parts(self, uuid: str) -> set[str]:
        """A device and, of a GPU, its MIG devices."""
        found = {uuid}
        gpu, mig = self._by_uuid.get(uuid, (None, None))
        if gpu is not None and mig is None:
            found |= {each.uuid for each in gpu.mig_devices}
        return found

    def find(self, name: str) -> str:
        """The UUID of the device that a name means. Raises GpushimError if it is not one."""
        found = matching(name, self.gpus)
        if len(found) == 1 and uuid_of(found[0]):
            return uuid_of(found[0])
        if found:
            several = ", ".join(uuid_of(device) or "a UUID that is not known" for device in found)
            raise GpushimError(f"'{name}' means {several}.", "Give the whole UUID of one device.")
        raise GpushimError(
            f"'{name}' is no GPU of this machine: {table(self.gpus)}.",
            how_to_ask(name, self.gpus),
        )


def at_hand(places: Places) -> Devices:
    """The devices that the last refresh found, without another one; none if there was none."""
    for state in (places, statefiles.own_places(places)):
        data = statefiles.read(state.snapshot)
        try:
            if data is not None:
                return Devices(Snapshot.from_json(data).inventory.gpus)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            continue
    return Devices([])
