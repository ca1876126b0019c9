"""What is booked of which GPUs on real runc: shares, models, profiles, and what is configured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.asking import VISIBLE, ctl
from tests.harness.leased import Here

pytestmark = pytest.mark.e2e

ONE, EIGHT = "GPUSHIM_GPUS=1", "GPUSHIM_GPUS=8"


def test_what_others_hold_may_be_granted_over(make_here: Callable[..., Here]) -> None:
    here = make_here("[request]\ngrant-over-exclusive = true\n")
    here.created(EIGHT)
    assert here.run(f"{VISIBLE}=3").gpus == [3]
    assert len(here.run(f"{VISIBLE}=all").gpus) == 8
    here.refused(ONE)


def test_memory_fills_cards(here: Here) -> None:
    """Three of 20 GiB have room on a card of 80 that the driver keeps a part of."""
    small = [here.created("GPUSHIM_MEMORY=20g") for _ in range(3)]
    assert len({tuple(here.gpus_of(bundle)) for bundle in small}) == 1
    assert {mode for bundle in small for mode in here.modes_of(bundle)} == {"shared"}
    others = here.created("GPUSHIM_MEMORY=40g")
    assert here.gpus_of(others) != here.gpus_of(small[0])
    # Whole cards stay free for those who need them.
    assert len(here.gpus_of(here.created("GPUSHIM_GPUS=6"))) == 6
    text = here.refused("GPUSHIM_MEMORY=60g")
    assert "1 GPU with 60 GiB was asked for by environment GPUSHIM_MEMORY=60g" in text
    assert "none has room" in text
    assert f"shared by {small[0].id[:12]}" in text or "shared by " in text
    assert "left" in text
    text = here.refused("GPUSHIM_MEMORY=200g")
    assert "there are only" in text or "none is such a one" in text
    assert "The largest has" in text
    shown = ctl(here.machine, "ps").stdout
    assert shown.count("20 GiB (not enforced)") == 3


def test_a_booked_amount_is_told_as_it_is(here: Here) -> None:
    seen = here.run("GPUSHIM_MEMORY=20g")
    assert seen.env["GPUSHIM_MEMORY_ENFORCEMENT"] == "none"
    assert len(seen.gpus) == 1
    bundle = here.running("GPUSHIM_MEMORY=25%")
    assert here.exec(bundle)["GPUSHIM_MEMORY_ENFORCEMENT"] == "none"
    assert "GPUSHIM_MEMORY_ENFORCEMENT" not in here.run(ONE).env


def test_compute_and_mode(here: Here) -> None:
    halves = [here.created("GPUSHIM_COMPUTE=60%") for _ in range(2)]
    assert here.gpus_of(halves[0]) != here.gpus_of(halves[1])
    third = here.created("GPUSHIM_COMPUTE=40%")
    assert here.gpus_of(third) in [here.gpus_of(bundle) for bundle in halves]
    shared = here.created("GPUSHIM_GPUS=1", "GPUSHIM_MODE=shared")
    assert here.modes_of(shared) == ["shared"]
    alone = here.created("GPUSHIM_MEMORY=10g", "GPUSHIM_MODE=exclusive")
    assert here.modes_of(alone) == ["exclusive"]
    assert here.gpus_of(alone) not in [here.gpus_of(bundle) for bundle in [*halves, shared]]


def test_model_and_compute_capability(make_here: Callable[..., Here]) -> None:
    here = make_here(name="mixed_lab")
    gpus = here.machine.host.gpus
    model = gpus[-1].model.name
    same = [gpu.index for gpu in gpus if gpu.model.name == model]
    assert 0 < len(same) < len(gpus)
    seen = here.run(ONE, f"GPUSHIM_MODEL={model}")
    assert seen.gpus[0] in same
    text = here.refused(f"GPUSHIM_GPUS={len(same) + 1}", f"GPUSHIM_MODEL={model}")
    assert f"of model {model}" in text
    assert f"environment GPUSHIM_MODEL={model}" in text
    text = here.refused(ONE, "GPUSHIM_MODEL=Voodoo*")
    assert "1 GPU of model Voodoo* was asked for" in text
    text = here.refused(ONE, "GPUSHIM_COMPUTE_CAPABILITY=>=9.9")
    assert "of compute capability >=9.9" in text
    assert len(here.run(ONE, "GPUSHIM_COMPUTE_CAPABILITY=>=7").gpus) == 1


def test_mig_profiles(make_here: Callable[..., Here]) -> None:
    here = make_here(name="mig_host")
    devices = {mig.uuid: mig.profile.name for gpu in here.machine.host.gpus for mig in gpu.mig}
    smallest = [uuid for uuid, profile in devices.items() if profile == "1g.10gb"]
    taken = set()
    for _ in smallest:
        bundle = here.created("GPUSHIM_MIG=1g.10gb")
        (lease,) = [lease for lease in here.leases() if lease.id == bundle.id]
        (booking,) = lease.bookings
        assert booking.mode == "exclusive"
        taken.add(booking.uuid)
    assert taken == set(smallest)
    # A larger one does as well when no smaller one is left.
    bundle = here.created("GPUSHIM_MIG=1g.10gb")
    (lease,) = [lease for lease in here.leases() if lease.id == bundle.id]
    assert devices[lease.bookings[0].uuid][0] in "2345"
    text = here.refused("GPUSHIM_MIG=7g.80gb")
    assert "MIG device of profile 7g.80gb was asked for by environment GPUSHIM_MIG=7g.80gb" in text


def test_drained_and_kept_out(make_here: Callable[..., Here]) -> None:
    here = make_here("[allocate]\nkeep-out = [0]\n".replace("[0]", '["0"]'))
    assert ctl(here.machine, "drain", "1").returncode == 0
    bundle = here.created("GPUSHIM_GPUS=6")
    assert here.gpus_of(bundle) == list(range(2, 8))
    text = here.refused(ONE)
    assert "0 is kept out by the configuration (allocate.keep-out)" in text
    assert "1 is drained" in text
    assert ctl(here.machine, "undrain", "1").returncode == 0
    assert here.gpus_of(here.created(ONE)) == [1]


def test_as_many_as_one_may_have(make_here: Callable[..., Here]) -> None:
    here = make_here("[allocate]\nmax-gpus = 2\n")
    text = here.refused("GPUSHIM_GPUS=3")
    assert (
        "3 GPUs were asked for by environment GPUSHIM_GPUS=3, but a container may have 2 here "
        "(allocate.max-gpus)."
    ) in text
    here.created("GPUSHIM_GPUS=2")
    assert len(here.run(f"{VISIBLE}=all").gpus) == 6


def test_counts_that_spread(make_here: Callable[..., Here]) -> None:
    here = make_here('[allocate]\ncounts = "spread"\n')
    bundles = [here.created(ONE) for _ in range(9)]
    indices = [index for bundle in bundles for index in here.gpus_of(bundle)]
    assert set(indices) == set(range(8))
    assert {mode for bundle in bundles for mode in here.modes_of(bundle)} == {"shared"}
