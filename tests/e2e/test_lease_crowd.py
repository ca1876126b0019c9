"""Two hundred creates at the same moment for eight GPUs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.bundle import Bundle
from tests.harness.leased import Here
from tests.harness.seen import probe

pytestmark = pytest.mark.e2e

ONE, EIGHT = "GPUSHIM_GPUS=1", "GPUSHIM_GPUS=8"
CROWD = 200


class Attempt:
    """A create in the background. Its bundle has another's root: it never comes to use it."""

    def __init__(self, here: Here, path: Path, config: dict[str, Any]) -> None:
        path.mkdir()
        self.id = path.name
        self.log = path / "log"
        (path / "config.json").write_text(json.dumps(config))
        here.runtime._ids.append(self.id)
        words = [f"--root={here.runtime.root}", "create", "--bundle", str(path), self.id]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(here.machine.launcher), *words],
                env=here.runtime.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text()


@pytest.fixture
def start(here: Here, tmp_path: Path) -> Iterator[Callable[[int, str], list[Attempt]]]:
    """Start many creates with this variable, all of them before any is waited for."""
    made: list[Attempt] = []

    def begin(many: int, env: str) -> list[Attempt]:
        bundle = here.bundle(env, args=probe(["sleep", "300"]))
        made.extend(Attempt(here, tmp_path / f"c{at}", _config(bundle, at)) for at in range(many))
        return made

    yield begin
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def _config(bundle: Bundle, number: int) -> dict[str, Any]:
    """A container's own configuration, with a cgroup of its own."""
    linux = {**bundle.config["linux"], "cgroupsPath": f"/gpushim-test/{bundle.id}-{number}"}
    root = {**bundle.config["root"], "path": str(bundle.rootfs)}
    return {**bundle.config, "root": root, "linux": linux}


def test_eight_of_two_hundred(here: Here, start: Callable[[int, str], list[Attempt]]) -> None:
    """B81: exactly eight get one, each of the others its sentence, and every one ends."""
    attempts = start(CROWD, ONE)
    statuses = [each.process.wait(120) for each in attempts]
    got = [each for each, status in zip(attempts, statuses, strict=True) if status == 0]
    said = [each.said() for each, status in zip(attempts, statuses, strict=True) if status]
    assert len(got) == 8, said
    leases = {lease.id: lease for lease in here.leases()}
    assert leases.keys() == {each.id for each in got}
    uuids = [booking.uuid for lease in leases.values() for booking in lease.bookings]
    assert sorted(uuids) == sorted(gpu.uuid for gpu in here.machine.host.gpus)
    asked = f"gpushim: 1 GPU was asked for by environment {ONE}, and of the 8 GPUs here"
    assert [text for text in said if not text.startswith(asked) or text.count("\n") != 1] == []
    assert [text for text in said if "none is free: " not in text] == []
    # What is left of it are eight containers: when they are gone, everything is free.
    for each in got:
        here.runtime.delete(each.id, "--force").check()
    here.holds_nothing()


def test_one_of_many_redeems_a_ticket(
    here: Here, start: Callable[[int, str], list[Attempt]]
) -> None:
    """They all come with the same one, at the same moment."""
    ticket = here.machine.installed.ctl("reserve", "--gpus=8").strip()
    attempts = start(24, f"GPUSHIM_TICKET={ticket}")
    statuses = [each.process.wait(120) for each in attempts]
    (got,) = [each for each, status in zip(attempts, statuses, strict=True) if status == 0]
    said = {each.said() for each in attempts if each is not got}
    assert len(said) == 1
    assert f"Ticket {ticket} was redeemed already, by container {got.id}." in said.pop()
    (lease,) = here.leases()
    assert (lease.id, lease.ticket, len(lease.bookings)) == (got.id, ticket, 8)
