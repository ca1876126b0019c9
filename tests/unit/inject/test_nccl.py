"""What NCCL is told of the network: the nearest adapters, and only such as it can use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gpushim.config_keys import configured
from gpushim.host import gpus as driver_gpus
from gpushim.host import procfiles
from gpushim.inject.nccl import nccl_edits
from gpushim.oci import bundle
from gpushim.oci.edits import Edits

from tests.fakehost import FakeHost, build, preset

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")

PRIVATE = [{"type": "mount"}, {"type": "network"}]
HOST = [{"type": "mount"}]
UNLIMITED = [{"type": "RLIMIT_MEMLOCK", "hard": 2**64 - 1, "soft": 2**64 - 1}]


class Told:
    """What came of one container."""

    def __init__(self, edits: Edits, said: list[str]) -> None:
        self.said = said
        self.hcas = edits.env.get("NCCL_IB_HCA")
        self.interfaces = edits.env.get("NCCL_SOCKET_IFNAME")
        self.nodes = [node.path.removeprefix("/dev/infiniband/") for node in edits.device_nodes]


class Machine:
    """A fake host whose RDMA devices have what NCCL needs of them."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.host: FakeHost = build(path / "host", preset(name))
        self.sys = self.host.sys_root
        for number in range(self.host.description.nics):
            self.file(f"class/infiniband/mlx5_{number}/device/infiniband_verbs/uverbs{number}/dev")
        self.route(*(f"ib{number}" for number in range(self.host.description.nics)))

    def file(self, name: str, text: str = "") -> None:
        path = self.sys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def port(self, hca: str, name: str, text: str) -> None:
        self.file(f"class/infiniband/{hca}/ports/1/{name}", text + "\n")

    def route(self, *interfaces: str) -> None:
        """The interfaces that have an IPv4 network, as the kernel lists routes."""
        lines = ["Iface\tDestination\tGateway\tFlags"]
        lines += [f"{name}\t0000A8C0\t00000000\t0001" for name in interfaces]
        (self.host.proc_root / "net").mkdir(exist_ok=True)
        (self.host.proc_root / "net/route").write_text("\n".join(lines) + "\n")

    def tell(
        self,
        *gpus: int,
        env: list[str] | None = None,
        namespaces: Any = HOST,
        rlimits: Any = UNLIMITED,
        capabilities: list[str] | None = None,
    ) -> Told:
        process = {
            "env": env or [],
            "rlimits": rlimits,
            "capabilities": {"effective": capabilities or []},
        }
        spec = {"process": process, "linux": {"namespaces": namespaces}}
        (self.path / "config.json").write_text(json.dumps(spec))
        config = configured(
            {
                "host.sys-root": str(self.sys),
                "host.dev-root": str(self.host.dev_root),
                "host.proc-root": str(self.host.proc_root),
            }
        )
        found = driver_gpus.read(str(self.host.proc_root), str(self.sys))
        loaded = bundle.load(str(self.path), "config.json")
        return Told(*nccl_edits(loaded, [found[index] for index in gpus], config, False))


@pytest.fixture
def hgx(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "hgx_h100")


@pytest.fixture
def pairs(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "a100_pcie4")


def nothing(told: Told) -> bool:
    return (told.hcas, told.interfaces, told.nodes) == (None, None, [])


def test_the_nearest_adapters(hgx: Machine) -> None:
    told = hgx.tell(2, 5)
    assert told.hcas == "=mlx5_2,mlx5_5"
    assert told.interfaces == "=ib2,ib5"
    assert told.nodes == ["uverbs2", "uverbs5", "rdma_cm"]
    assert told.said == []


@pytest.mark.parametrize("gpus", [[], [3]])
def test_one_gpu_needs_no_network(hgx: Machine, gpus: list[int]) -> None:
    assert nothing(hgx.tell(*gpus))


def test_a_machine_without_adapters(tmp_path: Path) -> None:
    told = Machine(tmp_path, "consumer8").tell(0, 1)
    assert nothing(told)
    assert told.said == []


@pytest.mark.parametrize(
    "variable",
    [
        "NCCL_SOCKET_IFNAME=eth0",
        "NCCL_IB_HCA=",
        "NCCL_IB_DISABLE=1",
        "NCCL_NET=Socket",
        "NCCL_CONF_FILE=/x",
    ],
)
def test_what_the_user_set_stays(hgx: Machine, variable: str) -> None:
    assert nothing(hgx.tell(0, 1, env=["PATH=/bin", variable]))


def test_other_variables_of_nccls_decide_nothing(hgx: Machine) -> None:
    assert hgx.tell(0, 1, env=["NCCL_DEBUG=INFO", "NCCL_NETS=x"]).hcas == "=mlx5_0,mlx5_1"


def test_a_network_of_its_own(hgx: Machine) -> None:
    """The host's interfaces are not there; InfiniBand works, and RDMA on Ethernet does not."""
    told = hgx.tell(0, 1, namespaces=PRIVATE)
    assert (told.hcas, told.interfaces) == ("=mlx5_0,mlx5_1", None)
    hgx.port("mlx5_0", "link_layer", "Ethernet")
    assert hgx.tell(0, namespaces=PRIVATE).hcas is None
    # The nearest is the next one that works.
    assert "mlx5_0" not in str(hgx.tell(0, 1, namespaces=PRIVATE).hcas)
    assert hgx.tell(0, 1, namespaces=HOST).hcas == "=mlx5_0,mlx5_1"


def test_a_network_namespace_by_path(hgx: Machine, tmp_path: Path) -> None:
    own = [{"type": "network", "path": "/proc/self/ns/net"}]
    assert hgx.tell(0, 1, namespaces=own).interfaces == "=ib0,ib1"
    for path in ("/proc/self/ns/mnt", str(tmp_path / "none"), 7):
        other = [{"type": "network", "path": path}]
        assert hgx.tell(0, 1, namespaces=other).interfaces is None


def test_a_port_that_is_down(pairs: Machine) -> None:
    pairs.port("mlx5_0", "state", "1: DOWN")
    told = pairs.tell(0, 1)
    assert (told.hcas, told.interfaces) == ("=mlx5_1", "=ib1")
    pairs.port("mlx5_1", "state", "2: INIT")
    told = pairs.tell(0, 1)
    assert (told.hcas, told.nodes) == (None, [])
    assert told.interfaces == "=ib0"


def test_the_fastest_adapters_are_for_nccl(pairs: Machine) -> None:
    """A slow one that is nearer is for management or storage."""
    pairs.port("mlx5_0", "rate", "25 Gb/sec (1X EDR)")
    pairs.port("mlx5_1", "rate", "200 Gb/sec (4X HDR)")
    assert pairs.tell(0, 1).hcas == "=mlx5_1"


def test_the_fastest_interfaces(pairs: Machine) -> None:
    for hca in ("mlx5_0", "mlx5_1"):
        pairs.port(hca, "state", "1: DOWN")
    pairs.file("class/net/ib0/speed", "1000\n")
    pairs.file("class/net/ib1/speed", "100000\n")
    assert pairs.tell(0, 1).interfaces == "=ib1"
    pairs.file("class/net/ib1/speed", "-1\n")
    assert pairs.tell(0, 1).interfaces == "=ib0"


@pytest.mark.parametrize("state", ["down", "lowerlayerdown", "dormant"])
def test_an_interface_that_is_not_up(pairs: Machine, state: str) -> None:
    pairs.file("class/net/ib0/operstate", state + "\n")
    told = pairs.tell(0, 1)
    assert (told.hcas, told.interfaces) == ("=mlx5_0", None)


def test_an_interface_without_an_address(pairs: Machine) -> None:
    """NCCL would find no interface by the name that it is given, and give up."""
    pairs.route("eno1")
    assert pairs.tell(0, 1).interfaces is None
    (pairs.host.proc_root / "net/route").unlink()
    assert pairs.tell(0, 1).interfaces is None


def test_a_part_of_a_bond(pairs: Machine) -> None:
    """Addresses are the bond's, and its name is told once for both of its parts."""
    pairs.file("class/net/bond0/operstate", "up\n")
    for name in ("ib0", "ib1"):
        (pairs.sys / "class/net" / name / "master").symlink_to("../../../bond0")
    assert pairs.tell(0, 2).interfaces is None
    pairs.route("bond0")
    assert pairs.tell(0, 2).interfaces == "=bond0"


def test_a_device_without_its_node(pairs: Machine) -> None:
    (pairs.host.dev_root / "infiniband/uverbs0").unlink()
    told = pairs.tell(0, 2)
    assert (told.hcas, told.nodes) == ("=mlx5_1", ["uverbs1", "rdma_cm"])
    (pairs.host.dev_root / "infiniband/uverbs1").unlink()
    told = pairs.tell(0, 2)
    assert (told.hcas, told.nodes) == (None, [])


def test_two_devices_of_one_adapter(pairs: Machine) -> None:
    """Each has its own node, and the kernel says which."""
    where = "class/infiniband/mlx5_0/device"
    (pairs.sys / "class/infiniband/mlx5_9").mkdir()
    os.rmdir(pairs.sys / "class/infiniband/mlx5_9")
    device = (pairs.sys / where).resolve()
    for name, text in (("state", "4: ACTIVE\n"), ("link_layer", "InfiniBand\n")):
        file = device / "infiniband/mlx5_9/ports/1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (device / "infiniband/mlx5_9/device").symlink_to(device)
    link = pairs.sys / "class/infiniband/mlx5_9"
    link.symlink_to(os.path.relpath(device / "infiniband/mlx5_9", link.parent))
    (device / "infiniband_verbs/uverbs1").mkdir()
    pairs.file("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n")
    pairs.file("class/infiniband_verbs/uverbs1/ibdev", "mlx5_9\n")
    told = pairs.tell(0, 1)
    assert (told.hcas, told.nodes) == ("=mlx5_0,mlx5_9", ["uverbs0", "uverbs1", "rdma_cm"])


@pytest.mark.parametrize(
    ("rlimits", "capabilities", "given"),
    [
        (UNLIMITED, [], True),
        ([{"type": "RLIMIT_MEMLOCK", "soft": 1 << 23, "hard": 1 << 23}], [], False),
        ([{"type": "RLIMIT_MEMLOCK", "soft": 1 << 23}], ["CAP_IPC_LOCK"], True),
        ([{"type": "RLIMIT_NOFILE", "soft": 1}, *UNLIMITED], ["CAP_CHOWN"], True),
        ([{"type": "RLIMIT_MEMLOCK", "soft": "much"}], [], False),
    ],
)
def test_memory_that_can_be_locked(
    pairs: Machine, rlimits: Any, capabilities: list[str], given: bool
) -> None:
    """With the nodes and without it NCCL would fail, where without the nodes it uses sockets."""
    told = pairs.tell(0, 1, rlimits=rlimits, capabilities=capabilities)
    assert (told.hcas is not None, bool(told.nodes)) == (given, given)
    assert any("--ulimit memlock=-1" in sentence for sentence in told.said) is not given
    assert told.interfaces == "=ib0"


@pytest.mark.parametrize(
    ("soft", "given"), [("65536", False), ("unlimited", True), ("2147483648", True), (None, False)]
)
def test_the_limit_that_a_container_inherits(
    pairs: Machine, monkeypatch: pytest.MonkeyPatch, soft: str | None, given: bool
) -> None:
    """It is that of the low-level runtime, which this process becomes."""
    text = procfiles.text
    line = f"Limit\nMax locked memory         {soft}              unlimited            bytes\n"

    def limits(path: str) -> str | None:
        if path == "/proc/self/limits":
            assert "Max locked memory" in (text(path) or "")
            return line if soft else None
        return text(path)

    monkeypatch.setattr(procfiles, "text", limits)
    assert (pairs.tell(0, 1, rlimits=[]).hcas is not None) is given


@pytest.mark.parametrize("odd", [None, "x", 7, [7], [{}], {"type": "network"}])
def test_odd_specs(pairs: Machine, odd: Any) -> None:
    """What the low-level runtime will judge is nothing to fail at here."""
    pairs.tell(0, 1, namespaces=odd, rlimits=odd)
