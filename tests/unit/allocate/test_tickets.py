"""Tickets as files, what a create may do with one, and the loop that waits."""

from __future__ import annotations

import json
import os
import posix
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpushim import records
from gpushim.allocate import ticketfiles, turn, waiting
from gpushim.allocate.book import Book, every, open_book
from gpushim.allocate.choose import Choice
from gpushim.allocate.lease import Lease
from gpushim.allocate.liveness import Roots, client_lives, lives
from gpushim.allocate.queue import Terms
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.ticket import Ticket, new
from gpushim.allocate.ticketfiles import CANCELLED, REDEEMED, WAITING
from gpushim.allocate.tickets import hand_over, redeemable, reserved_for
from gpushim.allocate.waiting import Cancelled, NotInTime, Seen, check_engine, wait_for_turn
from gpushim.errors import GpushimError
from gpushim.places import Places
from gpushim.request.ticketed import Gone

from tests.unit.allocate.machines import Machine, machine, wish

BOX = machine("consumer8")
ME = os.geteuid()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places(str(tmp_path))
    open_book(places).close()
    return places


def terms(box: Machine = BOX) -> Terms:
    return Terms(box.gpus, box.links)


def at(leases: Sequence[Lease]) -> Terms:
    return terms()


def me() -> tuple[int, int]:
    return os.getpid(), records.start_time(os.getpid())


def take(places: Places, gpus: str = "1") -> Ticket:
    return turn.take(places, wish(gpus).request, 0, me())


def get(places: Places, ticket: Ticket, seconds: float = 60) -> Choice | Refusal:
    """What the ticket gets in its turn, without waiting for it."""
    with open_book(places) as book:
        found = turn.booking(places, ticket, at, seconds)(book, turn.before(places, ticket))
    if isinstance(found, Choice):
        ticketfiles.remove(places, ticket.id, WAITING)
    return found


def ready(places: Places, gpus: str = "1", seconds: float = 60) -> Ticket:
    ticket = take(places, gpus)
    assert isinstance(get(places, ticket, seconds), Choice)
    return ticket


def full(places: Places) -> Lease:
    """A lease of all GPUs by this process."""
    lease = BOX.lease("web", "0,1,2,3,4,5,6,7")
    lease.creator, lease.boot, lease.state_root = me(), Roots().boot, "/run/none"
    with open_book(places) as book:
        book.put(lease)
    return lease


def states(places: Places) -> list[str]:
    return sorted(name.partition(".")[2] for name in os.listdir(places.queue))


def test_a_ticket_survives_being_a_file(places: Places) -> None:
    request = wish("device=0,GPU-1", memory="20g", compute_capability=">=8.0", priority="3").request
    for key, value in (("wait", 90.5), ("optional", True)):
        request.keys[key], request.sources[key] = value, f"label gpushim.{key}"
    made = new(request, (7, 8), -5)
    made.container, made.state_root, made.name = "c1", "/run/moby", "web\udcff"
    ticketfiles.write(places, made, WAITING)
    found = ticketfiles.read(places, made.id, WAITING)
    assert found is not None
    assert found.to_json() == made.to_json()
    assert found.request.keys == request.keys
    assert found.owner == ME
    assert os.stat(f"{places.queue}/{made.id}.waiting").st_mode & 0o7777 == 0o644
    assert os.stat(places.queue).st_mode & 0o7777 == 0o1777


GOOD = new(wish("2", memory="20g").request, (7, 8), 0).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0}, {"format": 2}, {"format": "1"}, {"id": "x"}, {"id": "0" * 15}, {"id": 5},
        {"client": [1]}, {"client": [1, -1]}, {"client": [True, 1]}, {"client": None},
        {"boot": 5}, {"priority": 1001}, {"priority": "1"}, {"priority": True},
        {"arrival": -1}, {"arrival": 1 << 63}, {"since": None}, {"count": 0}, {"count": 10_000},
        {"count": "2"}, {"devices": "0"}, {"devices": [0]}, {"devices": ["0"] * 1025},
        {"open": 1}, {"keys": []}, {"keys": {"memory": 5}}, {"keys": {"memory": "lots"}},
        {"keys": {"fast": "1"}}, {"sources": {}}, {"sources": {"devices": 1}}, {"sources": []},
        {"container": None}, {"state_root": 1}, {"name": []},
    ],
)  # fmt: skip
def test_what_is_no_ticket_is_none(places: Places, change: dict[str, Any]) -> None:
    number = GOOD["id"]
    Path(places.queue, f"{number}.waiting").write_text(json.dumps({**GOOD, **change}))
    assert ticketfiles.every(places, WAITING) == []
    Path(places.queue, f"{number}.waiting").write_text(json.dumps(GOOD))
    assert len(ticketfiles.every(places, WAITING)) == 1


def test_odd_files_are_no_tickets(places: Places) -> None:
    directory = Path(places.queue)
    number = GOOD["id"]
    (directory / "README.waiting").write_text("x")
    (directory / f"{number}.other").write_text(json.dumps(GOOD))
    (directory / f"{'f' * 16}.waiting").write_text(json.dumps(GOOD))  # of another's name
    (directory / f"{'e' * 16}.waiting").mkdir()
    (directory / f"{'d' * 16}.waiting").symlink_to("/dev/zero")
    (directory / f"{'b' * 16}.waiting").write_bytes(b"{" * 40_000)
    os.mkfifo(directory / f"{'c' * 16}.waiting")
    assert ticketfiles.every(places, WAITING) == []
    ticket = take(places)
    assert [each.id for each in ticketfiles.waiting(places)] == [ticket.id]
    ticketfiles.remove(places, ticket.id, WAITING)
    for path in directory.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
    assert ticketfiles.every(places, WAITING) == []
    assert ticketfiles.is_waiting(places, take(places))


def test_who_waits_is_told_by_the_process(places: Places) -> None:
    ticket = take(places)
    pid, started = me()
    assert client_lives(ticket, Roots())
    for client, boot in (
        ((pid, started + 1), ticket.boot),
        ((1 << 22, 5), ""),
        ((pid, started), "x"),
    ):
        ticket.client, ticket.boot = client, boot or ticket.boot
        assert not client_lives(ticket, Roots())
    if ME == 0:
        # Root believes another user's ticket only for a process of that user's.
        mine = take(places)
        mine.owner = 61001
        assert not client_lives(mine, Roots())


def test_tickets_of_the_dead_are_swept_up(places: Places) -> None:
    kept, gone = take(places), take(places)
    gone.client = (gone.client[0], 1)
    ticketfiles.write(places, gone, WAITING)
    over = ready(places, seconds=0)
    with open_book(places) as book:
        lease = next(each for each in book.leases if each.ticket == over.id)
        lease.creator = (lease.creator[0], 1)
        book.put(lease)
    Path(places.queue, f"{kept.id}.waiting.tmp77").touch()
    held = ready(places)
    assert [each.id for each in ticketfiles.waiting(places)] == [kept.id]
    with open_book(places) as book:
        ticketfiles.sweep(places, book.leases)
    assert sorted(os.listdir(places.queue)) == sorted([f"{kept.id}.waiting", f"{held.id}.ready"])


def test_a_reservation_outlives_its_client_until_its_time_is_over(places: Places) -> None:
    ready(places)
    (lease,) = every(places)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert lives(lease, Roots())
    lease.creator = (lease.creator[0], 1)
    assert lives(lease, Roots())
    for left, alive in ((-1, False), (50, True), (23 * 3600, True), (25 * 3600, False)):
        lease.expires = int(now + left)
        assert lives(lease, Roots()) is alive


@pytest.mark.skipif(ME != 0, reason="only root doubts other users")
def test_a_client_that_has_become_roots_is_known_by_its_command_line(
    places: Places, tmp_path: Path
) -> None:
    """sudo docker run -e GPUSHIM_TICKET=...: the user's lease holds until it is redeemed."""
    lease = BOX.lease("x", "0")
    lease.creator, lease.boot, lease.owner = me(), Roots().boot, 61001
    lease.ticket, lease.expires = "0123456789abcdef", 1
    assert not lives(lease, Roots())
    proc = tmp_path / "proc"
    proc.mkdir()
    for name in ("self", "sys", str(os.getpid())):
        (proc / name).symlink_to(f"/proc/{os.getpid() if name == 'self' else name}")
    mine = proc / str(os.getpid())
    mine.unlink()
    mine.mkdir()
    (mine / "stat").write_bytes(Path(f"/proc/{os.getpid()}/stat").read_bytes())
    (mine / "status").write_text("Uid:\t0\t0\t0\t0\n")
    for words, alive in (
        (b"sudo\0docker\0", False),
        (f"-e\0GPUSHIM_TICKET={lease.ticket}\0".encode(), True),
    ):
        (mine / "cmdline").write_bytes(words)
        assert lives(lease, Roots(proc=str(proc))) is alive


def web(kept: Lease) -> Lease:
    """The lease of a container that has redeemed a ticket."""
    made = Lease("c1", "/run/moby", kept.creator, kept.bookings)
    made.name, made.boot, made.ticket = "web", kept.boot, kept.ticket
    return made


def test_one_container_redeems_it_and_again_when_it_is_started_again(places: Places) -> None:
    ticket = ready(places, "2")
    request = reserved_for(places, "c1", "/run/moby")(ticket.id)
    assert (request.count, request.devices) == (2, [])
    with open_book(places) as book:
        found = redeemable(book, places, ticket.id, "c1", "/run/moby")
        assert found is not None
        reserved, kept = found
        hand_over(book, places, reserved, kept, web(kept))
        assert [lease.id for lease in book.leases] == ["c1"]
        assert redeemable(book, places, ticket.id, "c1", "/run/moby") is None
        for other in (("c2", "/run/moby"), ("c1", "/run/runc")):
            with pytest.raises(GpushimError, match="was redeemed already, by container web"):
                redeemable(book, places, ticket.id, *other)
            with pytest.raises(GpushimError, match="was redeemed already"):
                reserved_for(places, *other)(ticket.id)
    assert states(places) == ["redeemed"]
    assert reserved_for(places, "c1", "/run/moby")(ticket.id).count == 2


def test_a_lease_is_found_whatever_its_file_is_called(places: Places) -> None:
    """Within a user namespace, as under rootless Podman, the owner has another uid than outside."""
    ticket = ready(places, "2")
    (lease,) = every(places)
    os.rename(lease.path, lease.path.replace(f"-{ME}-", "-70001-"))
    with open_book(places) as book:
        found = redeemable(book, places, ticket.id, "c1", "/run/moby")
        assert found is not None
        hand_over(book, places, *found, web(found[1]))
    assert [lease.id for lease in every(places)] == ["c1"]


def test_who_could_not_redeem_it_has_not_spent_it(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, say: it may come again, and others may, too."""
    ticket = ready(places, "2")

    def fail(*_: object) -> None:
        raise GpushimError("full")

    for place, name in ((ticketfiles, "write"), (Book, "put")):
        with monkeypatch.context() as patch, open_book(places) as book:
            patch.setattr(place, name, fail)
            found = redeemable(book, places, ticket.id, "c1", "/run/moby")
            assert found is not None
            with pytest.raises(GpushimError, match="full"):
                hand_over(book, places, *found, web(found[1]))
        assert "ready" in states(places)
        for container in ("c1", "c2"):
            assert reserved_for(places, container, "/run/moby")(ticket.id).count == 2
            with open_book(places) as book:
                assert redeemable(book, places, ticket.id, container, "/run/moby") is not None


def test_what_can_not_be_redeemed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = reserved_for(places, "c1", "/run/moby")
    with pytest.raises(Gone, match="is not known here"):
        reserved("0123456789abcdef")
    in_line = take(places)
    with pytest.raises(GpushimError, match="is in line still"):
        reserved(in_line.id)
    cancelled = ready(places)
    ticketfiles.mark(places, cancelled, CANCELLED)
    with pytest.raises(GpushimError, match=f"Ticket {cancelled.id} was cancelled."):
        reserved(cancelled.id)
    over = ready(places)
    with open_book(places) as book:
        book.drop(next(lease for lease in book.leases if lease.ticket == over.id))
    with pytest.raises(Gone, match="The time of ticket"):
        reserved(over.id)
    Path(places.queue, f"{'a' * 16}.ready").write_text(
        json.dumps({**GOOD, "id": "a" * 16, "format": 2})
    )
    with pytest.raises(GpushimError, match="written by a newer gpushim"):
        reserved("a" * 16)
    Path(places.queue, f"{'a' * 16}.ready").write_text("nonsense")
    with pytest.raises(Gone):
        reserved("a" * 16)


@pytest.mark.skipif(ME != 0, reason="files of two users")
def test_nobody_can_mark_the_ticket_of_another(places: Places) -> None:
    ticket = ready(places)
    for state in (REDEEMED, CANCELLED):
        ticketfiles.write(places, ticket, state)
        os.chown(f"{places.queue}/{ticket.id}.{state}", 61001, 61001)
    assert reserved_for(places, "c1", "/run/moby")(ticket.id).count == 1
    with open_book(places) as book:
        assert redeemable(book, places, ticket.id, "c1", "/run/moby") is not None


def test_marks_do_not_pile_up(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticketfiles, "_MOST_MARKS", 3)
    ids = []
    for _ in range(5):
        ticket = take(places)
        with open_book(places):
            ticketfiles.mark(places, ticket, REDEEMED)
        ids.append(f"{ticket.id}.redeemed")
        time.sleep(0.01)
    assert sorted(os.listdir(places.queue)) == sorted(ids[-3:])


def test_what_is_booked_for_a_ticket(places: Places) -> None:
    ticket = ready(places, "3")
    (lease,) = every(places)
    assert (lease.id, lease.ticket, len(lease.bookings)) == (f"ticket-{ticket.id}", ticket.id, 3)
    assert states(places) == ["ready"]
    found = turn.look(places, take(places, "6"), [], terms())
    assert isinstance(found, Refusal)
    assert f"held by ticket {ticket.id}" in found.sentence(time.time())
    turn.give_back(places, ticket)
    assert every(places) == []
    assert states(places) == ["waiting"]


def test_if_it_can_not_be_kept_nothing_is_booked(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = take(places)

    def fail(*_: object) -> None:
        raise GpushimError("full")

    for place, name in ((ticketfiles, "write"), (Book, "put")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            with pytest.raises(GpushimError, match="full"):
                get(places, ticket)
        assert every(places) == []
        assert states(places) == ["waiting"]


class Clock:
    """Time that passes in sleep alone, with something done at each."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, at: dict[int, Callable[[], object]]
    ) -> None:
        self.slept: list[float] = []
        self._at = at
        self._now = 1000.0
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self.slept.append(seconds)
        self._at.get(len(self.slept), lambda: None)()


def wait(places: Places, ticket: Ticket, seconds: float | None = None, **more: Any) -> Choice:
    return wait_for_turn(
        places, ticket, terms, lambda: turn.booking(places, ticket, at, 60), lambda seen: None,
        seconds, **more,
    )  # fmt: skip


def test_it_waits_until_there_is_something(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, ticket = full(places), take(places, "2")
    clock = Clock(monkeypatch, {4: lambda: posix.unlink(lease.path)})
    assert len(wait(places, ticket).bookings) == 2
    assert clock.slept == pytest.approx([0.2] * 4)
    assert states(places) == ["ready"]


def test_those_further_back_look_less_often(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = full(places)
    others = [take(places) for _ in range(2)]
    ticket = take(places)
    seen: list[Seen] = []
    clock = Clock(monkeypatch, {3: lambda: posix.unlink(lease.path)})
    wait_for_turn(places, ticket, terms, lambda: turn.booking(places, ticket, at, 60), seen.append)
    assert clock.slept == pytest.approx([0.6] * 3)
    assert [each.id for each in seen[0].tickets] == [each.id for each in others]
    # They have not looked yet, and there are enough for all.
    assert len(ticketfiles.waiting(places)) == 2


def test_it_ends_without(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    full(places)
    ticket = take(places)
    Clock(monkeypatch, {})
    with pytest.raises(NotInTime) as late:
        wait(places, ticket, 5)
    assert late.value.exit_status == 75
    assert late.value.sentence.startswith("After 5 s of waiting: 1 GPU was asked for")

    def cancel() -> None:
        with open_book(places):
            ticketfiles.mark(places, ticket, CANCELLED)

    Clock(monkeypatch, {2: cancel})
    with pytest.raises(Cancelled, match="was cancelled by"):
        wait(places, ticket)
    ticket = take(places)
    Clock(monkeypatch, {2: lambda: ticketfiles.remove(places, ticket.id, WAITING)})
    with pytest.raises(Cancelled, match="is in line no more"):
        wait(places, ticket)
    ticket = take(places)
    Clock(monkeypatch, {2: lambda: monkeypatch.setattr(posix, "getppid", lambda: 1)})
    with pytest.raises(GpushimError, match="has ended"):
        wait(places, ticket, parent=os.getppid())
    with pytest.raises(GpushimError, match="there are only 8 GPUs here"):
        wait(places, take(places, "9"))


def test_cancelled_between_the_look_and_the_lock(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = take(places)
    look = turn.look

    def look_and_cancel(*arguments: Any) -> Choice | Refusal:
        with open_book(places):
            ticketfiles.mark(places, ticket, CANCELLED)
        return look(*arguments)

    monkeypatch.setattr(turn, "look", look_and_cancel)
    with pytest.raises(Cancelled):
        wait(places, ticket)
    assert every(places) == []


def test_waiting_in_a_create(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = full(places)
    Clock(monkeypatch, {2: lambda: posix.unlink(lease.path)})
    request = wish("1").request

    def wait_here(got: Any) -> Any:
        container = ("c1", "/run/moby", "web")
        return waiting.wait_in_create(
            places, request, me(), container, terms, lambda: lambda book, line: got, 30, 5
        )

    assert wait_here("booked") == "booked"
    assert states(places) == []
    full(places)
    Clock(monkeypatch, {})
    with pytest.raises(GpushimError, match="After 30 s of waiting") as late:
        wait_here("booked")
    assert late.value.exit_status == 1
    assert states(places) == []


def test_engines_in_which_a_create_may_wait() -> None:
    check_engine("docker", "label gpushim.wait=1m")
    for engine, name in (("podman", " and not under Podman"), ("cri-o", " and not under CRI-O")):
        with pytest.raises(GpushimError) as refused:
            check_engine(engine, "label gpushim.wait=1m")
        assert f"(label gpushim.wait=1m), which is possible under Docker only{name}" in str(
            refused.value
        )
    with pytest.raises(GpushimError, match="under Docker only: other"):
        check_engine("", "label gpushim.wait=1m")
