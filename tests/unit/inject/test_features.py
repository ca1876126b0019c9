"""Devices beside the GPUs: what each feature has, what is warned about, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from gpushim.config import Config
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from gpushim.host.model import Inventory
from gpushim.inject.container import Container
from gpushim.inject.features import feature_edits
from gpushim.oci.edits import Edits
from gpushim.request.request import Request

from tests.fakehost import Description, FakeHost, build, preset

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")

VARIABLES = {
    "gds": "NVIDIA_GDS",
    "mofed": "NVIDIA_MOFED",
    "gdrcopy": "NVIDIA_GDRCOPY",
    "nvswitch": "NVIDIA_NVSWITCH",
}


class Machine:
    def __init__(self, path: Path, description: Description) -> None:
        self.host: FakeHost = build(path / "host", description)
        self.values: dict[str, bool | str | list[str]] = {
            "host.driver-root": str(self.host.root),
            "host.dev-root": str(self.host.dev_root),
            "host.proc-root": str(self.host.proc_root),
            "host.helpers": [],
        }
        self.edits = Edits()

    @property
    def config(self) -> Config:
        return configured(self.values)

    def add(
        self, mounts: dict[str, str] | None = None, known: bool = True, **asked: Any
    ) -> list[str]:
        """What is said; what is added is in `nodes` and `mounts`."""
        request = Request(["all"], ["compute"], {"devices": "x"})
        for name, value in asked.items():
            setattr(request, name, value)
        for feature in request.features:
            request.sources[VARIABLES[feature]] = f"environment {VARIABLES[feature]}=enabled"
        for name, given in (("CONFIG", request.mig_config), ("MONITOR", request.mig_monitor)):
            variable = f"NVIDIA_MIG_{name}_DEVICES"
            if given:
                request.sources[variable] = f"environment {variable}=all"
        inventory = Inventory("550.1", [], {}, [], [], False, "")
        if known:
            inventory.mig_config_minor, inventory.mig_monitor_minor = 1, 2
        container = Container("/r", False, [], mounts or {}, False, False, [])
        self.edits = Edits()
        return feature_edits(self.edits, container, request, inventory, self.config)

    @property
    def nodes(self) -> list[str]:
        return [node.path.removeprefix("/dev/") for node in self.edits.device_nodes]

    @property
    def mounts(self) -> dict[str, str]:
        return {m.container_path: m.host_path for m in self.edits.mounts}


@pytest.fixture
def full(tmp_path: Path) -> Machine:
    """A DGX with everything: storage, network, switches, channels."""
    return Machine(tmp_path, preset("dgx_a100", gds=True, nics=2, nvswitches=2, imex_channels=2))


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "bare", preset("mixed_lab"))


@pytest.mark.parametrize(
    ("feature", "nodes"),
    [
        ("gds", ["nvidia-fs0", "nvidia-fs1"]),
        ("mofed", ["infiniband/rdma_cm", "infiniband/uverbs0", "infiniband/uverbs1"]),
        ("gdrcopy", ["gdrdrv"]),
        ("nvswitch", ["nvidia-nvswitch0", "nvidia-nvswitch1", "nvidia-nvswitchctl"]),
    ],
)
def test_what_each_has(full: Machine, bare: Machine, feature: str, nodes: list[str]) -> None:
    (full.host.dev_root / "nvidia-fs-file").touch()
    assert full.add(features=[feature]) == []
    assert full.nodes == nodes
    (said,) = bare.add(features=[feature])
    assert VARIABLES[feature] in said
    assert (bare.nodes, bare.mounts) == ([], {})


def test_all_at_once_with_their_numbers(full: Machine) -> None:
    assert full.add(features=list(VARIABLES)) == []
    assert len(full.nodes) == len(set(full.nodes)) == 9
    for node in full.edits.device_nodes:
        facts = os.stat(node.host_path)
        assert (node.major, node.minor) == (os.major(facts.st_rdev), os.minor(facts.st_rdev))


def test_files_of_storage(full: Machine) -> None:
    """Those that exist, read-only, and never over a user's own."""
    full.add(features=["gds"])
    assert full.mounts == {}
    root = full.host.root
    (root / "run/udev").mkdir(parents=True)
    (root / "etc/cufile.json").write_text("{}")
    full.add(features=["gds"])
    assert full.mounts == {
        "/run/udev": f"{root}/run/udev",
        "/etc/cufile.json": f"{root}/etc/cufile.json",
    }
    assert all("ro" in mount.options for mount in full.edits.mounts)
    full.add({"/etc/cufile.json": "bind"}, features=["gds"])
    assert full.mounts.keys() == {"/run/udev"}


def test_channels_by_number(full: Machine, bare: Machine) -> None:
    """Those that are there, those that can be made, and those that can't."""
    assert full.add(imex_channels=[1, 7]) == []
    assert full.nodes == [f"nvidia-caps-imex-channels/channel{n}" for n in (1, 7)]
    devices = bare.host.proc_root / "devices"
    devices.write_text(devices.read_text().replace("nvidia-caps-imex-channels", "other"))
    with pytest.raises(GpushimError) as caught:
        bare.add(imex_channels=[0])
    said = str(caught.value)
    assert "An IMEX channel was asked for by a mount" in said
    assert "channel0 is missing" in said
    assert "nvidia-caps-imex-channels is not loaded" in said


def test_channels_of_a_former_load(full: Machine) -> None:
    devices = full.host.proc_root / "devices"
    devices.write_text(devices.read_text().replace("506 nvidia-caps-imex", "499 nvidia-caps-imex"))
    full.add(imex_channels=[0])
    assert [(node.major, node.minor) for node in full.edits.device_nodes] == [(499, 0)]


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({"mig_config": True}, ["nvidia-caps/nvidia-cap1"]),
        ({"mig_monitor": True}, ["nvidia-caps/nvidia-cap2"]),
        (
            {"mig_config": True, "mig_monitor": True},
            ["nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"],
        ),
    ],
)
def test_the_right_to_partition(full: Machine, asked: dict[str, Any], nodes: list[str]) -> None:
    for name in nodes:
        full.host.remove_node(name)
    assert full.add(**asked) == []
    assert full.nodes == nodes
    modes = {node.path: node.file_mode for node in full.edits.device_nodes}
    assert modes.get("/dev/nvidia-caps/nvidia-cap1", 0o400) == 0o400


def test_the_right_to_partition_where_there_is_nothing_to(full: Machine) -> None:
    with pytest.raises(GpushimError) as caught:
        full.add(mig_config=True, known=False)
    assert "environment NVIDIA_MIG_CONFIG_DEVICES=all" in caught.value.sentence
    assert "knows no MIG" in caught.value.sentence
    full.values["host.load-driver"] = False
    full.host.remove_node("nvidia-caps/nvidia-cap2")
    with pytest.raises(GpushimError) as caught:
        full.add(mig_config=True, mig_monitor=True)
    said = str(caught.value)
    assert "NVIDIA_MIG_CONFIG_DEVICES=all and environment NVIDIA_MIG_MONITOR_DEVICES=all" in said
    assert "nvidia-cap2 is missing" in said
