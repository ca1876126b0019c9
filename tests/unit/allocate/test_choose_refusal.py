"""What is said to the person who typed the command, word by word."""

from __future__ import annotations

from typing import Any

import pytest
from gpushim.allocate.filter import KEPT_OUT, RealUse
from gpushim.allocate.grant import Held, Unavailable
from gpushim.allocate.lease import ALL, EXCLUSIVE, OPEN, SHARED, Lease
from gpushim.allocate.refusal import Refusal, age
from gpushim.allocate.wish import Wish
from gpushim.errors import harmless

from tests.unit.allocate.machines import GIB, Machine, machine, wish

NOW = 1_000_000.0
PS = "'gpushimctl ps' shows all leases; 'gpushimctl run' waits until it is your turn."


def held(box: Machine, id: str, names: str, seconds: int = 0, **more: Any) -> Lease:
    lease = box.lease(id, names, **more)
    lease.since = int(NOW) - seconds if seconds else 0
    return lease


def refused(box: Machine, wanted: Wish, leases: list[Lease], **more: Any) -> Refusal:
    found = box.choose(wanted, leases, **more)
    assert isinstance(found, Refusal)
    assert harmless(found.sentence(NOW)) == found.sentence(NOW)
    return found


def said(box: Machine, wanted: Wish, leases: list[Lease], **more: Any) -> str:
    return refused(box, wanted, leases, **more).sentence(NOW)


def test_who_holds_what() -> None:
    box = machine("a100_pcie4")
    leases = [held(box, "web", "0,1", 3 * 3600 + 5), held(box, "train", "3", 90)]
    found = refused(box, wish("2"), leases)
    assert found.sentence(NOW) == (
        "2 GPUs were asked for by label gpushim.gpus=2, and of the 4 GPUs here (NVIDIA A100 80GB "
        "PCIe) only 1 is free: 0, 1 are held by web (exclusive, 3 h); 2 is free; 3 is held by "
        "train (exclusive, 1 min)."
    )
    assert found.hint() == PS
    error = found.error(NOW)
    assert isinstance(error, Held)
    assert str(error) == f"{found.sentence(NOW)} {PS}"


def test_shares_and_what_is_left() -> None:
    box = machine("a100_pcie4")
    leases = [held(box, name, "0", mode=SHARED, memory=20 * GIB) for name in "abcd"]
    leases += [held(box, "web", "1,2", 60), held(box, "note", "3", mode=OPEN)]
    real = {box.uuid("3"): RealUse(70 * GIB, None, [(4711, "python3", 70 * GIB)])}
    assert said(box, wish("2", memory="20g"), leases, real=real) == (
        "2 GPUs with 20 GiB each were asked for by label gpushim.gpus=2 and label "
        "gpushim.memory=20g, and of the 4 GPUs here (NVIDIA A100 80GB PCIe) none has room: 0 is "
        "shared by a, b, c and 1 more, 0 MiB of 80 GiB left; 1, 2 are held by web (exclusive, "
        "1 min); 3 is used by note (by name) and process 4711 "
        "(python3, 70 GiB) without a lease, 10 GiB of 80 GiB left."
    )


def test_a_wish_that_is_too_large_for_the_machine() -> None:
    found = refused(machine("dgx_a100"), wish("10"), [])
    assert found.sentence(NOW) == (
        "10 GPUs were asked for by label gpushim.gpus=10, and there are only 8 GPUs here "
        "(NVIDIA A100-SXM4-80GB)."
    )
    assert isinstance(found.error(NOW), Unavailable)


def test_a_wish_that_no_gpu_here_fits() -> None:
    box = machine("mixed_lab")
    found = refused(box, wish("1", memory="60g", compute="50%"), [])
    assert found.sentence(NOW).startswith(
        "1 GPU with 60 GiB and 50% of the multiprocessors was asked for by label gpushim.gpus=1 "
        "and label gpushim.memory=60g and label gpushim.compute=50%, and of the 4 GPUs here none "
        "is such a one: 0 (NVIDIA GeForce RTX 3090) is too small (24 GiB); "
    )
    assert found.hint() == "The largest has 47.9 GiB to give."
    found = refused(box, wish("1", model="a6000"), [])
    assert "1 GPU of model a6000 was" in found.sentence(NOW)
    assert found.hint() == "Write '*a6000*' to allow for what is before and behind it."
    found = refused(box, wish("1", compute_capability=">=9.0"), [])
    assert "1 GPU of compute capability >=9.0 was" in found.sentence(NOW)
    assert "2 (Tesla T4) is of compute capability 7.5" in found.sentence(NOW)
    assert found.hint() == "'gpushimctl inventory' shows what there is."


def test_mig_devices() -> None:
    box = machine("mig_host")
    leases = [held(box, "a", ",".join(f"1:{part}" for part in range(7))), held(box, "b", "0:2,0:3")]
    text = said(box, wish("9", mig="1g.10gb", mode="exclusive"), leases)
    assert text.startswith("9 MIG devices of profile 1g.10gb to itself were asked for by ")
    assert (
        "of the 11 MIG devices here (NVIDIA A100-SXM4-80GB) only 2 are free: 0:0, 0:1 are" in text
    )
    assert "0:2, 0:3 are held by b (exclusive); 1:0 to 1:6 are held by a (exclusive)." in text
    found = refused(box, wish("2"), [])
    assert found.sentence(NOW).endswith("only 1 is such a one: 0, 1 are in MIG mode.")
    assert found.hint() == "Ask for MIG devices by their profile (the key mig) or by name."
    none = refused(machine("workstation"), wish("1", mig="1g.10gb"), [])
    assert "the only GPU here (NVIDIA GeForce RTX 4090) is no such one: 0 is not in MIG mode" in (
        none.sentence(NOW)
    )
    assert "nvidia-smi mig" in none.hint()


def test_one_gpu_alone() -> None:
    box = machine("workstation")
    assert said(box, wish("1"), [held(box, "game", "0", 2 * 86400)]).endswith(
        ", and the only GPU here (NVIDIA GeForce RTX 4090) is not free: 0 is held by game "
        "(exclusive, 2 d)."
    )
    assert "the only GPU here (NVIDIA GeForce RTX 4090) has no room: 0 is shared by x" in said(
        box, wish("1", compute="60%"), [held(box, "x", "0", mode=SHARED, compute=50)]
    )
    assert "50% of the multiprocessors left" in said(
        box, wish("1", compute="60%"), [held(box, "x", "0", mode=SHARED, compute=50)]
    )


def test_names() -> None:
    box = machine("a100_pcie4")
    found = refused(box, wish("0,1"), [held(box, "web", "1", 60), held(box, "all", "0", mode=ALL)])
    assert found.sentence(NOW) == (
        "GPUs were asked for by label gpushim.gpus=0,1, but of the devices here (NVIDIA A100 80GB "
        "PCIe) 1 is held by web (exclusive, 1 min)."
    )
    assert [lease.name for lease in found.leases] == ["web"]
    found = refused(box, wish("0,1", model="*H100*"), [])
    assert "0, 1 are of another model" in found.sentence(NOW)
    assert found.never


def test_why_a_device_is_not_given_besides() -> None:
    box = machine("consumer8")
    box.gpus[0].health = "lost from the bus"
    box.gpus[1].uuid = ""
    kept = {box.uuid("2"): "drained", box.uuid("3"): KEPT_OUT}
    real = {box.uuid("4"): RealUse(GIB), box.uuid("5"): RealUse(0, None, [(1, "", 0)] * 5)}
    text = said(box, wish("5"), [], kept_out=kept, real=real)
    for words in (
        "0 is not usable (lost from the bus)",
        "1 is not usable (its UUID is not known yet)",
        "2 is drained",
        "3 is kept out by the configuration (allocate.keep-out)",
        "4 is used by processes without a lease (1 GiB)",
        "5 is used by process 1, process 1, process 1, 2 more without a lease",
        "6, 7 are free",
    ):
        assert words in text


def test_a_container_without_a_name_is_told_by_its_id() -> None:
    box = machine("workstation")
    lease = box.lease("0123456789abcdef", "0")
    lease.name = ""
    assert "held by 0123456789ab (exclusive)" in said(box, wish("1"), [lease])


def test_a_large_machine_has_a_short_sentence() -> None:
    box = machine("dgx_a100")
    fakes = [box.gpus[index % 8] for index in range(16)]
    for index, gpu in enumerate(fakes[8:]):
        fakes[8 + index] = type(gpu)(8 + index, f"GPU-{index}", 0, "", gpu.model, memory=gpu.memory)
    box = Machine(fakes, [])
    leases = [held(box, f"job-{index}", str(index), 60) for index in range(16)]
    text = said(box, wish("1"), leases)
    assert text.count("held by") == 8
    assert text.endswith("; and 8 more.")
    assert len(text) < 600


def test_a_machine_without_gpus() -> None:
    found = refused(Machine([], []), wish("1"), [])
    assert found.sentence(NOW).endswith(", and this machine has no GPU that its driver knows of.")
    assert found.hint().endswith(".")


def test_where_a_key_alone_asks_its_place_is_told_once() -> None:
    wanted = wish("9", memory="20g")
    wanted.request.sources["devices"] = "label gpushim.memory=20g, which asks for one GPU"
    text = said(machine("workstation"), wanted, [])
    assert "asked for by label gpushim.memory=20g, which asks for one GPU, and there" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (7300, "2 h"), (200000, "2 d")],
)
def test_ages(seconds: float, words: str) -> None:
    assert age(seconds) == words


def test_modes_of_the_same_device_are_told_together() -> None:
    box = machine("workstation")
    leases = [held(box, "a", "0", mode=SHARED), held(box, "b", "0", mode=OPEN)]
    assert "0 is shared by a and used by b (by name)." in said(box, wish("1"), leases)
    assert EXCLUSIVE not in said(box, wish("1"), leases)
