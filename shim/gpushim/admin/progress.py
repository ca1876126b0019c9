"""What is shown to somebody who waits for GPUs."""

from __future__ import annotations

import shutil
import sys
import time

from ..allocate.choose import Choice
from ..allocate.grant import name_of
from ..allocate.queue import rivals
from ..allocate.refusal import age, described
from ..allocate.ticket import Ticket
from ..allocate.waiting import Seen
from ..allocate.wish import Wish
from .output import warn
from .users import user_name

_TELL_SECONDS = 1.0


class Progress:
    """One line on a terminal, which changes; in a file a line for each change of place."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._is_terminal = sys.stderr.isatty()
        self._told = 0.0
        self._place = ""

    def tell(self, seen: Seen) -> None:
        now = time.monotonic()
        if now - self._told < _TELL_SECONDS:
            return
        self._told = now
        place = place_words(seen)
        if self._is_terminal:
            waited = age(time.time() - self._ticket.since)
            line = f"{waited}: {place}. {seen.refusal.sentence(time.time())}"
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\033[K{line if len(line) <= width else line[: width - 1] + '…'}")
            sys.stderr.flush()
        elif place != self._place:
            warn(f"{place}. {seen.refusal.sentence(time.time())}")
        self._place = place

    def end(self) -> None:
        if self._is_terminal and self._place:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def place_words(seen: Seen) -> str:
    """Where in the line a ticket is, and behind whom that waits for the same."""
    before = rivals(seen.ticket, seen.tickets, seen.terms)
    if not before:
        return f"Ticket {seen.ticket.id} is the first in line"
    last = before[-1]
    wanted = wanted_words(seen.terms.wish(last.request))
    return (
        f"Ticket {seen.ticket.id} is number {len(before) + 1} in line, behind {last.id} of "
        f"{user_name(last.owner)} ({wanted}, for {age(time.time() - last.since)})"
    )


def wanted_words(wish: Wish) -> str:
    """What is waited for: "2 GPUs with 20 GiB each", "GPUs 0,1"."""
    if wish.every():
        return f"all {described(wish)}"
    names = f" {','.join(wish.request.devices)}" if wish.count is None else ""
    return described(wish) + names


def names_of(found: Choice) -> str:
    """The devices that were got: "GPUs 0 and 3 (NVIDIA A100-SXM4-80GB)"."""
    names = [name_of((gpu, mig)) for gpu, mig, _ in found.bookings]
    models = {gpu.model for gpu, _, _ in found.bookings}
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    kind = "MIG device" if any(mig for _, mig, _ in found.bookings) else "GPU"
    return f"{kind}{'s' if len(names) > 1 else ''} {listed} ({', '.join(sorted(models))})"
