"""Why a wish is not met, for the person who typed it: what each device is doing, and who has it.

Imported only when there is something to refuse, or to leave out.
"""

from __future__ import annotations

from gpushim.allocate.filter import misfit
from gpushim.allocate.grant import Held, Unavailable, name_of
from gpushim.allocate.lease import EXCLUSIVE, OPEN, SHARED
from gpushim.allocate.wish import size_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpushim.allocate.filter import RealUse, Slot
    from gpushim.allocate.lease import Booking, Lease
    from gpushim.allocate.wish import Wish
    from gpushim.errors import GpushimError

    Entry = tuple[Lease, Booking]

# How many groups of devices a sentence tells of, and how many holders or processes of each.
_ROWS, _HOLDERS = 8, 3
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SHORT_ID = 12


class Refusal:
    """A wish that is not met now, or never.

    wish; slots: the devices that were looked at, with what is really booked of them; free: those
    that would be given; never: whether this machine can't meet it even if nobody has anything;
    leases: those that stand in the way, each of a container that lives.
    """

    __slots__ = ("free", "leases", "never", "slots", "wish")

    def __init__(
        self, wish: Wish, slots: Sequence[Slot], free: Sequence[Slot], never: bool
    ) -> None:
        self.wish = wish
        self.slots = slots
        self.free = free
        self.never = never
        found: dict[int, Lease] = {}
        for slot in slots:
            if slot not in free and not misfit(slot, wish):
                for lease, _ in _in_the_way(slot, wish):
                    found[id(lease)] = lease
        self.leases = list(found.values())

    def error(self, now: float) -> GpushimError:
        """As an error: Unavailable for what can never be, Held for what can't be now.

        now: seconds since the epoch, for how long each lease has been there.
        """
        kind = Unavailable if self.never else Held
        return kind(self.sentence(now), self.hint())

    def sentence(self, now: float) -> str:
        """What was asked for, and what each device is doing."""
        wish, slots = self.wish, self.slots
        if not slots:
            return f"{asked(wish)}, and this machine has no GPU that its driver knows of."
        if wish.count is None:
            slots = [slot for slot in slots if slot not in self.free] or slots
        models = {slot.gpu.model for slot in slots}
        kind = f" ({models.pop()})" if len(models) == 1 else ""
        told = [slot for slot in slots if misfit(slot, wish)] if self.never else slots
        rows = _rows(told, wish, self.free, now, not kind)
        if wish.count is None:
            return f"{asked(wish)}, but of the devices here{kind} {rows}."
        return f"{asked(wish)}, and {self._so_many(kind)}{': ' if rows else ''}{rows}."

    def _so_many(self, kind: str) -> str:
        """ "of the 8 GPUs here only 2 are free", "the only MIG device here has no room"."""
        wish, every = self.wish, len(self.slots)
        noun = "MIG device" if self.slots[0].mig else "GPU"
        found = len(self.free)
        if self.never:
            found = sum(not misfit(slot, wish) for slot in self.slots)
            if found == every:
                verb, ending = ("is", "") if every == 1 else ("are", "s")
                return f"there {verb} only {every} {noun}{ending} here{kind}"
            one, several, not_one = "is such a one", "are such", "is no such one"
        elif wish.mode == EXCLUSIVE:
            one, several, not_one = "is free", "are free", "is not free"
        else:
            one, several, not_one = "has room", "have room", "has no room"
        if every == 1:
            return f"the only {noun} here{kind} {one if found else not_one}"
        number = f"only {found} {one if found == 1 else several}" if found else f"none {one}"
        return f"of the {every} {noun}s here{kind} {number}"

    def hint(self) -> str:
        """What to do about it."""
        if not self.never:
            return "'gpushimctl ps' shows all leases; 'gpushimctl run' waits until it is your turn."
        return _hint(self.wish, self.slots)


def _hint(wish: Wish, slots: Sequence[Slot]) -> str:
    if wish.model:
        from gpushim.allocate.pattern import is_plain

        if is_plain(wish.model) and any(
            wish.model.lower() in slot.gpu.model.lower() for slot in slots
        ):
            return f"Write '*{wish.model}*' to allow for what is before and behind it."
    sizes = [slot.capacity for slot in slots if slot.capacity is not None]
    if wish.memory and sizes and wish.memory > max(sizes):
        return f"The largest has {size_words(max(sizes))} to give."
    if wish.mig and all(slot.mig is None for slot in slots):
        return "MIG devices are made with 'nvidia-smi mig'; without, ask for whole GPUs."
    if not wish.mig and any(slot.gpu.mig_devices for slot in slots):
        return "Ask for MIG devices by their profile (the key mig) or by name."
    return "'gpushimctl inventory' shows what there is."


def asked(wish: Wish) -> str:
    """What was asked for and where: "2 GPUs with 20 GiB each were asked for by ..."."""
    text, keys = _described(wish)
    return f"{text} {'was' if wish.count == 1 else 'were'} asked for by {_sources(wish, keys)}"


def described(wish: Wish) -> str:
    """What was asked for: "2 GPUs with 20 GiB each"."""
    return _described(wish)[0]


def _described(wish: Wish) -> tuple[str, list[str]]:
    """What was asked for, and the keys that said so."""
    count = wish.count
    kind = "MIG device" if wish.mig and count is not None else "GPU"
    text = f"{kind}s" if count is None else f"{count} {kind}{'' if count == 1 else 's'}"
    keys = ["devices"]
    if wish.mig:
        text += f" of profile {wish.mig}"
        keys.append("mig")
    if wish.model:
        text += f" of model {wish.model}"
        keys.append("model")
    if wish.capability:
        text += f" of compute capability {''.join(wish.capability).removeprefix('=')}"
        keys.append("compute-capability")
    amounts = []
    if wish.memory or wish.memory_percent:
        memory = size_words(wish.memory) if wish.memory else f"{wish.memory_percent}% of the memory"
        amounts.append(memory)
        keys.append("memory")
    if wish.compute:
        amounts.append(f"{wish.compute}% of the multiprocessors")
        keys.append("compute")
    if amounts:
        text += f" with {' and '.join(amounts)}{'' if count == 1 else ' each'}"
    if "mode" in wish.request.keys:
        text += " to itself" if wish.mode == EXCLUSIVE else " to share"
        keys.append("mode")
    return text, keys


def _sources(wish: Wish, keys: Sequence[str]) -> str:
    """The places that said this, each once."""
    said: list[str] = []
    for key in keys:
        source = wish.request.sources.get(key, "")
        # Where a key alone asks for a GPU, its place is a part of the first one.
        if source and not any(other == source or other.startswith(f"{source},") for other in said):
            said.append(source)
    return " and ".join(said)


def left_out(slot: Slot, wish: Wish) -> str:
    """Why `all` does not give a device, as a warning."""
    kind = "MIG device" if slot.mig else "GPU"
    words = _words(slot, wish, False, None)
    return f"{kind} {name_of(slot.device())} ({slot.uuid}) {words}, so 'all' leaves it out."


def _rows(slots: Sequence[Slot], wish: Wish, free: Sequence[Slot], now: float, models: bool) -> str:
    """What each device is doing, those together that do the same."""
    groups: dict[tuple[str, str], list[Slot]] = {}
    for slot in slots:
        model = f" ({slot.gpu.model})" if models else ""
        groups.setdefault((model, _words(slot, wish, slot in free, now)), []).append(slot)
    rows = []
    for (model, words), members in groups.items():
        verb, _, rest = words.partition(" ")
        if len(members) > 1:
            verb = "are"
        rows.append(f"{_names(members, slots)}{model} {verb} {rest}")
    if len(rows) > _ROWS:
        others = sum(len(members) for members in [*groups.values()][_ROWS:])
        rows[_ROWS:] = [f"and {others} more"]
    return "; ".join(rows)


def _names(members: Sequence[Slot], every: Sequence[Slot]) -> str:
    """Names of devices, neighbours as "0 to 3"."""
    places = [place for place, slot in enumerate(every) if slot in members]
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    texts = []
    for run in runs:
        first, last = (name_of(every[place].device()) for place in (run[0], run[-1]))
        texts.append(first if len(run) == 1 else f"{first}{' to ' if run[2:] else ', '}{last}")
    return ", ".join(texts)


def _words(slot: Slot, wish: Wish, free: bool, now: float | None) -> str:
    """What a device is doing: a verb in the singular and more."""
    why = misfit(slot, wish) or slot.kept
    if why:
        return f"is {why}"
    if free and wish.mode == EXCLUSIVE:
        return "is free"
    entries = slot.entries if free else _in_the_way(slot, wish)
    modes: dict[str, list[Entry]] = {EXCLUSIVE: [], SHARED: [], OPEN: []}
    for entry in entries:
        modes[entry[1].mode].append(entry)
    users = [_holders(modes[OPEN], OPEN, now)] if modes[OPEN] else []
    if slot.real is not None and slot.is_busy():
        users.append(_processes(slot.real))
    parts = [f"held by {_holders(modes[EXCLUSIVE], EXCLUSIVE, now)}"] if modes[EXCLUSIVE] else []
    if modes[SHARED]:
        parts.append(f"shared by {_holders(modes[SHARED], SHARED, now)}")
    if users:
        parts.append(f"used by {' and '.join(users)}")
    room = "" if modes[EXCLUSIVE] else _room(slot, wish)
    return f"is {' and '.join(parts) or 'free'}{room}"


def _in_the_way(slot: Slot, wish: Wish) -> list[Entry]:
    """The bookings without which a device could be given."""
    against = slot.against(wish)
    return slot.entries if wish.mode == SHARED and not against else against


def _room(slot: Slot, wish: Wish) -> str:
    """How much is left of a device that is shared."""
    if wish.mode != SHARED:
        return ""
    left = []
    if (wish.memory or wish.memory_percent) and slot.capacity is not None:
        rest = size_words(max(slot.capacity - slot.used(), 0))
        left.append(f"{rest} of {size_words(slot.capacity)}")
    if wish.compute:
        left.append(f"{max(100 - slot.compute(), 0)}% of the multiprocessors")
    return f", {' and '.join(left)} left" if left else ""


def _holders(entries: Sequence[Entry], mode: str, now: float | None) -> str:
    leases = list({id(lease): lease for lease, _ in entries}.values())
    names = [lease.name or lease.id[:_SHORT_ID] for lease in leases[:_HOLDERS]]
    if len(leases) > _HOLDERS:
        names.append(f"{len(leases) - _HOLDERS} more")
    facts = ["exclusive"] if mode == EXCLUSIVE else ["by name"] if mode == OPEN else []
    if now is not None and len(leases) == 1 and leases[0].since:
        facts.append(age(now - leases[0].since))
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{joined} ({', '.join(facts)})" if facts else joined


def _processes(real: RealUse) -> str:
    """Processes that booked nothing."""
    if not real.processes:
        return f"processes without a lease ({size_words(real.memory)})"
    shown = []
    for pid, name, held in real.processes[:_HOLDERS]:
        facts = ", ".join([name] * bool(name) + [size_words(held)] * bool(held))
        shown.append(f"process {pid} ({facts})" if facts else f"process {pid}")
    if len(real.processes) > _HOLDERS:
        shown.append(f"{len(real.processes) - _HOLDERS} more")
    return f"{', '.join(shown)} without a lease"


def age(seconds: float) -> str:
    """How long something has been: "3 h", in the largest unit of which there is one."""
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return "0 s"
