"""CDI devices in every place that can name them, and devices that an engine put into a spec."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Bundle, Runtime, workspace
from tests.harness.asking import VISIBLE, Ask
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, mount_points, outcomes

pytestmark = pytest.mark.e2e

RuntimeOf = Callable[[Machine], Runtime]
MakeBundle = Callable[..., Bundle]

NIC = "vendor.com/nic=0"
LISTS = "/var/run/nvidia-container-devices"


def specs_in(path: Path) -> str:
    """Spec files of two vendors in a directory, one of them broken; the configuration for them."""
    path.mkdir()
    nic = {
        "env": ["NIC=0"],
        "deviceNodes": [{"path": "/dev/nic0", "type": "c", "major": 1, "minor": 5}],
        "additionalGids": [4242],
    }
    write(path / "nic.json", "vendor.com/nic", {"0": nic, "1": {"env": ["NIC=1", "MORE=1"]}})
    write(path / "gpu.json", "nvidia.com/gpu", {"special": {"env": ["SPECIAL=1"]}})
    (path / "broken.json").write_text('{"cdiVersion": "1.1.0",\n "kind": "broken.com/nic",}')
    return f'[cdi]\nspec-dirs = ["{path}"]\n'


def write(path: Path, kind: str, devices: dict[str, Any]) -> None:
    entries = [{"name": name, "containerEdits": edits} for name, edits in devices.items()]
    path.write_text(json.dumps({"cdiVersion": "1.1.0", "kind": kind, "devices": entries}))


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Machine, str]]:
    """A DGX A100 with spec files of other vendors, and the configuration that names them."""
    path = workspace.make("kinds", Path("/var/tmp"))
    configuration = specs_in(path / "cdi")
    yield Machine(path, None, configuration), configuration
    workspace.remove(path)


@pytest.fixture
def configure(
    shared: tuple[Machine, str], runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> Callable[..., Ask]:
    """Asks there with more lines of the configuration; the first of them may be of [cdi]."""
    machine, configuration = shared

    def set_and_ask(text: str = "") -> Ask:
        machine.configure(configuration + text)
        return Ask(machine, runtime_of(machine), make_bundle)

    return set_and_ask


@pytest.fixture
def ask(configure: Callable[..., Ask]) -> Ask:
    return configure()


def look(ask: Ask) -> list[str]:
    """What `Outcome` needs, and whether the vendor's device and group are there."""
    return ask.look(["open", "/dev/nic0"], ["ids"], ["mounts"])


# What is asked -> the GPUs, None without the driver; and which of the vendor's devices.
PLACES = [
    ([f"{VISIBLE}={NIC}"], {}, None, "0"),
    ([f"{VISIBLE}={NIC},{NIC}, vendor.com/nic=1"], {}, None, "1"),
    ([f"{VISIBLE}=vendor.com/nic=1,{NIC}"], {}, None, "0"),
    ([f"{VISIBLE}=2,{NIC}"], {}, [2], "0"),
    ([f"{VISIBLE}={NIC},nvidia.com/gpu=1,3"], {}, [1, 3], "0"),
    ([f"{VISIBLE}=runtime.nvidia.com/gpu=4,{NIC}"], {}, [4], "0"),
    ([f"GPUSHIM_GPUS={NIC},5", f"{VISIBLE}=0"], {}, [5], "0"),
    ([], {"gpushim.gpus": f"device=6,{NIC}"}, [6], "0"),
    ([], {"cdi.k8s.io/a": NIC}, None, "0"),
    ([f"{VISIBLE}=void"], {"cdi.k8s.io/a": NIC}, None, "0"),
    # Keys in their order, of the same variable the last counts.
    ([], {"cdi.k8s.io/b": "vendor.com/nic=1", "cdi.k8s.io/a": f"{NIC}, {NIC}"}, None, "1"),
    # An annotation that names GPUs outranks the environment, one that does not adds to it.
    ([f"{VISIBLE}=all"], {"cdi.k8s.io/a": f"nvidia.com/gpu=7,{NIC}"}, [7], "0"),
    ([f"{VISIBLE}=1"], {"cdi.k8s.io/a": NIC}, [1], "0"),
    ([], {"gpushim.gpus": "2", "cdi.k8s.io/a": f"nvidia.com/gpu=7,{NIC}"}, [0, 1], "0"),
]


@pytest.mark.parametrize(("env", "annotations", "gpus", "nic"), PLACES)
def test_every_place_that_can_name_them(
    ask: Ask, env: list[str], annotations: dict[str, str], gpus: list[int] | None, nic: str
) -> None:
    seen = ask.run(*env, annotations=annotations, args=look(ask))
    assert seen.gpus == (gpus or [])
    assert seen.env["NIC"] == nic
    named = " ".join([*env, *annotations.values()])
    assert outcomes(seen.text)["/dev/nic0"] == ("OK" if NIC in named else "ENOENT")
    assert ("4242" in seen.text) == (NIC in named)
    # Without a GPU there is nothing of the driver, and the variable is nobody's business.
    assert ("/usr/local/nvidia" in mount_points(seen.text)) == (gpus is not None)
    if gpus is None:
        assert seen.visible == next((e.partition("=")[2] for e in env), None)
        assert seen.spec_nodes == ({"nic0"} if NIC in named else set())
    else:
        assert seen.visible == ask.machine.uuids(*gpus)


def test_lists_of_devices_as_mounts(configure: Callable[..., Ask]) -> None:
    ask = configure("[request]\naccept-nvidia-visible-devices-as-volume-mounts = true\n")
    mounts = [
        {"destination": f"{LISTS}/{name}", "type": "bind", "source": "/dev/null",
         "options": ["bind"]}
        for name in ("cdi/vendor.com/nic/0", "cdi/nonsense", "2")
    ]  # fmt: skip
    seen = ask.run(f"{VISIBLE}=all", mounts=mounts)
    assert (seen.gpus, seen.env["NIC"]) == ([2], "0")


def test_a_device_of_nvidias_kind_that_a_spec_file_describes(ask: Ask) -> None:
    """Only what means a GPU by itself is one; other names of the kind are a spec file's."""
    seen = ask.run(f"{VISIBLE}=nvidia.com/gpu=special,nvidia.com/gpu=2")
    assert (seen.gpus, seen.env["SPECIAL"]) == ([2], "1")
    text = ask.refused(f"{VISIBLE}=nvidia.com/gpu=other")
    assert "CDI device nvidia.com/gpu=other cannot be given" in text


def test_another_kind_and_other_annotations(configure: Callable[..., Ask]) -> None:
    ask = configure('default-kind = "acme.com/gpu"\nannotation-prefixes = ["acme.com/"]\n')
    assert ask.run(f"{VISIBLE}=acme.com/gpu=3").gpus == [3]
    assert ask.run(annotations={"acme.com/x": f"acme.com/gpu=1,{NIC}"}).gpus == [1]
    ask.left(annotations={"cdi.k8s.io/a": NIC})
    text = ask.refused(f"{VISIBLE}=nvidia.com/gpu=3")
    assert "nvidia.com/gpu=3 cannot be given" in text


@pytest.mark.parametrize(
    ("env", "annotations", "sentences"),
    [
        ([], {"cdi.k8s.io/a": "nonsense"}, ["annotation 'cdi.k8s.io/a'", "'nonsense'", "no '='"]),
        ([], {"cdi.k8s.io/a": "0"}, ["annotation 'cdi.k8s.io/a' asks for '0'"]),
        ([f"{VISIBLE}=vendor.com/nic=9"], {}, ["vendor.com/nic=9", "There are: vendor.com/nic=0"]),
        ([f"{VISIBLE}=0,vendor.com/nic=9"], {}, ["vendor.com/nic=9 cannot be given"]),
        ([f"{VISIBLE}=8,{NIC}"], {}, ["no GPU '8' here"]),
        ([f"{VISIBLE}=broken.com/nic=0"], {}, ["broken.com/nic=0", "broken.json, line 2"]),
    ],
)
def test_what_cannot_be_given(
    ask: Ask, env: list[str], annotations: dict[str, str], sentences: list[str]
) -> None:
    """All or nothing; explain still has what was asked for where that could be read."""
    text = ask.refused(*env, annotations=annotations)
    assert not [sentence for sentence in sentences if sentence not in text], text
    explained = ask.explain()
    assert "Refused: " in explained
    if env:
        assert f"(from environment {env[0]})" in explained


def test_explain_and_later_processes(ask: Ask) -> None:
    """exec has the variables of CDI devices, too, beside those of the grant."""
    alone = ask.running(annotations={"cdi.k8s.io/a": NIC})
    both = ask.running(f"{VISIBLE}=1", annotations={"cdi.k8s.io/a": "vendor.com/nic=1"})
    assert ask.exec(alone, "A=b").items() >= {"A": "b", "NIC": "0"}.items()
    later = ask.exec(both, "A=b", "NIC=mine", f"{VISIBLE}=1")
    assert (later["NIC"], later["MORE"]) == ("1", "1")
    assert later[VISIBLE] == ask.machine.uuids(1)
    explained = ask.explain(alone.id)
    assert f"Asked for: no GPU (from annotation cdi.k8s.io/a={NIC})" in explained
    assert f"CDI devices: {NIC} (from annotation cdi.k8s.io/a={NIC})" in explained
    assert "Granted" not in explained
    assert "device /dev/nic0 (1:5, rwm)" in explained and "extra group 4242" in explained
    explained = ask.explain(both.id)
    assert "CDI devices: vendor.com/nic=1" in explained and "Granted: 1 GPU" in explained


def test_a_machine_without_a_driver(
    make_machine: Callable[..., Machine],
    runtime_of: RuntimeOf,
    make_bundle: MakeBundle,
    tmp_path: Path,
) -> None:
    """Other vendors' devices need no driver of NVIDIA's, and no look for one."""
    machine = make_machine(None, specs_in(tmp_path / "cdi"))
    machine.host.unload_driver(refuse=True)
    config = Path(machine.places.config)
    config.write_text(config.read_text().replace('"10s"', '"200ms"'))
    ask = Ask(machine, runtime_of(machine), make_bundle)
    for env, said in (
        ([f"{VISIBLE}={NIC}"], {}),
        ([], {"cdi.k8s.io/a": NIC}),
        ([f"{VISIBLE}=0", "GPUSHIM_OPTIONAL=true"], {"cdi.k8s.io/a": NIC}),
    ):
        before = len(machine.log_lines())
        seen = ask.run(*env, annotations=said)
        assert seen.nodes == {}
        assert seen.env["NIC"] == "0"
        if said and not env:  # the configuration is known by then
            assert len(machine.log_lines()) == before + 1
    assert seen.visible == "void"
    text = ask.refused(f"{VISIBLE}=0,{NIC}")
    assert "The NVIDIA driver is not loaded" in text


# Devices that the engine has put into the spec.


def gpu_nodes(machine: Machine, *indices: int) -> list[dict[str, Any]]:
    """Entries of linux.devices for GPUs and what goes with any."""
    names = [machine.node(index) for index in indices] + [*CONTROL, "nvidia-modeset"]
    nodes = []
    for name in names:
        major, minor = machine.number(name)
        nodes.append(
            {"path": f"/dev/{name}", "type": "c", "major": major, "minor": minor,
             "fileMode": 0o666, "uid": 0, "gid": 0}
        )  # fmt: skip
    return nodes


def driver_mounts(machine: Machine) -> list[dict[str, Any]]:
    """A library and a program of the driver, where CDI specs of NVIDIA's mount them."""
    libraries = machine.host.library_directory
    files = [
        (next(libraries.glob("libcuda.so.*.*")), "/usr/lib/x86_64-linux-gnu"),
        (machine.host.root / "usr/bin/nvidia-smi", "/usr/bin"),
    ]
    options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    return [
        {"destination": f"{inside}/{file.name}", "type": "", "source": str(file),
         "options": options}
        for file, inside in files
    ]  # fmt: skip


def cdi_hooks(directory: Path) -> dict[str, Any]:
    """Hooks as in NVIDIA's CDI specs; the program leaves a file if it is run."""
    program = directory / "nvidia-cdi-hook"
    program.write_text(f"#!/bin/sh\ntouch {directory}/ran\n")
    program.chmod(0o755)
    words = ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"]
    return {"createContainer": [{"path": str(program), "args": words}]}


def record(bundle: Bundle, requests: list[dict[str, Any]], labels: dict[str, str]) -> None:
    """Docker's own record of a container beside its bundle, and a file that is mounted from it."""
    directory = bundle.path / "containers" / bundle.id
    directory.mkdir(parents=True)
    texts = {
        "config.v2.json": {"ID": bundle.id, "Name": "/box", "Config": {"Labels": labels}},
        "hostconfig.json": {"DeviceRequests": requests},
        "hostname": {},
    }
    for name, content in texts.items():
        (directory / name).write_text(json.dumps(content))
    bundle.config["mounts"].append(
        {"destination": "/etc/hostname", "type": "bind", "source": str(directory / "hostname"),
         "options": ["rbind", "rprivate"]}
    )  # fmt: skip
    bundle.write()


def request(count: int = 0, ids: list[str] | None = None) -> dict[str, Any]:
    return {"Driver": "", "Count": count, "DeviceIDs": ids, "Capabilities": [["gpu"]],
            "Options": {}}  # fmt: skip


@pytest.fixture
def injected(dgx: Machine, runtime_of: RuntimeOf, make_bundle: MakeBundle) -> Ask:
    return Ask(dgx, runtime_of(dgx), make_bundle)


@pytest.mark.parametrize(
    ("requests", "labels", "expected"),
    [
        ([request(count=1)], {}, [0]),
        ([request(ids=["0"])], {}, [0]),
        ([request(count=1)], {"gpushim.gpus": "device=3"}, [0]),
        ([request(ids=["nvidia.com/gpu=0"])], {}, [0]),
        ([{**request(ids=["nvidia.com/gpu=0"]), "Driver": "cdi"}], {}, [0]),
        ([request(ids=["3"])], {}, [3]),
        ([], {"gpushim.gpus": "device=3,4"}, [3, 4]),
    ],
)
def test_docker_29_with_its_record(
    injected: Ask,
    tmp_path: Path,
    requests: list[dict[str, Any]],
    labels: dict[str, str],
    expected: list[int],
) -> None:
    """B45: what is granted is usable, what was injected besides is not; no hook of theirs runs."""
    machine = injected.machine
    bundle = injected.bundle(
        f"{VISIBLE}=void",
        image="debian",
        nodes=gpu_nodes(machine, 0),
        mounts=driver_mounts(machine),
        hooks=cdi_hooks(tmp_path),
        args=injected.look(["dlopen", "libcuda.so.1"], ["mounts"]),
    )
    record(bundle, requests, labels)
    seen = injected.started(bundle)
    assert seen.gpus == expected
    assert seen.visible == machine.uuids(*expected)
    assert not (tmp_path / "ran").exists()
    paths = [node["path"] for node in seen.spec["linux"]["devices"]]
    assert len(paths) == len(set(paths))
    assert outcomes(seen.text)["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.1"
    points = mount_points(seen.text)
    assert "/usr/bin/nvidia-smi" in points
    assert not [point for point in points if point.startswith("/usr/lib/x86_64-linux-gnu/libcuda")]
    said = " ".join([*seen.granted.get("notes", []), seen.warnings])
    assert "2 mounts of driver files and the hooks of nvidia-cdi-hook were replaced" in said
    assert (f"Taken out of what the engine injected: /dev/{machine.node(0)}" in said) == (
        0 not in expected
    )


@pytest.mark.parametrize("hooks", [True, False], ids=["by CDI", "by --device"])
def test_devices_without_a_request_are_the_engines_grant(
    injected: Ask, tmp_path: Path, hooks: bool
) -> None:
    """B45: the spec stays byte for byte, explain says who gave them, exec adds nothing."""
    machine = injected.machine
    bundle = injected.bundle(
        *([f"{VISIBLE}=void"] if hooks else []),
        nodes=gpu_nodes(machine, 1, 5),
        hooks=cdi_hooks(tmp_path) if hooks else None,
        args=[*injected.look(), "--", "sleep", "300"],
    )
    text = bundle.config_path.read_bytes()
    result = injected.runtime.create(bundle).check()
    injected.runtime.start(bundle.id).check()
    assert (tmp_path / "ran").exists() == hooks
    later = injected.exec(bundle, "A=b")
    assert later["A"] == "b" and not [name for name in later if name.startswith(("NV", "CU"))]
    assert bundle.config_path.read_bytes() == text
    assert not list(bundle.path.glob("config.json?*"))
    explained = injected.explain(bundle.id)
    names = f"/dev/{machine.node(1)}, /dev/{machine.node(5)}"
    assert f"(from devices that the engine put into the spec: {names})" in explained
    assert "Granted by the engine: 2 GPUs" in explained
    assert "Changed: nothing" in explained
    injected.runtime.kill(bundle.id)
    injected.runtime.wait(bundle.id)
    found = outcomes(result.stdout)
    assert {index for index in range(8) if found[f"/dev/made{index}"] == "ENXIO"} == {1, 5}


def test_a_device_that_the_user_named_beside_a_request(injected: Ask) -> None:
    """It stays, as the user wants it, and explain has that it was not granted here."""
    machine = injected.machine
    (node,) = [one for one in gpu_nodes(machine, 1) if one["path"] == f"/dev/{machine.node(1)}"]
    seen = injected.run(f"{VISIBLE}=3", nodes=[node])
    assert seen.gpus == [1, 3]
    assert seen.visible == machine.uuids(3)
    assert f"The spec has /dev/{machine.node(1)} besides, which was not granted" in seen.warnings
