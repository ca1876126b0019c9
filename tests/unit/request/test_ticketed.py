"""A container with a ticket: what it gets, and what it may say beside it."""

from __future__ import annotations

from typing import Any

import pytest
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from gpushim.request.gather import Asked
from gpushim.request.read import read_request
from gpushim.request.request import Request
from gpushim.request.ticketed import Gone

ID = "0123456789abcdef"
TICKET = f"GPUSHIM_TICKET={ID}"
OPTION = "option --gpus=2 of gpushimctl run"


def held(**keys: Any) -> Request:
    request = Request([], [], {"devices": OPTION})
    request.count, request.open = 2, False
    for key, value in keys.items():
        request.keys[key], request.sources[key] = value, f"option --{key} of gpushimctl run"
    return request


def read(*env: str, annotations: dict[str, str] | None = None, **how: Any) -> Request | None:
    asked = Asked(list(env))
    asked.annotations = annotations or {}
    asked.administrator = how.get("administrator", True)
    request = how.get("held", held(memory=1 << 30))

    def reserved(id: str) -> Request:
        assert id == ID
        if isinstance(request, GpushimError):
            raise request
        found: Request = request
        return found

    config = configured(how.get("configuration"))
    found, warnings = read_request(asked, config, reserved)
    how.get("warnings", []).extend(warnings)
    return found


@pytest.mark.parametrize(
    "env",
    [
        [TICKET],
        [TICKET, "GPUSHIM_GPUS=2"],
        [TICKET, "GPUSHIM_GPUS=2", "GPUSHIM_MEMORY=1g"],
        [TICKET, "GPUSHIM_MEMORY=1024m"],
        # An image has these in it by itself.
        [TICKET, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute"],
        [TICKET, "NVIDIA_VISIBLE_DEVICES=void"],
    ],
)
def test_it_gets_what_the_ticket_holds(env: list[str]) -> None:
    request = read(*env)
    assert request is not None
    assert (request.count, request.devices, request.open) == (2, [], False)
    assert request.keys == {"memory": 1 << 30, "ticket": ID}
    assert request.sources["devices"] == f"{OPTION} (environment {TICKET})"
    assert request.sources["memory"] == "option --memory of gpushimctl run"
    assert "compute" in request.capabilities


def test_in_an_annotation() -> None:
    request = read(annotations={"gpushim.ticket": ID})
    assert request is not None
    assert request.sources["ticket"] == f"annotation gpushim.ticket={ID}"


def test_what_has_nothing_to_do_with_devices_is_its_own() -> None:
    request = read(TICKET, "GPUSHIM_OPTIONAL=true", "GPUSHIM_NUMA=bind", held=held(numa="off"))
    assert request is not None
    assert request.keys == {"numa": "bind", "optional": True, "ticket": ID}


@pytest.mark.parametrize(
    "other",
    [
        "GPUSHIM_GPUS=3", "GPUSHIM_GPUS=all", "GPUSHIM_GPUS=none", "GPUSHIM_GPUS=0,1",
        "GPUSHIM_MEMORY=2g", "GPUSHIM_MODEL=*", "GPUSHIM_MODE=shared", "GPUSHIM_PLACEMENT=pack",
    ],
)  # fmt: skip
def test_it_may_not_ask_for_something_else(other: str) -> None:
    with pytest.raises(GpushimError) as refused:
        read(TICKET, other)
    assert f"Ticket {ID} is for something else ({OPTION}, option --memory" in str(refused.value)
    assert f"(environment {other})" in str(refused.value)


def test_one_that_holds_nothing_any_more() -> None:
    gone = Gone("It is over.", "Take another.")
    with pytest.raises(Gone):
        read(TICKET, "NVIDIA_VISIBLE_DEVICES=all", held=gone)
    warnings: list[str] = []
    request = read(TICKET, "GPUSHIM_MEMORY=1g", held=gone, warnings=warnings)
    assert request is not None
    assert (request.count, request.keys) == (1, {"memory": 1 << 30})
    assert warnings == ["It is over. The container is treated as one without a ticket."]
    with pytest.raises(GpushimError, match="Taken"):
        read(TICKET, "GPUSHIM_GPUS=1", held=GpushimError("Taken."))


def test_one_that_is_none() -> None:
    with pytest.raises(GpushimError, match="'mine' is no ticket"):
        read("GPUSHIM_TICKET=mine", "GPUSHIM_GPUS=1")


def test_it_counts_where_environments_do_not() -> None:
    """No image has one in it, so somebody took it who may use gpushimctl here."""
    closed = {"request.accept-nvidia-visible-devices-envvar-when-unprivileged": False}
    request = read(TICKET, "GPUSHIM_GPUS=2", administrator=False, configuration=closed)
    assert request is not None
    assert request.count == 2
    # What else is in the environment counts for nothing, as it does without a ticket.
    assert read("GPUSHIM_GPUS=2", administrator=False, configuration=closed) is None
