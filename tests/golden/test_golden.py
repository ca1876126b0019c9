"""Whole specs before and after, read by a person once and held since.

`before.json` are specs as Docker 20.10 and `runc spec` write them; `after.json` is what becomes
of each on the machine below. A difference is either a fault or a decision: then the new file is
read again from top to bottom, and replaced.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpushim.allocate.choose import Choice, choose
from gpushim.allocate.wish import wish_of
from gpushim.config_keys import configured
from gpushim.host.model import DriverTree, ExtraMount, Gpu, Inventory
from gpushim.inject.container import describe
from gpushim.inject.environment import container_environment
from gpushim.inject.gpus import device_edits, driver_edits, needed_nodes, params_hook
from gpushim.inject.injected import take_out
from gpushim.oci.apply import apply
from gpushim.oci.bundle import load
from gpushim.oci.edits import Edits
from gpushim.request.dockerrecord import DeviceRequest, DockerRecord
from gpushim.request.gather import gather
from gpushim.request.read import read_request

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
# What Docker's own record says, which a spec does not: in Docker 29.2 a count of one GPU is the CDI
# device nvidia.com/gpu=0, and it has put that one's nodes, files and hooks into the spec.
RECORDS = {"docker-29-cdi": [DeviceRequest("", 1, [], [["gpu"]], {})]}
SOCKETS = [("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket")]


def facts(name: str) -> tuple[int, int, int, int, int]:
    """A node's numbers; those of GPUs are for the group video alone."""
    minors = {"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}
    if name in minors:
        return (511 if "uvm" in name else 195, minors[name], 0o666, 0, 0)
    return (195, int(name.removeprefix("nvidia")), 0o660, 0, 44)


def changed(directory: Path, text: str, record: DockerRecord | None) -> str:
    (directory / "config.json").write_text(text)
    bundle = load(str(directory), "config.json")
    asked = gather(bundle)
    asked.record = record
    found = describe(bundle, asked.environment)
    found.root = "/bundle/rootfs"
    request, _ = read_request(asked, configured())
    assert request is not None
    choice = choose(wish_of(request), GPUS, [])
    assert isinstance(choice, Choice)
    grant = choice.grant(request.capabilities)
    edits = Edits()
    edits.bind_devices = found.user_namespace
    device_edits(edits, "/dev", {name: facts(name) for name in needed_nodes(grant)})
    if not found.privileged:
        take_out(
            edits,
            found,
            asked.nodes,
            asked.mounts,
            MACHINE.driver_version,
            "/var/lib/gpushim/driver",
        )
    driver_edits(edits, found, grant, MACHINE, TREE, SOCKETS)
    params_hook(edits, found, MACHINE, "/run/gpushim/params", True)
    edits.env, _ = container_environment(found.environment, grant.devices(), "", False)
    return apply(text, edits)


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_spec(case: str, tmp_path: Path) -> None:
    before = (HERE / case / "before.json").read_bytes().decode()
    record = DockerRecord("/d", "box", {}, RECORDS[case]) if case in RECORDS else None
    assert changed(tmp_path, before, record) == (HERE / case / "after.json").read_bytes().decode()


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
