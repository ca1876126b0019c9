"""MIG devices in containers: which nodes they have, what they see, and what a new layout does."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim import execute, records

from tests.fakehost import Description, preset
from tests.fakehost.mig import MigDevice
from tests.harness import Bundle, Runtime, workspace
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, outcomes, probe, variables

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
MakeMachine = Callable[..., Machine]
RuntimeOf = Callable[[Machine], Runtime]


def description(**changes: Any) -> Description:
    return preset("mig_host", modify_device_files=0, minors="reversed", **changes)


@pytest.fixture(scope="module")
def cut() -> Iterator[Machine]:
    """Two A100 that are cut into four and seven devices, and a whole one: nobody changes them."""
    path = workspace.make("cut", Path("/var/tmp"))
    yield Machine(path, description())
    workspace.remove(path)


@pytest.fixture
def gpushim(cut: Machine, runtime_of: RuntimeOf) -> Runtime:
    return runtime_of(cut)


@pytest.fixture
def make_cut(make_machine: MakeMachine) -> Callable[..., Machine]:
    """Machines like it of the test's own."""
    return lambda configuration="", **changes: make_machine(description(**changes), configuration)


def device(machine: Machine, name: str) -> MigDevice:
    gpu, _, index = name.partition(":")
    return machine.host.gpus[int(gpu)].mig[int(index)]


def nodes_of(machine: Machine, *names: str) -> list[str]:
    """The nodes of devices ("0:1") and whole GPUs ("2"), with those that every container has."""
    found = set(CONTROL)
    for name in names:
        found.add(machine.node(int(name[0])))
        if ":" in name:
            one = device(machine, name)
            found |= {f"nvidia-caps/nvidia-cap{minor}" for minor in (one.gi_minor, one.ci_minor)}
    return sorted(found)


def spec_nodes(bundle: Bundle) -> list[str]:
    """The NVIDIA nodes that a spec has, each with a rule of its numbers and no other rule."""
    linux = bundle.read()["linux"]
    given = [node for node in linux["devices"] if node["path"].startswith("/dev/nvidia")]
    rules = [(r["major"], r["minor"]) for r in linux["resources"]["devices"] if r["allow"]]
    assert sorted(rules) == sorted((node["major"], node["minor"]) for node in given)
    return sorted(node["path"].removeprefix("/dev/") for node in given)


def visible(bundle: Bundle) -> list[str]:
    """The UUIDs in the vendor's variable."""
    entries: list[str] = bundle.read()["process"]["env"]
    return dict(entry.split("=", 1) for entry in entries)["NVIDIA_VISIBLE_DEVICES"].split(",")


def uuids(machine: Machine, *names: str) -> list[str]:
    return [
        device(machine, name).uuid if ":" in name else machine.host.gpus[int(name)].uuid
        for name in names
    ]


def warnings(machine: Machine) -> str:
    return " ".join(machine.log_lines()[-1].get("warnings", []))


FORMS = [
    ("0:1", ["0:1"]),
    ("{u}", ["0:1"]),
    ("{u:.12}", ["0:1"]),
    ("MIG-{gpu}/{gi}/{ci}", ["0:1"]),
    ("0:1,{u},MIG-{gpu}/{gi}/{ci}", ["0:1"]),
    ("2,1:3,0:0", ["0:0", "1:3", "2"]),
    ("all", [*(f"0:{n}" for n in range(4)), *(f"1:{n}" for n in range(7)), "2"]),
]


@pytest.mark.parametrize(("value", "names"), FORMS, ids=[form for form, _ in FORMS])
def test_forms_of_a_name(
    cut: Machine, gpushim: Runtime, make_bundle: MakeBundle, value: str, names: list[str]
) -> None:
    """B37: the parent's node and those of the two instances, each with its rule, and no others."""
    one = device(cut, "0:1")
    value = value.format(u=one.uuid, gpu=cut.host.gpus[0].uuid, gi=one.gi, ci=one.ci)
    every = sorted(p.name for p in (cut.host.dev_root / "nvidia-caps").iterdir())
    paths = [f"/dev/nvidia{n}" for n in range(3)] + [f"/dev/nvidia-caps/{name}" for name in every]
    bundle = make_bundle(
        "debian",
        probe(["open", *(f"/dev/{name}" for name in CONTROL), *paths]),
        env=[f"NVIDIA_VISIBLE_DEVICES={value}"],
    )
    seen = outcomes(gpushim.run(bundle).check().stdout)
    there = sorted(path.removeprefix("/dev/") for path in seen if seen[path] != "ENOENT")
    assert there == spec_nodes(bundle) == nodes_of(cut, *names)
    assert {seen[f"/dev/{name}"] for name in there} == {"ENXIO"}
    assert visible(bundle) == uuids(cut, *names)
    assert cut.log_lines()[-1].get("warnings", []) == []


def test_what_nvidia_smi_lists(cut: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """The driver's own library finds the granted devices, and only these."""
    bundle = make_bundle("debian", ["nvidia-smi", "-L"], env=["NVIDIA_VISIBLE_DEVICES=0:3,1:0,1:6"])
    text = gpushim.run(bundle).check().stdout
    assert re.findall(r"UUID: (MIG-[0-9a-f-]+)", text) == uuids(cut, "0:3", "1:0", "1:6")
    assert [line[:6] for line in text.splitlines() if line.startswith("GPU")] == [
        "GPU 0:",
        "GPU 1:",
    ]


def test_another_ones_node_is_forbidden(
    cut: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    other = device(cut, "1:5")
    bundle = make_bundle(
        "busybox",
        probe(
            ["mknod", "/tmp/other", "508", str(other.ci_minor)],
            ["open", "/tmp/other"],
            ["mknod", "/tmp/config", "508", "1"],
            ["open", "/tmp/config"],
        ),
        env=["NVIDIA_VISIBLE_DEVICES=1:4"],
    )
    seen = outcomes(gpushim.run(bundle).check().stdout)
    assert (seen["/tmp/other"], seen["/tmp/config"]) == ("EPERM", "EPERM")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0:9", ["there is no MIG device '0:9' here", "0:0 3g.40gb", "0:2 to 0:3 1g.10gb"]),
        ("2:0", ["there is no MIG device '2:0' here"]),
        ("MIG-00000000-dead", ["no MIG device 'MIG-00000000-dead'", "1:0 to 1:6 1g.10gb"]),
        ("0,MIG-", ["no MIG device 'MIG-'"]),
    ],
)
def test_what_is_not_there(
    gpushim: Runtime, make_bundle: MakeBundle, value: str, words: list[str]
) -> None:
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=[f"NVIDIA_VISIBLE_DEVICES={value}"])
    before = bundle.config_path.read_bytes()
    result = gpushim.run(bundle)
    assert result.status == 1
    for word in words:
        assert word in result.stderr
    assert bundle.config_path.read_bytes() == before


def test_a_gpu_in_mig_mode_by_its_index(
    cut: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """Its node, as with the vendor's runtime, and a warning that CUDA finds nothing on it."""
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=1"])
    gpushim.run(bundle).check()
    assert spec_nodes(bundle) == nodes_of(cut, "1")
    assert "ask for its MIG devices (1:0 to 1:6 1g.10gb)" in warnings(cut)


@pytest.mark.parametrize(
    ("own", "inside"),
    [("0:1", "{0}"), ("1:0,0:1", "{1},{0}"), ("{0}", "{0}"), ("0", "0"), ("", "")],
)
def test_cuda_visible_devices(
    cut: Machine, gpushim: Runtime, make_bundle: MakeBundle, own: str, inside: str
) -> None:
    """B41: names of the host are translated."""
    found = uuids(cut, "0:1", "1:0")
    bundle = make_bundle(
        "busybox",
        probe(["env"]),
        env=["NVIDIA_VISIBLE_DEVICES=0:1,1:0", f"CUDA_VISIBLE_DEVICES={own.format(*found)}"],
    )
    seen = variables(gpushim.run(bundle).check().stdout)
    assert seen["CUDA_VISIBLE_DEVICES"] == inside.format(*found)


def test_a_later_process_sees_the_same(
    cut: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle("busybox", probe(["sleep", "60"]), env=["NVIDIA_VISIBLE_DEVICES=2,0:2"])
    gpushim.create(bundle).check()
    (record,) = [r for r in records.every(cut.places.containers) if r.data["id"] == bundle.id]
    text = execute.add_variables('{"env": ["CUDA_VISIBLE_DEVICES=0:2"]}', record)
    seen = dict(entry.split("=", 1) for entry in json.loads(text)["env"])
    assert seen["NVIDIA_VISIBLE_DEVICES"].split(",") == visible(bundle) == uuids(cut, "0:2", "2")
    assert seen["CUDA_VISIBLE_DEVICES"] == device(cut, "0:2").uuid


def test_a_layout_that_changed_between_two_creates(
    make_cut: Callable[..., Machine], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """B51: what is new is found, what is gone is named and never becomes the whole GPU."""
    machine = make_cut()
    runtime = runtime_of(machine)
    gone = device(machine, "0:0").uuid
    first = make_bundle("busybox", probe(["exit", "0"]), env=[f"NVIDIA_VISIBLE_DEVICES={gone}"])
    runtime.run(first).check()

    machine.host.set_mig_layout(0, ["1g.10gb", "1g.10gb"])
    result = runtime.run(first)
    assert result.status == 1
    assert f"no MIG device '{gone}' here" in result.stderr
    assert "0:0 to 0:1 1g.10gb" in result.stderr
    new = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=0:1"])
    runtime.run(new).check()
    assert spec_nodes(new) == nodes_of(machine, "0:1")
    assert visible(new) == uuids(machine, "0:1")

    machine.host.set_mig_layout(0, [])
    result = runtime.run(new)
    assert result.status == 1
    assert "there is no MIG device '0:1' here" in result.stderr
    every = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=all"])
    runtime.run(every).check()
    assert visible(every) == uuids(machine, *(f"1:{n}" for n in range(7)), "2")
    assert "GPU 0" in warnings(machine)
    assert "has no MIG devices, so 'all' leaves it out" in warnings(machine)

    machine.host.set_mig_layout(0, ["3g.40gb"])
    runtime.run(every).check()
    assert visible(every)[0] == device(machine, "0:0").uuid


def test_nodes_that_are_missing_or_of_a_former_load(
    make_cut: Callable[..., Machine], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    """B56: they are made, with the major number that the kernel gives now."""
    machine = make_cut()
    runtime = runtime_of(machine)
    one = device(machine, "0:1")
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=0:1"])
    runtime.run(bundle).check()
    machine.host.remove_node(f"nvidia-caps/nvidia-cap{one.ci_minor}")
    runtime.run(bundle).check()
    assert spec_nodes(bundle) == nodes_of(machine, "0:1")

    path = machine.host.dev_root / f"nvidia-caps/nvidia-cap{one.gi_minor}"
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o444, os.makedev(499, one.gi_minor))
    runtime.run(bundle).check()
    assert machine.number(f"nvidia-caps/nvidia-cap{one.gi_minor}") == (508, one.gi_minor)
    rules = bundle.read()["linux"]["resources"]["devices"]
    assert (508, one.gi_minor) in [(rule.get("major"), rule.get("minor")) for rule in rules]


def test_nodes_that_can_not_be_made(
    make_cut: Callable[..., Machine], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    machine = make_cut()
    machine.host.set_mig_layout(0, None)
    machine.host.set_mig_layout(1, ["1g.10gb"])
    one = device(machine, "1:0")
    name = f"nvidia-caps/nvidia-cap{one.gi_minor}"
    runtime = runtime_of(machine)
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=1:0"])
    machine.host.remove_node(name)
    (machine.host.dev_root / name).mkdir()
    result = runtime.run(bundle)
    assert result.status == 1
    assert f"{name} is missing" in result.stderr
    # Whoever wants the others is not concerned.
    whole = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=2"])
    runtime.run(whole).check()


@pytest.mark.parametrize(
    ("variable", "minor"), [("NVIDIA_MIG_CONFIG_DEVICES", 1), ("NVIDIA_MIG_MONITOR_DEVICES", 2)]
)
def test_the_right_to_partition(
    cut: Machine, gpushim: Runtime, make_bundle: MakeBundle, variable: str, minor: int
) -> None:
    bundle = make_bundle(
        "busybox",
        probe(["open", f"/dev/nvidia-caps/nvidia-cap{minor}"]),
        env=["NVIDIA_VISIBLE_DEVICES=2", f"{variable}=all"],
    )
    result = gpushim.run(bundle)
    assert result.status == 1
    assert f"{variable}=all" in result.stderr
    assert "CAP_SYS_ADMIN" in result.stderr
    for kind in ("bounding", "effective", "permitted"):
        bundle.config["process"]["capabilities"].setdefault(kind, []).append("CAP_SYS_ADMIN")
    bundle.write()
    seen = outcomes(gpushim.run(bundle).check().stdout)
    assert seen == {f"/dev/nvidia-caps/nvidia-cap{minor}": "ENXIO"}
    wanted = sorted([*nodes_of(cut, "2"), f"nvidia-caps/nvidia-cap{minor}"])
    assert spec_nodes(bundle) == wanted


def test_restore_of_a_container_with_a_mig_device(
    make_cut: Callable[..., Machine],
    runtime_of: RuntimeOf,
    make_bundle: MakeBundle,
    tmp_path: Path,
) -> None:
    """B29: the same device under the same numbers, or not at all."""
    program = tmp_path / "runc"
    program.write_text("#!/bin/sh\ncase $1 in --version) echo 'runc version 1.1.5'; exit;; esac\n")
    program.chmod(0o755)
    machine = make_cut(f'[runtime]\nlow-level-runtimes = ["{program}"]\n')
    runtime = runtime_of(machine)
    bundle = make_bundle("busybox", probe(["exit", "0"]), env=["NVIDIA_VISIBLE_DEVICES=0:1"])
    runtime.create(bundle, id="c1").check()
    runtime.call("restore", "--bundle", bundle.path, "c1").check()
    uuid = device(machine, "0:1").uuid
    machine.host.set_mig_layout(0, ["3g.40gb"])
    result = runtime.call("restore", "--bundle", bundle.path, "c1")
    assert result.status == 1
    assert f"MIG device {uuid}" in result.stderr
    assert "is not here" in result.stderr


def test_the_inventory_shows_them(cut: Machine) -> None:
    """In one line each, or two where the terminal is narrow."""
    text = " ".join(cut.installed.ctl("inventory").split())
    one = device(cut, "0:1")
    assert f"0:1 {one.uuid} 2g.20gb {one.gi}/{one.ci}" in text
    assert f"nvidia-cap{one.gi_minor}, nvidia-cap{one.ci_minor} 19" in text
    assert text.count(" MIG-") == 11
