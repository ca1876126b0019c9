"""Whole specs before and after, read by a person once and held since.

`before.json` are specs as Docker 20.10 and `runc spec` write them; `after.json` is what becomes
of each on the machine below. A difference is either a fault or a decision: then the new file is
read again from top to bottom, and replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpushim.allocate.grant import grant_named
from gpushim.host.model import DriverTree, ExtraMount, Gpu, Inventory
from gpushim.inject.container import Container
from gpushim.inject.environment import container_environment
from gpushim.inject.gpus import device_edits, driver_edits, needed_nodes, params_hook
from gpushim.oci.apply import apply
from gpushim.oci.edits import Edits
from gpushim.request.nvidia import CAPABILITIES, read_request

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/before.json"))

# Two of four: indices are by bus id, minors are not.
GPUS = [
    Gpu(0, "GPU-00000000-0000-0000-0000-0000000000aa", 1, "0000:07:00.0", "NVIDIA A100"),
    Gpu(1, "GPU-11111111-0000-0000-0000-0000000000bb", 0, "0000:0b:00.0", "NVIDIA A100"),
]
TREE = DriverTree("/var/lib/gpushim/driver/550.1/x", ["libcuda.so.1", "libnvidia-ml.so.1"], [])
MACHINE = Inventory(
    "550.1",
    GPUS,
    {},
    [ExtraMount("/usr/share/vulkan/icd.d/n.json", "/etc/vulkan/icd.d/n.json", ["graphics"])],
    [],
    True,
    "/usr/bin/mount",
)
SOCKETS = [("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket")]


def facts(name: str) -> tuple[int, int, int, int, int]:
    """A node's numbers; those of GPUs are for the group video alone."""
    minors = {"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}
    if name in minors:
        return (511 if "uvm" in name else 195, minors[name], 0o666, 0, 0)
    return (195, int(name.removeprefix("nvidia")), 0o660, 0, 44)


def container(spec: dict[str, Any]) -> Container:
    """As gpushim.inject.container reads it, for the shapes that are here."""
    namespaces = [n["type"] for n in spec["linux"]["namespaces"]]
    mounts = {m["destination"]: m.get("type", "bind") for m in spec["mounts"]}
    user_namespace = "user" in namespaces
    hooks = [
        hook["path"].rpartition("/")[2]
        for stage in spec.get("hooks", {}).values()
        for hook in stage
    ]
    environment = spec["process"]["env"]
    return Container("/bundle/rootfs", False, environment, mounts, user_namespace, False, hooks)


def changed(text: str) -> str:
    found = container(json.loads(text))
    request = read_request(found.environment, CAPABILITIES)
    assert request is not None
    grant = grant_named(request, GPUS, {})
    edits = Edits()
    edits.bind_devices = found.user_namespace
    device_edits(edits, "/dev", {name: facts(name) for name in needed_nodes(grant)})
    driver_edits(edits, found, grant, MACHINE, TREE, SOCKETS)
    params_hook(edits, found, MACHINE, "/run/gpushim/params", True)
    gpus = grant.devices()
    edits.env, _ = container_environment(found.environment, gpus, "", False)
    return apply(text, edits)


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_spec(case: str) -> None:
    before = (HERE / case / "before.json").read_bytes().decode()
    assert changed(before) == (HERE / case / "after.json").read_bytes().decode()


@pytest.mark.parametrize("case", CASES)
def test_nothing_else_is_touched(case: str) -> None:
    """The members that gpushim has no business with are the same, in the same order."""
    before = json.loads((HERE / case / "before.json").read_text())
    after = json.loads((HERE / case / "after.json").read_text())
    for name in ("ociVersion", "root", "hostname", "annotations"):
        assert after.get(name) == before.get(name)
    for name in before["linux"].keys() - {"devices", "resources"}:
        assert after["linux"][name] == before["linux"][name]
    for name in before["process"].keys() - {"env", "user"}:
        assert after["process"][name] == before["process"][name]
    assert list(after)[: len(before)] == list(before)
