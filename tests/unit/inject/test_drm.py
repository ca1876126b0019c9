"""Nodes in /dev/dri: of the GPUs that a container may draw with, and of no others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from gpushim.allocate.grant import Grant
from gpushim.host import drm
from gpushim.host.model import Gpu, MigDevice
from gpushim.inject.container import Container
from gpushim.inject.drm import BY_PATH, can_draw, drawing, drm_edits, keep_links
from gpushim.oci.edits import Edits
from gpushim.oci.rootfs import RootFs

from tests.fakehost import Description, FakeHost, build, preset

Apply = Callable[..., tuple[Edits, list[str]]]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> FakeHost:
    """Three GPUs on a machine whose management controller has card0."""
    description = Description(gpus=3, bmc_vga=True, minors="reversed")
    return build(tmp_path_factory.mktemp("host"), description)


@pytest.fixture
def apply(host: FakeHost, tmp_path: Path) -> Apply:
    def call(
        gpus: list[int],
        mounts: dict[str, str] | None = None,
        user_namespace: bool = False,
        prepared: str = "",
    ) -> tuple[Edits, list[str]]:
        edits = Edits()
        edits.bind_devices = user_namespace
        container = Container("/r", False, [], mounts or {}, user_namespace, False, [])
        grant = Grant([gpu(host, number) for number in gpus], ["graphics"])
        where = prepared or str(tmp_path / "run/by-path")
        dev, sys = str(host.dev_root), str(host.sys_root)
        return edits, drm_edits(edits, container, grant, dev, sys, where)

    return call


def gpu(host: FakeHost, number: int) -> Gpu:
    found = host.gpus[number]
    return Gpu(found.index, found.uuid, found.minor, found.bus, found.model.name)


def mig(profile: str) -> MigDevice:
    return MigDevice(0, "MIG-0", profile, None, 1, 0, 3, 4)


def test_what_sysfs_lists(host: FakeHost, tmp_path: Path) -> None:
    """Cards and render nodes; connectors and the control nodes of old kernels are neither."""
    sys = str(host.sys_root)
    assert drm.nodes(sys, host.gpus[0].bus) == ["card1", "renderD128"]
    assert drm.nodes(sys, host.gpus[2].bus) == ["card3", "renderD130"]
    assert drm.nodes(sys, "0000:ff:00.0") == []
    directory = tmp_path / "bus/pci/devices/0000:01:00.0/drm"
    for name in (
        "renderD129",
        "controlD64",
        "card0-HDMI-A-1",
        "version",
        "card0",
        "card",
        "card-1",
    ):
        (directory / name).mkdir(parents=True)
    assert drm.nodes(str(tmp_path), "0000:01:00.0") == ["card0", "renderD129"]


def test_the_nodes_of_one_gpu(apply: Apply, host: FakeHost) -> None:
    """With the group that udev gives them, video or render, and no execute permission."""
    edits, said = apply([1])
    nodes = {node.path: node for node in edits.device_nodes}
    assert list(nodes) == ["/dev/dri/card2", "/dev/dri/renderD129"]
    card = nodes["/dev/dri/card2"]
    assert (card.major, card.minor, card.file_mode, card.gid) == (226, 2, 0o660, 44)
    assert card.host_path == f"{host.dev_root}/dri/card2"
    assert edits.additional_gids == [44]
    assert not said


def test_links_by_bus_id(apply: Apply, host: FakeHost) -> None:
    edits, _ = apply([0, 2])
    (mount,) = edits.mounts
    assert mount.container_path == BY_PATH
    assert "ro" in mount.options
    bus = [host.gpus[number].bus for number in (0, 2)]
    directory = Path(mount.host_path)
    assert {path.name: os.readlink(path) for path in directory.iterdir()} == {
        f"pci-{bus[0]}-card": "../card1",
        f"pci-{bus[0]}-render": "../renderD128",
        f"pci-{bus[1]}-card": "../card3",
        f"pci-{bus[1]}-render": "../renderD130",
    }
    # These are the ones that udev makes on the host.
    for path in directory.iterdir():
        assert os.readlink(host.dev_root / "dri/by-path" / path.name) == os.readlink(path)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_each_set_of_gpus_has_its_directory_once(apply: Apply, tmp_path: Path) -> None:
    first = apply([0])[0].mounts[0].host_path
    second = apply([0, 1])[0].mounts[0].host_path
    inode = os.stat(first).st_ino
    assert apply([0])[0].mounts[0].host_path == first != second
    assert os.stat(first).st_ino == inode
    assert sorted(os.listdir(tmp_path / "run/by-path")) == sorted(
        [os.path.basename(first), os.path.basename(second)]
    )


def test_two_creates_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that comes second finds the directory made when it renames its own."""
    links = {"pci-0000:01:00.0-card": "../card1"}
    path = keep_links(str(tmp_path), links)
    calls = iter([False, True])
    monkeypatch.setattr("gpushim.inject.drm._is_there", lambda path: next(calls))
    assert keep_links(str(tmp_path), links) == path
    assert os.listdir(tmp_path) == [os.path.basename(path)]


def test_in_a_user_namespace(apply: Apply) -> None:
    """B15: the group's number means another group there."""
    edits, _ = apply([0], user_namespace=True)
    assert edits.additional_gids == []
    assert len(edits.device_nodes) == 2
    assert len(edits.mounts) == 1


@pytest.mark.parametrize("mounted", ["/dev", "/dev/dri", "/dev/dri/by-path"])
def test_a_users_mount_of_these_directories(apply: Apply, mounted: str) -> None:
    edits, said = apply([0], mounts={mounted: "bind"})
    assert len(edits.device_nodes) == 2
    assert edits.mounts == []
    assert BY_PATH in said[0]


def test_an_engines_own_dev(apply: Apply) -> None:
    edits, said = apply([0], mounts={"/dev": "tmpfs", "/dev/pts": "devpts"})
    assert [mount.container_path for mount in edits.mounts] == [BY_PATH]
    assert not said


def test_without_nvidia_drm(tmp_path: Path) -> None:
    """A headless machine: compute works as ever, so that is a note and no error."""
    host = build(tmp_path / "host", Description(gpus=1, drm=False))
    edits = Edits()
    container = Container("/r", False, [], {}, False, False, [])
    grant = Grant([gpu(host, 0)], ["display"])
    dev, sys = str(host.dev_root), str(host.sys_root)
    said = drm_edits(edits, container, grant, dev, sys, str(tmp_path / "by-path"))
    assert not edits.device_nodes
    assert not edits.mounts
    assert "nvidia-drm is not loaded" in said[0]
    assert not (tmp_path / "by-path").exists()


def test_a_node_that_is_missing(tmp_path: Path) -> None:
    host = build(tmp_path / "host", Description(gpus=1))
    (host.dev_root / "dri/renderD128").unlink()
    edits = Edits()
    container = Container("/r", False, [], {}, False, False, [])
    grant = Grant([gpu(host, 0)], ["graphics"])
    dev, sys = str(host.dev_root), str(host.sys_root)
    said = drm_edits(edits, container, grant, dev, sys, str(tmp_path / "by-path"))
    assert [node.path for node in edits.device_nodes] == ["/dev/dri/card0"]
    assert os.listdir(edits.mounts[0].host_path) == [f"pci-{host.gpus[0].bus}-card"]
    assert "renderD128 of GPU 0 is missing" in said[0]


def test_nowhere_to_keep_links(apply: Apply, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    edits, said = apply([0], prepared=str(tmp_path / "file/by-path"))
    assert len(edits.device_nodes) == 2
    assert edits.mounts == []
    assert "can't be written to" in said[0]


def test_nothing_without_a_gpu(apply: Apply) -> None:
    edits, said = apply([])
    assert (edits.device_nodes, edits.mounts, said) == ([], [], [])


@pytest.mark.parametrize(
    ("profile", "draws"),
    [
        ("1g.24gb+gfx", True),
        ("1g.24gb+me,gfx", True),
        ("2g.48gb+gfx.all", True),
        ("4g.96gb+gfx-me", True),
        ("1g.10gb", False),
        ("1g.10gb+me", False),
        ("1c.3g.40gb", False),
        ("gfx", False),
        ("", False),
    ],
)
def test_mig_profiles_that_can_draw(profile: str, draws: bool) -> None:
    assert can_draw(profile) is draws


def test_mig_devices() -> None:
    """Of a GPU that is cut up, only a device with graphics gives its nodes, and only once."""
    host_gpus = [
        Gpu(number, f"GPU-{number}", number, f"0000:0{number}:00.0", "X") for number in range(3)
    ]
    host_gpus[1].mig_enabled = True
    grant = Grant(
        [host_gpus[2], host_gpus[1]],
        ["graphics"],
        [(host_gpus[0], mig("1g.24gb+gfx")), (host_gpus[0], mig("1g.24gb+gfx"))],
    )
    assert [found.index for found in drawing(grant)] == [0, 2]
    assert drawing(Grant([], ["graphics"], [(host_gpus[1], mig("1g.10gb"))])) == []


def test_the_mig_host(tmp_path: Path) -> None:
    host = build(tmp_path / "host", preset("mig_host"))
    edits = Edits()
    container = Container("/r", False, [], {}, False, False, [])
    grant = Grant([], ["graphics"], [(gpu(host, 0), mig("3g.40gb"))])
    dev, sys = str(host.dev_root), str(host.sys_root)
    (said,) = drm_edits(edits, container, grant, dev, sys, str(tmp_path / "by-path"))
    assert not edits.device_nodes
    assert "3g.40gb has no graphics" in said


@pytest.mark.parametrize(
    ("mounts", "mounted"),
    [
        ({"/vol": "bind"}, False),
        ({"/dev": "bind"}, False),
        # The image's own /dev is not seen.
        ({"/dev": "tmpfs", "/vol": "bind"}, True),
        ({"/dev": "tmpfs"}, True),
        ({"/else": "bind"}, True),
    ],
)
def test_links_behind_a_link_into_a_volume(
    host: FakeHost, tmp_path: Path, mounts: dict[str, str], mounted: bool
) -> None:
    (tmp_path / "root/dev").mkdir(parents=True)
    (tmp_path / "root/dev/dri").symlink_to("/vol")
    container = Container(str(tmp_path / "root"), False, [], mounts, False, False, [])
    edits = Edits()
    with RootFs(container.root) as root:
        container.look_into(root)
        grant = Grant([gpu(host, 0)], ["graphics"])
        dev, sys = str(host.dev_root), str(host.sys_root)
        said = drm_edits(edits, container, grant, dev, sys, str(tmp_path / "run"))
        container.look_away()
    assert [mount.container_path for mount in edits.mounts] == [BY_PATH] * mounted
    assert any("shows what is mounted there" in sentence for sentence in said) is not mounted
