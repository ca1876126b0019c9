"""What choices depend on besides leases, by the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate import circumstances, realuse
from gpushim.allocate.circumstances import fill_in, reading_for
from gpushim.allocate.filter import KEPT_OUT
from gpushim.allocate.lease import EXCLUSIVE
from gpushim.allocate.queue import Terms
from gpushim.allocate.wish import Wish
from gpushim.config import Config
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from gpushim.host.deviceuse import DeviceUse, Reading, now
from gpushim.host.model import Inventory
from gpushim.places import Places
from gpushim.request.request import Request

from tests.unit.allocate.machines import machine

GIB = 1 << 30
DGX = machine("dgx_a100")


def config(real_use: str = "auto", keep_out: tuple[str, ...] = ()) -> Config:
    return configured({"allocate.real-use": real_use, "allocate.keep-out": [*keep_out]})


def inventory() -> Inventory:
    return Inventory("550.1", DGX.gpus, {}, [], [], False, "", nvml="/lib/nvml")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What NVML was asked with; it answers for the first GPU alone."""
    calls: list[Any] = []

    def look(places: Places, library: str, gpus: Any, seconds: float) -> Reading:
        calls.append((library, seconds))
        found = Reading(now())
        if library:
            use = found.devices[DGX.uuid("0")] = DeviceUse()
            use.reserved, use.used, use.processes = GIB, 9 * GIB, [(1, 8 * GIB, "c")]
        found.problems.append("NVML is not well.")
        return found

    monkeypatch.setattr(realuse, "look", look)
    return calls


@pytest.mark.parametrize(
    ("setting", "count", "expected"),
    [
        ("never", 1, []),
        ("auto", 1, [("/lib/nvml", 1.0)]),
        ("auto", 8, []),
        ("always", 8, [("/lib/nvml", 10.0)]),
    ],
)
def test_whether_the_driver_is_asked(
    places: Places, asked: list[Any], setting: str, count: int, expected: list[Any]
) -> None:
    wish = Wish(Request([], [], {}), count, EXCLUSIVE)
    found = reading_for(places, config(setting), inventory(), wish)
    assert asked == expected
    assert (found is not None) is bool(expected)


@pytest.mark.parametrize("setting", ["auto", "always"])
def test_a_driver_that_tells_nothing(places: Places, asked: list[Any], setting: str) -> None:
    """With `always` nothing is given then; else it is said in the log alone."""
    here = inventory()
    here.nvml = ""
    wish = Wish(Request([], [], {}), 1, EXCLUSIVE)
    if setting == "always":
        with pytest.raises(GpushimError, match=r"NVML is not well\."):
            reading_for(places, config(setting), here, wish)
        return
    found = reading_for(places, config(setting), here, wish)
    assert found is not None
    assert found.problems == ["NVML is not well."]
    terms = Terms(here.gpus)
    fill_in(terms, places, config(setting), [], found)
    assert (terms.real, terms.kept_out, terms.reserve) == ({}, {}, 0)


def test_what_it_tells(places: Places, asked: list[Any]) -> None:
    wish = Wish(Request([], [], {}), 1, EXCLUSIVE)
    found = reading_for(places, config(), inventory(), wish)
    terms = Terms(DGX.gpus)
    fill_in(terms, places, config(), [], found)
    assert terms.real is not None
    assert terms.real[DGX.uuid("0")].memory >= 8 * GIB
    assert terms.reserve == GIB
    assert DGX.choose(wish, real=terms.real) is not None
    assert DGX.names(wish, real=terms.real) != "0"


def test_without_a_reading(places: Places) -> None:
    terms = Terms(DGX.gpus)
    fill_in(terms, places, config(keep_out=("3",)), [], None)
    assert terms.real is None
    assert terms.kept_out == {DGX.uuid("3"): KEPT_OUT}


@pytest.mark.parametrize(("setting", "is_kept"), [("auto", False), ("always", True)])
def test_gpus_that_nvml_does_not_tell_of(places: Places, setting: str, is_kept: bool) -> None:
    """No reason for quarantine: it may only have been slow."""
    reading = Reading(now())
    reading.devices[DGX.uuid("1")] = DeviceUse()
    reading.devices[DGX.uuid("1")].trouble = "lost"
    reading.silent = [DGX.uuid("0")]
    terms = Terms(DGX.gpus)
    fill_in(terms, places, config(setting), [DGX.lease("a", "0")], reading)
    assert terms.kept_out[DGX.uuid("1")] == "lost"
    assert terms.kept_out.get(DGX.uuid("0"), "") == (circumstances._UNKNOWN if is_kept else "")
    assert not Path(places.quarantine).exists()
