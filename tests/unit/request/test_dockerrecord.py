"""Docker's own record of a container: found, checked, and never a reason to fail."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpushim.request import dockerrecord
from gpushim.request.dockerrecord import (
    DockerRecord,
    cdi_names,
    find,
    find_by_spec,
    gpu_requests,
    name_by_spec,
    record_directories,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ID = "5e" * 32
OTHER = "0f" * 32
FILES = ("hostname", "hosts", "resolv.conf")
TWO = {"Driver": "", "Count": 2, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}


class Docker:
    """A data root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def record(self, id: str = ID, requests: Any = None, **config: Any) -> Path:
        path = self.root / "containers" / id
        path.mkdir(parents=True, exist_ok=True)
        data = {"ID": id, "Name": "/web", "Config": {"Labels": {"a": "b"}}, **config}
        (path / "config.v2.json").write_text(json.dumps(data))
        (path / "hostconfig.json").write_text(json.dumps({"DeviceRequests": requests}))
        for file in path.iterdir():
            file.chmod(0o600)
        path.chmod(0o710)
        return path

    def mounts(self, id: str = ID, files: tuple[str, ...] = FILES) -> list[tuple[str, str]]:
        return [(f"{self.root}/containers/{id}/{name}", f"/etc/{name}") for name in files]

    def find(self) -> tuple[DockerRecord | None, list[str]]:
        return find(self.mounts(), "", ID)


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path / "data")


def test_a_record(docker: Docker) -> None:
    options = {"memory": "2gb"}
    by_ids = {"Driver": "nvidia", "Count": 0, "DeviceIDs": ["0", "GPU-1"], "Options": options}
    labels = {"gpushim.gpus": "2", "x": ""}
    path = docker.record(requests=[TWO, by_ids], Config={"Labels": labels})
    record, problems = docker.find()
    assert record is not None
    assert problems == []
    assert (record.name, record.directory, record.labels) == ("web", str(path), labels)
    first, second = record.requests
    assert (first.driver, first.count, first.ids) == ("", 2, [])
    assert (first.capabilities, first.options) == ([["gpu"]], {})
    assert (second.driver, second.count, second.ids) == ("nvidia", 0, ["0", "GPU-1"])
    assert (second.capabilities, second.options) == ([], options)


@pytest.mark.parametrize("members", [{}, {"Labels": None}, {"Labels": {}}])
def test_what_is_null_or_missing_is_empty(docker: Docker, members: dict[str, Any]) -> None:
    """As in Go, which writes these files, and may leave empty members out."""
    path = docker.record(requests=None, Config=members)
    for text in ("{}", '{"DeviceRequests":null}', '{"DeviceRequests":[]}'):
        (path / "hostconfig.json").write_text(text)
        record, problems = docker.find()
        assert record is not None
        assert (record.labels, record.requests, problems) == ({}, [], [])
    (path / "hostconfig.json").write_text('{"DeviceRequests":[{}]}')
    record, _ = docker.find()
    assert record is not None
    (request,) = record.requests
    assert (request.driver, request.count, request.ids) == ("", 0, [])
    assert (request.capabilities, request.options) == ([], {})


@pytest.mark.parametrize("file", FILES)
def test_one_of_the_mounts_is_enough(docker: Docker, file: str) -> None:
    docker.record()
    others = [("/home/me/file", f"/etc/{name}") for name in FILES if name != file]
    record, problems = find([*others, *docker.mounts(files=(file,))], "/x", ID)
    assert record is not None
    assert problems == []


def test_the_network_of_another_container(docker: Docker) -> None:
    """Its files are mounted, but the record of the id is the container's own."""
    docker.record(OTHER, [TWO], Name="/other", Config={"Labels": {"gpushim.gpus": "8"}})
    assert find(docker.mounts(OTHER), "", ID) == (None, [])
    docker.record(Name="/own")
    record, _ = find(docker.mounts(OTHER), "", ID)
    assert record is not None
    assert (record.name, record.labels, record.requests) == ("own", {"a": "b"}, [])


@pytest.mark.parametrize(
    "root",
    [
        "overlay2/1f/merged",
        "vfs/dir/1f",
        "btrfs/subvolumes/1f",
        "zfs/graph/1f",
        "fuse-overlayfs/1f/merged",
        "aufs/mnt/1f",
        "rootfs/overlayfs/1f",
        "devicemapper/mnt/1f/rootfs",
    ],
)
def test_by_the_root_file_system(docker: Docker, root: str) -> None:
    """Where a user's mounts cover all three files."""
    docker.record()
    mounts = [("/home/me/file", f"/etc/{name}") for name in FILES]
    for end in ("", "/"):
        record, problems = find(mounts, f"{docker.root}/{root}{end}", ID)
        assert record is not None, root
        assert problems == []


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        # Podman, the kubelet, containerd's CRI plugin, nerdctl
        (f"/run/containers/storage/overlay-containers/{ID}/userdata/hosts", "/etc/hosts"),
        (f"/var/lib/kubelet/pods/{ID}/etc-hosts", "/etc/hosts"),
        (f"/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/{ID}/hostname", "/etc/hostname"),
        (f"/var/lib/nerdctl/1935db59/containers/default/{ID}/hostname", "/etc/hostname"),
        # Users' own mounts
        ("/home/me/hosts", "/etc/hosts"),
        (f"/x/containers/{ID}/hosts", "/hosts"),
        (f"/x/containers/{ID}/hosts", "/etc/hostname"),
        (f"/x/containers/{ID}/hosts/", "/etc/hosts"),
        (f"containers/{ID}/hosts", "/etc/hosts"),
        ("", "/etc/hosts"),
        ("\0", "/etc/hosts"),
    ],
)
def test_mounts_that_tell_nothing(source: str, destination: str) -> None:
    assert record_directories([(source, destination)], "", ID) == []
    assert find([(source, destination)], "/x", ID) == (None, [])


@pytest.mark.parametrize("id", ["", ".", "..", "../x", "a/b", "/"])
def test_ids_that_lead_elsewhere(docker: Docker, id: str) -> None:
    docker.record()
    assert find(docker.mounts(), "", id) == (None, [])


def test_a_path_with_a_null_byte() -> None:
    assert find([("/a\0/containers/x/hosts", "/etc/hosts")], "/\0/b/c/d", ID) == (None, [])


def _give_away(path: Path) -> None:
    os.chown(path, 1234, 0)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def _large(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(dockerrecord._MAX_SIZE + 1)


def _written(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))

    return write


def _mode(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
BOTH = [
    pytest.param(_mode(0o620), "may write to {}"),
    pytest.param(_mode(0o602), "may write to {}"),
    pytest.param(_mode(0o666), "may write to {}"),
    pytest.param(_give_away, "{} belongs to the user with the number 1234", marks=ROOT_ONLY),
    pytest.param(_link, "{} cannot be opened (a part of its path is a symbolic link)"),
    pytest.param(_directory, "{} is no regular file"),
    pytest.param(_pipe, "{} is no regular file"),
    pytest.param(_large, "{} cannot be read"),
    pytest.param(_written(""), "{} is no JSON"),
    pytest.param(_written('{"ID":'), "{} is no JSON"),
    pytest.param(_written("\udcff\0"), "{} is no JSON"),
    pytest.param(_written("[" * 100_000), "{} is no JSON"),
    pytest.param(_written("null"), "{} is no JSON object"),
    pytest.param(_written("[]"), "{} is no JSON object"),
]


@pytest.mark.parametrize("file", ["config.v2.json", "hostconfig.json"])
@pytest.mark.parametrize(("damage", "sentence"), BOTH)
def test_files_that_are_not_used(
    docker: Docker, file: str, damage: Callable[[Path], None], sentence: str
) -> None:
    path = docker.record(requests=[TWO])
    damage(path / file)
    record, (problem,) = docker.find()
    assert record is None
    assert f"Docker's record of this container in {path} is not used: " in problem
    assert sentence.format(file) in problem


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_mode(0o730), "may write to the directory"),
        (_mode(0o777), "may write to the directory"),
        pytest.param(_give_away, "the directory belongs to the user", marks=ROOT_ONLY),
        (_link, "symbolic link"),
    ],
)
def test_directories_that_are_not_used(
    docker: Docker, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(docker.record())
    record, (problem,) = docker.find()
    assert record is None
    assert sentence in problem


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"ID": OTHER}, "is about another container"),
        ({"ID": None}, "is about another container"),
        ({"Name": None}, "Name in config.v2.json is no text"),
        ({"Name": 1}, "Name in config.v2.json is no text"),
        ({"Config": None}, "Config in config.v2.json is no JSON object"),
        ({"Config": []}, "Config in config.v2.json is no JSON object"),
        ({"Config": {"Labels": []}}, "Labels in config.v2.json is no object of texts"),
        ({"Config": {"Labels": {"a": 1}}}, "Labels in config.v2.json is no object of texts"),
        ({"Config": {"Labels": {"a": None}}}, "Labels in config.v2.json is no object of texts"),
    ],
)
def test_odd_members(docker: Docker, config: dict[str, Any], sentence: str) -> None:
    docker.record(**config)
    record, (problem,) = docker.find()
    assert record is None
    assert sentence in problem


@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ({}, "DeviceRequests in hostconfig.json is no list"),
        ("all", "DeviceRequests in hostconfig.json is no list"),
        ([None], "device request 1 in hostconfig.json is no JSON object"),
        ([TWO, 2], "device request 2 in hostconfig.json is no JSON object"),
        ([{"Driver": 1}], "Driver of device request 1 in hostconfig.json is no text"),
        ([{"Count": "2"}], "Count of device request 1 in hostconfig.json is no whole number"),
        ([{"Count": 2.5}], "is no whole number"),
        ([{"Count": True}], "is no whole number"),
        ([{"DeviceIDs": "0"}], "DeviceIDs of device request 1 in hostconfig.json is no list"),
        ([{"DeviceIDs": [0]}], "is no list of texts"),
        ([{"Capabilities": ["gpu"]}], "Capabilities of device request 1"),
        ([{"Capabilities": [[1]]}], "Capabilities of device request 1"),
        ([{"Options": []}], "Options of device request 1 in hostconfig.json is no object"),
        ([{"Options": {"memory": 2}}], "is no object of texts"),
    ],
)
def test_odd_requests(docker: Docker, requests: Any, sentence: str) -> None:
    docker.record(requests=requests)
    record, (problem,) = docker.find()
    assert record is None
    assert sentence in problem


def test_a_directory_without_the_files(docker: Docker) -> None:
    """Another program's, so there is nothing to say."""
    path = docker.record()
    (path / "config.v2.json").unlink()
    assert docker.find() == (None, [])
    docker.record()
    (path / "hostconfig.json").unlink()
    record, (problem,) = docker.find()
    assert record is None
    assert "hostconfig.json is missing" in problem


def test_a_broken_record_and_a_good_one(docker: Docker, tmp_path: Path) -> None:
    """The good one counts, and the other is said."""
    decoy = Docker(tmp_path / "decoy")
    (decoy.record() / "config.v2.json").write_text("")
    docker.record()
    mounts = [*decoy.mounts(files=("hosts",)), *docker.mounts(files=("hostname",))]
    record, problems = find(mounts, "", ID)
    assert record is not None
    assert record.directory.startswith(str(docker.root))
    assert len(problems) == 1


@pytest.mark.parametrize("path", ["link", "link/.."])
def test_links_above_the_record_are_followed(docker: Docker, tmp_path: Path, path: str) -> None:
    """A data root may be one."""
    docker.record()
    (tmp_path / "link").symlink_to(docker.root)
    place = tmp_path / "link" if path == "link" else f"{tmp_path}/link/../data"
    record, _ = find([(f"{place}/containers/{ID}/hosts", "/etc/hosts")], "", ID)
    assert record is not None


@pytest.mark.parametrize(
    ("driver", "capabilities", "wanted"),
    [
        ("", [["gpu"]], True),
        ("", [["nvidia"]], True),
        ("", [["gpu", "utility", "compute"]], True),
        ("", [["tpu"], ["gpu"]], True),
        ("", [["compute", "video"]], True),
        ("nvidia", [["gpu"]], True),
        # Docker took the driver that was named, so its words are that driver's.
        ("nvidia", [["utility"]], True),
        ("nvidia.cdi", [], True),
        ("nvidia.runtime-hook", [["gpu"]], True),
        ("gpushim", [["gpu"]], True),
        # Other vendors', other kinds', and none at all.
        ("", [["gpu", "amd"]], False),
        ("", [["tpu"]], False),
        ("", [[]], False),
        ("", [], False),
        ("amd", [["gpu"]], False),
        ("cdi", [], False),
        ("cdi", [["gpu"]], False),
        ("NVIDIA", [["gpu"]], False),
    ],
)
def test_requests_for_gpus(
    docker: Docker, driver: str, capabilities: list[list[str]], wanted: bool
) -> None:
    docker.record(requests=[{**TWO, "Driver": driver, "Capabilities": capabilities}])
    record, _ = docker.find()
    assert record is not None
    assert bool(gpu_requests(record)) == wanted


def test_cdi_names(docker: Docker) -> None:
    names = [["nvidia.com/gpu=0", "vendor.com/x=a"], ["vendor.com/x=a", "vendor.com/x=b"]]
    cdi = [{"Driver": "cdi", "DeviceIDs": ids} for ids in names]
    docker.record(requests=[cdi[0], {**TWO, "DeviceIDs": ["1"]}, cdi[1]])
    record, _ = docker.find()
    assert record is not None
    assert cdi_names(record) == ["nvidia.com/gpu=0", "vendor.com/x=a", "vendor.com/x=b"]
    assert [request.ids for request in gpu_requests(record)] == [["1"]]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"mounts": None, "root": None},
        {"mounts": {}, "root": []},
        {"mounts": [None, 1, {}, {"source": 1, "destination": "/etc/hosts"}], "root": {"path": 1}},
    ],
)
def test_by_a_spec(docker: Docker, odd: dict[str, Any]) -> None:
    docker.record()
    assert find_by_spec(odd, ID) == (None, [])
    assert name_by_spec(odd, ID) == ""
    mounts = [{"source": source, "destination": there} for source, there in docker.mounts()]
    usual = odd.get("mounts") if isinstance(odd.get("mounts"), list) else []
    for spec in (
        {**odd, "mounts": [*(usual or []), *mounts]},
        {**odd, "root": {"path": f"{docker.root}/vfs/dir/1"}},
    ):
        record, problems = find_by_spec(spec, ID)
        assert record is not None
        assert (problems, name_by_spec(spec, ID)) == ([], "web")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values),
    max_leaves=10,
)
_members = st.sampled_from(
    ["ID", "Name", "Config", "Labels", "DeviceRequests", "Driver", "Count", "DeviceIDs", "Options"]
)
_like = st.recursive(
    _json | st.just(ID), lambda values: st.dictionaries(_members, values) | st.lists(values)
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(config=_like, host=_like, data=st.binary(max_size=30))
def test_no_content_raises_anything(tmp_path: Path, config: Any, host: Any, data: bytes) -> None:
    docker = Docker(tmp_path / "data")
    path = docker.record()
    for file, value in (("config.v2.json", config), ("hostconfig.json", host)):
        docker.record()
        for content in (json.dumps(value).encode(), data):
            (path / file).write_bytes(content)
            record, problems = docker.find()
            assert (record is None) == bool(problems)
    docker.record()
    whole = {"ID": ID, "Name": "", "Config": {"Labels": config}}
    (path / "config.v2.json").write_text(json.dumps(whole))
    (path / "hostconfig.json").write_text(json.dumps({"DeviceRequests": [host]}))
    record, problems = docker.find()
    assert (record is None) == bool(problems)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=20), st.sampled_from(["/etc/hosts", "/etc/hostname", ""]))),
    st.text(max_size=20),
    st.text(max_size=10),
)
def test_no_place_raises_anything(mounts: list[tuple[str, str]], root: str, id: str) -> None:
    assert find(mounts, root, id)[0] is None
