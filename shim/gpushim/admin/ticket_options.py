"""What `gpushimctl run` and `gpushimctl reserve` have in common: options, request, waiting."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from ..allocate import turn
from ..allocate.book import Book
from ..allocate.choose import Choice
from ..allocate.circumstances import fill_in, reading_for
from ..allocate.grant import Unavailable
from ..allocate.lease import Lease
from ..allocate.queue import Terms, choose_in_turn, terms_of
from ..allocate.refusal import Refusal
from ..allocate.ticket import Ticket
from ..allocate.waiting import wait_for_turn
from ..config import Config
from ..errors import GpushimError
from ..host.deviceuse import Reading
from ..host.model import capability_key
from ..places import Places
from ..records import start_time
from ..request import keys
from ..request.nvidia import DEFAULT_CAPABILITIES
from ..request.request import Request
from ..request.wanted import named
from ..snapshot import Snapshot, load, obtain, refresh_again
from . import installation, refresh
from .output import warn
from .progress import Progress

# Option -> its help. Their values are those of gpushim's own keys.
OPTIONS = {
    "gpus": "how many GPUs (default: 1), or which",
    "memory": "memory of each, as 20g or 50%%: GPUs are shared then",
    "compute": "share of each, as 50%%: GPUs are shared then",
    "mode": "exclusive or shared",
    "model": "a shell pattern for the model's name",
    "compute-capability": "such as 8.0 or >=8.0",
    "mig": "a MIG profile",
    "placement": "link, pack or spread",
    "numa": "bind, prefer or off",
}
_FRESH_SECONDS = 5.0

Booker = Callable[[Book, list[Ticket]], Choice | Refusal]


class Asked:
    """What the options ask for.

    request; priority; texts: key -> text of each option, with gpus in any case; seconds: how long
    to wait, None for any time.
    """

    __slots__ = ("priority", "request", "seconds", "texts")

    def __init__(self, request: Request, texts: dict[str, str]) -> None:
        self.request = request
        self.texts = texts
        self.priority = 0
        self.seconds: float | None = None


class Interrupted(BaseException):
    """A signal that ends the waiting."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add(parser: argparse.ArgumentParser) -> None:
    for key, text in OPTIONS.items():
        parser.add_argument(f"--{key}", metavar=_metavar(key), help=text)
    parser.add_argument(
        "--priority", metavar="NUMBER", help="greater goes first (default: the configuration's)"
    )
    parser.add_argument(
        "--wait", metavar="TIME", help="give up after this time, such as 2h (exit status 75)"
    )


def _metavar(key: str) -> str:
    return {"gpus": "N", "compute-capability": "VERSION", "mig": "PROFILE"}.get(key, key.upper())


def asked_by(arguments: argparse.Namespace, verb: str, config: Config) -> Asked:
    """What options ask for. Raises GpushimError for values that can't be read."""

    def source(key: str) -> str:
        return f"option --{key}={getattr(arguments, key.replace('-', '_'))} of gpushimctl {verb}"

    values = vars(arguments)
    texts = {key: values[key.replace("-", "_")] for key in (*OPTIONS, "priority", "wait")}
    texts = {key: text for key, text in texts.items() if text is not None}
    parsed = {key: keys.parse(key, text, source(key)) for key, text in texts.items()}
    priority, seconds = parsed.pop("priority", None), parsed.pop("wait", None)
    if "gpus" in parsed:
        request = _by_gpus(parsed.pop("gpus"), source("gpus"), config)
    else:
        first = next((source(key) for key in parsed), f"gpushimctl {verb}")
        request = Request([], [], {"devices": f"{first}, which asks for one GPU"})
        request.count, request.open = 1, False
    request.keys = parsed
    request.sources.update({key: source(key) for key in parsed})
    asked = Asked(
        request, {"gpus": "1"} | {key: texts[key] for key in ("gpus", *parsed) if key in texts}
    )
    asked.priority = int(config.text("allocate.default-priority")) if priority is None else priority
    asked.seconds = seconds
    most = config.text("allocate.max-gpus")
    if most and request.count is not None and request.count > int(most):
        raise GpushimError(
            f"{request.count} GPUs were asked for by {request.sources['devices']}, but a container "
            f"may have {most} here (allocate.max-gpus).",
            "Ask for fewer.",
        )
    return asked


def _by_gpus(value: dict[str, int | list[str]], source: str, config: Config) -> Request:
    count, names = value.get("count"), value.get("names")
    if isinstance(names, list) and names:
        found = named(names, source, config)
        if found.cdi:
            raise GpushimError(f"CDI devices can't be waited for ({source}).", "Ask for GPUs.")
        return Request(found.names, [], {"devices": source})
    if not count or isinstance(count, list):
        raise GpushimError(f"No GPU was asked for ({source}), so there is nothing to wait for.")
    request = Request([], [], {"devices": source})
    request.count, request.open = count, False
    return request


class Machine:
    """This machine as it is while somebody waits, looked at anew every few seconds."""

    def __init__(self, places: Places, verb: str) -> None:
        installation.require(places)
        self._places = places
        if load(places) is None:
            refresh.refuse_without_place(places, verb)
        self._key = capability_key(list(DEFAULT_CAPABILITIES))
        self._take(obtain(places, self._key))

    def _take(self, snapshot: Snapshot) -> None:
        self.config = snapshot.config
        self._snapshot = snapshot
        self._until = time.monotonic() + _FRESH_SECONDS

    def terms(self) -> Terms:
        """What choices are made from, but for what the driver tells of use."""
        if time.monotonic() > self._until:
            self._take(obtain(self._places, self._key))
        # Without leases nothing is put into quarantine here, which is for the lock's holder.
        return self._terms((), None)

    def _terms(self, leases: Sequence[Lease], reading: Reading | None) -> Terms:
        terms = terms_of(self._snapshot)
        fill_in(terms, self._places, self.config, leases, reading)
        return terms

    def booker(self, ticket: Ticket, keep: float) -> Booker:
        """What books for a ticket, by what the driver says just now."""
        wish = terms_of(self._snapshot).wish(ticket.request)
        reading = reading_for(self._places, self.config, self._snapshot.inventory, wish)
        return turn.booking(self._places, ticket, lambda leases: self._terms(leases, reading), keep)

    def check_possible(self, request: Request) -> None:
        """Raises GpushimError for what this machine can't meet even if nobody has anything."""
        try:
            self._check(request)
        except GpushimError:
            reason = "GPUs that were asked for are not here"
            self._take(refresh_again(self._places, self._key, reason, []))
            self._check(request)

    def _check(self, request: Request) -> None:
        terms = self.terms()
        found = choose_in_turn(terms.wish(request), (), (), terms, lambda lease: False)
        if isinstance(found, Refusal) and found.never:
            raise Unavailable(found.sentence(time.time()), found.hint())


def wait(places: Places, machine: Machine, asked: Asked, keep: float) -> tuple[Ticket, Choice]:
    """A ticket whose devices are booked, and these, after as much waiting as it took.

    keep: for how many seconds they are kept though this process ends. Ctrl-C, SIGTERM and SIGHUP
    end the waiting, with the ticket, and then this process. Raises GpushimError.
    """
    machine.check_possible(asked.request)
    pid = os.getpid()
    try:
        with _interruptible():
            ticket = turn.take(places, asked.request, asked.priority, (pid, start_time(pid)))
            progress = Progress(ticket)
            try:
                found = wait_for_turn(
                    places,
                    ticket,
                    machine.terms,
                    lambda: machine.booker(ticket, keep),
                    progress.tell,
                    asked.seconds,
                )
            except BaseException:
                turn.give_back(places, ticket)
                raise
            finally:
                progress.end()
    except Interrupted as interrupted:
        warn("The ticket was given back.")
        # As the signal itself would have ended it, which is what a shell looks at.
        signal.signal(interrupted.number, signal.SIG_DFL)
        os.kill(pid, interrupted.number)
        raise SystemExit(128 + interrupted.number) from None
    return ticket, found


@contextmanager
def _interruptible() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    former: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
