"""What docs/leases.md quotes is what the program prints for just that."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from gpushim import config_keys
from gpushim.admin import devices, ps
from gpushim.admin.leasing import LIVE
from gpushim.admin.output import print_table
from gpushim.allocate.choose import choose
from gpushim.allocate.lease import EXCLUSIVE, SHARED, Booking, Lease
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.wish import wish_of
from gpushim.config_keys import configured
from gpushim.host.model import Gpu
from gpushim.request.dockerrecord import DeviceRequest, DockerRecord
from gpushim.request.gather import Asked
from gpushim.request.read import read_request

from tests.test_docs_requests import paragraphs, words

ROOT = Path(__file__).resolve().parent.parent
LEASES = ROOT / "docs/leases.md"
GIB = 1 << 30
NOW = time.time()


def gpus() -> list[Gpu]:
    """Eight A100, of each of which the driver keeps a part."""
    found = []
    for index in range(8):
        gpu = Gpu(index, f"GPU-{index}", index, f"0000:0{index}:00.0", "NVIDIA A100-SXM4-80GB")
        gpu.memory, gpu.reserved, gpu.compute_capability = 80 * GIB, 613 << 20, "8.0"
        found.append(gpu)
    return found


def lease(name: str, id: str, hours: int, *bookings: Booking) -> Lease:
    made = Lease(id, "/run/docker/runtime-runc/moby", (1, 1), list(bookings))
    made.name, made.engine, made.since = name, "docker", int(NOW) - hours * 3600 - 60
    return made


def leases() -> list[Lease]:
    return [
        lease("train", "08a62bd961e2", 3, *(Booking(f"GPU-{n}", EXCLUSIVE) for n in range(6))),
        lease("notebook", "a923fd44cdc8", 2, Booking("GPU-6", SHARED, 20 * GIB)),
        lease("web", "5d0c2f3e9b11", 1, Booking("GPU-6", SHARED, 20 * GIB)),
    ]


def refused(count: int, options: dict[str, str]) -> str:
    asked = Asked([])
    asked.record = DockerRecord("/x", "x", {}, [DeviceRequest("", count, [], [["gpu"]], options)])
    request, _ = read_request(asked, configured())
    assert request is not None
    found = choose(wish_of(request), gpus(), leases())
    assert isinstance(found, Refusal)
    return f"gpushim: {found.error(NOW)}"


def test_refusals() -> None:
    quoted = [words(text) for text in paragraphs(LEASES) if text.startswith("gpushim: ")]
    assert quoted == [
        words(refused(2, {})),
        words(refused(1, {"memory": "200g"})),
    ]


def test_the_table_of_ps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")  # one line a row, wherever the tests run
    known = devices.Devices(gpus())
    rows = [ps.cells(ps.Row(each, LIVE, False, None), known) for each in leases()]
    print_table(ps.HEADINGS, rows, 4)
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    (block,) = [text for text in paragraphs(LEASES) if text.startswith("$ gpushimctl ps")]
    assert block.splitlines()[1:] == printed


def test_every_setting_is_told_of() -> None:
    text = LEASES.read_text()
    known = {key.name for key in config_keys.KEYS if key.section == "allocate"}
    assert known <= set(re.findall(r"`([a-z-]+)`", text))
