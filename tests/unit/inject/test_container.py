"""What is read out of a container's spec."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpushim.inject.container import NVIDIA_SMI, TREE_PLACES, Container, describe
from gpushim.oci.bundle import load
from gpushim.oci.rootfs import RootFs
from gpushim.request.gather import gather


def container(tmp_path: Path, spec: dict[str, Any]) -> Container:
    (tmp_path / "config.json").write_text(json.dumps(spec))
    bundle = load(str(tmp_path), "config.json")
    return describe(bundle, gather(bundle).environment)


def with_mounts(tmp_path: Path, *mounts: tuple[str, str | None]) -> Container:
    entries = [{"destination": d, **({} if kind is None else {"type": kind})} for d, kind in mounts]
    return container(tmp_path, {"mounts": entries})


@pytest.mark.parametrize(
    ("mounts", "place"),
    [
        ([], 0),
        ([("/proc", "proc"), ("/dev", "tmpfs"), ("/sys", "sysfs")], 0),
        # The user's own lies there, above it or below it.
        ([("/usr/local/nvidia", "bind")], 1),
        ([("/usr/local/nvidia/", "bind")], 1),
        ([("usr/local/nvidia", "bind")], 1),
        ([("/usr/local/nvidia", None)], 1),
        ([("/usr/local/nvidia", "none")], 1),
        ([("/usr/local/nvidia", "tmpfs")], 1),
        ([("/usr/local/nvidia/lib64", "bind")], 1),
        ([("/usr/local/nvidia/lib64/x", "tmpfs")], 1),
        ([("/usr/local", "bind")], 1),
        ([("/usr", "bind")], 1),
        ([("/usr", "overlay")], 1),
        # What only looks like it.
        ([("/usr/local/nvidia2", "bind")], 0),
        ([("/usr/local/nvidi", "bind")], 0),
        # A tmpfs above is the container's own.
        ([("/usr/local", "tmpfs")], 0),
        # Further places.
        ([("/usr", "bind"), ("/opt", "bind")], 2),
        ([("/usr/local/nvidia", "bind"), ("/opt/gpushim", "bind")], 2),
        ([("/usr", "bind"), ("/opt", "bind"), ("/gpushim", "bind")], 2),
    ],
)
def test_where_the_driver_tree_goes(
    tmp_path: Path, mounts: list[tuple[str, str | None]], place: int
) -> None:
    assert with_mounts(tmp_path, *mounts).tree_place() == TREE_PLACES[place]


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("/data", True),
        ("/data/x", True),
        ("/data/x/y", True),
        ("/database", False),
        ("/", False),
        ("", False),
        ("/tmp/x", False),
        ("/tmp/in/x", True),
        ("/etc/hosts", True),
        ("/etc", False),
    ],
)
def test_covered(tmp_path: Path, path: str, covered: bool) -> None:
    found = with_mounts(
        tmp_path, ("/data", "bind"), ("/tmp", "tmpfs"), ("/tmp/in", "bind"), ("/etc/hosts", None)
    )
    assert found.covered(path) == covered


ALLOW, DENY = {"allow": True, "access": "rwm"}, {"allow": False, "access": "rwm"}


@pytest.mark.parametrize(
    ("rules", "privileged"),
    [
        (None, False),
        ([], False),
        ([DENY], False),
        ([ALLOW], True),
        ([DENY, ALLOW], True),
        ([ALLOW, DENY], False),
        ([{"allow": True}], True),
        ([{"allow": True, "type": "a", "access": "rwm"}], True),
        ([{"allow": True, "type": "a", "major": -1, "minor": -1, "access": "rwm"}], True),
        ([{"allow": True, "type": None, "major": None, "access": "rw"}], True),
        ([{"allow": True, "access": "m"}], False),
        ([{"allow": True, "access": "r"}], False),
        ([{"allow": True, "type": "c", "access": "rwm"}], False),
        ([{"allow": True, "major": 195, "access": "rwm"}], False),
        ([DENY, {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}], False),
        (["x", None, ALLOW], True),
        ("x", False),
    ],
)
def test_privileged(tmp_path: Path, rules: Any, privileged: bool) -> None:
    """B06, B40."""
    spec = {"linux": {"resources": {"devices": rules}}}
    assert container(tmp_path, spec).privileged == privileged


@pytest.mark.parametrize(
    ("rules", "every_gpu"),
    [
        ([ALLOW], True),
        ([DENY, {"allow": True, "type": "c", "access": "rwm"}], True),
        ([DENY, {"allow": True, "type": "c", "major": 195, "minor": -1, "access": "rw"}], True),
        ([{"allow": True, "type": "c", "major": 195}, DENY], False),
        ([{"allow": True, "type": "c", "major": 195, "minor": 3, "access": "rw"}], False),
        ([{"allow": True, "type": "c", "access": "m"}], False),
        ([{"allow": True, "type": "b", "access": "rwm"}], False),
        ([{"allow": True, "type": "c", "major": 136, "access": "rwm"}], False),
    ],
)
def test_rules_that_allow_every_gpu(tmp_path: Path, rules: Any, every_gpu: bool) -> None:
    spec = {"linux": {"resources": {"devices": rules}}}
    assert container(tmp_path, spec).every_gpu == every_gpu


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "rootfs"),
        ({"root": None}, "rootfs"),
        ({"root": {"path": ""}}, "rootfs"),
        ({"root": {"path": 5}}, "rootfs"),
        ({"root": {"path": "r/x"}}, "r/x"),
        ({"root": {"path": "/r"}}, "/r"),
    ],
)
def test_root(tmp_path: Path, spec: dict[str, Any], path: str) -> None:
    found = container(tmp_path, spec)
    assert found.root == (path if path.startswith("/") else f"{tmp_path}/{path}")
    assert not found.readonly


def test_odd_values_count_as_absent(tmp_path: Path) -> None:
    """B01, B02."""
    spec = {
        "process": None,
        "root": {"readonly": "yes"},
        "mounts": [None, 5, {}, {"destination": None}, {"destination": "/proc", "type": None}],
        "linux": {"namespaces": [None, {"type": 5}, "user"]},
    }
    found = container(tmp_path, spec)
    assert found.environment == []
    assert not found.readonly
    assert not found.user_namespace
    assert not found.mounts_proc


def test_facts(tmp_path: Path) -> None:
    spec = {
        "process": {"env": ["A=1", 5, "CUDA_VISIBLE_DEVICES=1"]},
        "root": {"readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc"}],
        "linux": {"namespaces": [{"type": "mount"}, {"type": "user"}]},
    }
    found = container(tmp_path, spec)
    assert found.environment == ["CUDA_VISIBLE_DEVICES=1"]
    assert found.readonly
    assert found.user_namespace
    assert found.mounts_proc


@pytest.mark.parametrize(
    ("kinds", "place", "obstacles"),
    [
        ({}, 0, []),
        ({TREE_PLACES[0]: "directory"}, 0, []),
        ({TREE_PLACES[0]: "file"}, 1, [TREE_PLACES[0]]),
        ({TREE_PLACES[0]: "link"}, 1, [TREE_PLACES[0]]),
        ({TREE_PLACES[0]: "file", TREE_PLACES[1]: "file"}, 2, [*TREE_PLACES[:2]]),
        ({NVIDIA_SMI: "directory"}, 0, [NVIDIA_SMI]),
        ({NVIDIA_SMI: "file"}, 0, []),
        ({"/usr": "link"}, 0, []),
    ],
)
def test_what_an_image_has_in_the_way(
    tmp_path: Path, kinds: dict[str, str], place: int, obstacles: list[str]
) -> None:
    """B13: a file or link where the driver tree goes, a directory where nvidia-smi goes."""
    root = tmp_path / "rootfs"
    root.mkdir()
    for path, kind in kinds.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if kind == "directory":
            target.mkdir()
        elif kind == "file":
            target.touch()
        else:
            target.symlink_to(target.name)
    found = with_mounts(tmp_path)
    with RootFs(str(root)) as opened:
        found.look_into(opened)
        found.find_obstacles()
        assert found.obstacles == obstacles
        assert found.tree_place() == TREE_PLACES[place]
        found.look_away()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[RootFs]:
    (tmp_path / "rootfs").mkdir()
    with RootFs(str(tmp_path / "rootfs")) as root:
        yield root


def link(root: RootFs, links: dict[str, str]) -> None:
    """Each link at a path of the image, its directories made as needed."""
    for path, target in links.items():
        place = Path(root.path, path.lstrip("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


LOCAL = {"/usr/local": "/data"}


@pytest.mark.parametrize(
    ("links", "mounts", "place"),
    [
        (LOCAL, [], 0),
        (LOCAL, [("/other", "bind")], 0),
        (LOCAL, [("/data", "bind")], 1),
        (LOCAL, [("/data/nvidia", "bind")], 1),
        (LOCAL, [("/data", "tmpfs")], 0),
        # Hidden by the driver, were it mounted there.
        (LOCAL, [("/data/nvidia/lib64", "bind")], 1),
        (LOCAL, [("/data/nvidia", "tmpfs")], 1),
        (LOCAL, [("/data/nvidia2", "bind")], 0),
        # The user's destinations lead through links, too.
        (LOCAL, [("/usr/local", "bind")], 1),
        (LOCAL | {"/mnt": "/data"}, [("/mnt", "bind")], 1),
        ({"/usr": "data/usr"}, [("/data", "bind")], 1),
        ({"/usr": "a", "/a/local": "../../../b/../c"}, [("/c", "bind")], 1),
        (LOCAL | {"/opt": "data"}, [("/data", "bind")], 2),
        (LOCAL, [("/data", None), ("/opt", None)], 2),
        # A mount hides the image's links, and what is mounted first counts for the next.
        ({"/usr/local": "/a/b", "/a/b": "/c"}, [("/a", "bind")], 1),
        ({"/usr/local": "/a/b", "/a/b": "/c"}, [("/c", "bind")], 1),
        ({"/usr/local": "/a/b", "/a/b": "/c"}, [("/a", "tmpfs"), ("/c", "bind")], 0),
        ({"/a/b": "/usr/local"}, [("/a", "tmpfs"), ("/a/b", "bind")], 0),
        ({"/a/b": "/usr/local"}, [("/a/b", "bind"), ("/a", "tmpfs")], 1),
        # Only what engines mount everywhere.
        ({"/usr/local": "/dev/shm"}, [("/dev", "tmpfs"), ("/dev/shm", "tmpfs")], 0),
        ({"/usr/local": "/dev/shm"}, [("/dev", "tmpfs"), ("/dev/shm", "bind")], 1),
    ],
)
def test_a_volume_behind_a_link(
    tmp_path: Path,
    opened: RootFs,
    links: dict[str, str],
    mounts: list[tuple[str, str | None]],
    place: int,
) -> None:
    """Mount points are made where links lead: not in a directory of the host's."""
    link(opened, links)
    found = with_mounts(tmp_path, *mounts)
    found.look_into(opened)
    assert found.tree_place() == TREE_PLACES[place]
    found.look_away()


def test_what_lies_in_a_volume_by_way_of_a_link(tmp_path: Path, opened: RootFs) -> None:
    link(opened, {"/etc": "vol", "/usr/bin": "/vol/bin", "/usr/bin2/smi": "/vol/smi"})
    found = with_mounts(tmp_path, ("/vol", "bind"), ("/scratch", "tmpfs"))
    paths = ("/etc/OpenCL/vendors/nvidia.icd", NVIDIA_SMI, "/usr/bin2/smi", "/usr/bin2/x")
    assert [found.covered(path) for path in paths] == [False] * 4
    found.look_into(opened)
    assert [found.covered(path) for path in paths] == [True, True, True, False]
    assert found.mounted_over("/etc/ld.so.cache") == "bind"
    assert found.mounted_over("/scratch/x") == "tmpfs"
    found.mounts.pop("/vol")
    found.look_into(opened)
    assert not any(found.covered(path) for path in paths)
    found.look_away()


def test_an_obstacle_behind_a_link(tmp_path: Path, opened: RootFs) -> None:
    link(opened, LOCAL | {"/data/nvidia": "elsewhere", NVIDIA_SMI: "smi", "/usr/bin/smi/x": "y"})
    found = with_mounts(tmp_path)
    found.look_into(opened)
    found.find_obstacles()
    assert found.obstacles == [TREE_PLACES[0], NVIDIA_SMI]
    found.look_away()


def test_which_mounts_are_volumes(tmp_path: Path) -> None:
    usual = [
        *(("/proc", "proc"), ("/dev", "tmpfs"), ("/dev/pts", "devpts"), ("/sys", "sysfs")),
        *(("/sys/fs/cgroup", "cgroup"), ("/dev/mqueue", "mqueue"), ("/dev/shm", "tmpfs")),
        *(("/etc/hosts", "bind"), ("/etc/hostname", None), ("/etc/resolv.conf", "bind")),
    ]
    assert not with_mounts(tmp_path, *usual).has_volumes
    for mount in (("/data", "bind"), ("/tmp", "tmpfs"), ("/dev", "bind"), ("/x", "proc")):
        assert with_mounts(tmp_path, *usual, mount).has_volumes
