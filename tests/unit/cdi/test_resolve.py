"""CDI names become Edits, and the Edits members of a spec (facts C: injection, apply)."""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from gpushim.cdi.resolve import Target, resolve, target
from gpushim.cdi.state import current
from gpushim.errors import GpushimError
from gpushim.oci.apply import apply
from gpushim.oci.bundle import load
from gpushim.oci.edits import Edits
from gpushim.places import Places
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .specs import age, spec, write

NULL = (1, 3)


class Machine:
    """A private installation whose spec files a test writes."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.places = Places(str(base))
        self.low_level = self.program("runc", "exit 1")
        directories = [str(base / "low"), str(base / "high")]
        age(write(Path(self.places.config), f"[cdi]\nspec-dirs = {json.dumps(directories)}\n"))
        record = {"format": 1, "refresh_interpreter": sys.executable}
        write(Path(self.places.installation), record)

    def program(self, name: str, text: str) -> str:
        path = self.base / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def runtime(self, **said: Any) -> None:
        """Makes a low-level runtime that says this of its features."""
        self.low_level = self.program("other", f"cat <<'END'\n{json.dumps(said)}\nEND")

    def file(self, name: str, data: Any) -> str:
        return str(write(self.base / name, data))

    def resolve(
        self,
        *names: str,
        uid: int = 0,
        gid: int = 0,
        user_namespace: bool = False,
        binds_devices: bool = False,
    ) -> tuple[Edits, list[str]]:
        names = tuple(n if "=" in n else f"vendor.com/class={n}" for n in names)
        given_ = Target(uid, gid, user_namespace, binds_devices, self.low_level)
        return resolve(names, self.places, given_)

    def edits(self, edits: dict[str, Any], **how: Any) -> Edits:
        """What one device with these containerEdits becomes."""
        self.file("low/d.json", spec(d=edits))
        found, warnings = self.resolve("d", **how)
        assert not warnings
        return found

    def refused(self, edits: dict[str, Any], **how: Any) -> GpushimError:
        self.file("low/d.json", spec(d=edits))
        with pytest.raises(GpushimError) as refused:
            self.resolve("d", **how)
        return refused.value


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_devices_in_order_and_global_edits_once(machine: Machine) -> None:
    edits = {"env": ["GLOBAL=1", "DEVICE_a=first"], "additionalGids": [7]}
    machine.file("low/a.json", spec("a", "b", "c", edits=edits))
    machine.file("low/b.json", spec("x", kind="v/k", edits={"env": ["OTHER=1"]}))
    found, warnings = machine.resolve("b", "v/k=x", "a", "b")
    assert list(found.env.items()) == [
        ("GLOBAL", "1"),
        ("DEVICE_a", "vendor.com/class"),
        ("DEVICE_b", "vendor.com/class"),
        ("OTHER", "1"),
        ("DEVICE_x", "v/k"),
    ]
    assert found.additional_gids == [7]
    assert not warnings


def test_the_order_of_devices_decides_what_is_set_last(machine: Machine) -> None:
    machine.file("low/a.json", spec(a={"env": ["V=a"]}, b={"env": ["V=b"]}))
    assert machine.resolve("a", "b")[0].env == {"V": "b"}
    assert machine.resolve("b", "a")[0].env == {"V": "a"}


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.permutations(["a", "b", "c", "x"]))
def test_independent_devices_do_not_depend_on_their_order(
    machine: Machine, order: list[str]
) -> None:
    devices: Any = {
        name: {
            "env": [f"V{name}=1"],
            "mounts": [{"hostPath": "/", "containerPath": f"/m/{name}"}],
            "additionalGids": [40 + number],
        }
        for number, name in enumerate("abcx")
    }
    if not (machine.base / "low/a.json").exists():
        machine.file("low/a.json", spec(**devices))
    found = json.loads(apply("{}", machine.resolve(*order)[0]))
    same = json.loads(apply("{}", machine.resolve("a", "b", "c", "x")[0]))
    for data in (found, same):
        data["process"]["env"].sort()
        data["process"]["user"]["additionalGids"].sort()
        data["mounts"].sort(key=lambda mount: mount["destination"])
    assert found == same


def test_the_device_of_the_later_directory(machine: Machine) -> None:
    machine.file(
        "low/a.json", spec(a={"env": ["V=low"]}, b={"env": ["B=low"]}, edits={"env": ["G=l"]})
    )
    machine.file("high/a.json", spec(a={"env": ["V=high"]}, edits={"env": ["H=h"]}))
    assert machine.resolve("a")[0].env == {"H": "h", "V": "high"}
    assert machine.resolve("a", "b")[0].env == {"H": "h", "V": "high", "G": "l", "B": "low"}


def test_an_edit_of_a_moment_ago_counts(machine: Machine) -> None:
    for value in ("1", "2", "3"):
        (machine.base / "low").mkdir(exist_ok=True)
        (machine.base / "low/a.json").write_text(json.dumps(spec(a={"env": [f"V={value}"]})))
        assert machine.resolve("a")[0].env == {"V": value}


def test_yaml(machine: Machine) -> None:
    machine.file(
        "low/a.yaml",
        "cdiVersion: 0.5.0\nkind: vendor.com/class\ndevices:\n"
        "- name: 0\n  containerEdits:\n    env: [A=1]\n",
    )
    assert machine.resolve("0")[0].env == {"A": "1"}


# What cannot be given.


def test_all_that_cannot_be_given_is_named_and_nothing_is(machine: Machine) -> None:
    path = machine.file("low/a.json", spec("a", "b"))
    with pytest.raises(GpushimError) as refused:
        machine.resolve("a", "x", "nvidia.com/gpu=9", "b")
    assert refused.value.sentence == (
        "The CDI devices vendor.com/class=x, nvidia.com/gpu=9 cannot be given: no usable spec file "
        f"in {machine.base}/low, {machine.base}/high describes vendor.com/class=x, "
        "nvidia.com/gpu=9."
    )
    assert "There are: vendor.com/class=a, vendor.com/class=b." in refused.value.hint
    assert path not in refused.value.sentence


def test_without_any_spec_file(machine: Machine) -> None:
    with pytest.raises(GpushimError, match="no usable spec file in"):
        machine.resolve("x")


def test_a_conflict_names_its_files(machine: Machine) -> None:
    paths = [machine.file(f"low/{name}.json", spec("x", name)) for name in "ab"]
    with pytest.raises(GpushimError) as refused:
        machine.resolve("x", "a")
    assert f"described by several files, {paths[0]} and {paths[1]}" in refused.value.sentence
    assert machine.resolve("a", "b")[0].env


def test_a_broken_file_is_named_with_its_line(machine: Machine) -> None:
    machine.file("low/good.json", spec("a"))
    broken = machine.file("low/broken.json", spec("x", "x"))
    other = machine.file("low/other.json", spec("y", "y", kind="v/k"))
    text = machine.file("low/text.json", "{\n\n")
    with pytest.raises(GpushimError) as refused:
        machine.resolve("x")
    assert f"{broken}, line 14: devices[1].name: there are two" in refused.value.sentence
    assert f"{text}, line 3" in refused.value.sentence
    assert other not in refused.value.sentence
    assert machine.resolve("a")[0].env  # It costs only its own devices.


def test_many_broken_files_make_no_endless_sentence(machine: Machine) -> None:
    for number in range(20):
        machine.file(f"low/{number:02}.json", "{")
    with pytest.raises(GpushimError) as refused:
        machine.resolve("x")
    assert refused.value.sentence.count("this is no JSON") == 3


def test_many_devices_make_no_endless_hint(machine: Machine) -> None:
    machine.file("low/a.json", spec(*[f"d{number}" for number in range(50)]))
    with pytest.raises(GpushimError) as refused:
        machine.resolve("x")
    assert "d7, ..." in refused.value.hint


# Device nodes.


def nodes(edits: Edits) -> list[dict[str, Any]]:
    return [node.to_json() for node in edits.device_nodes]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, {"type": "c", "major": 1, "minor": 3, "permissions": "rwm"}),
        ({"type": "c"}, {"type": "c", "major": 1, "minor": 3, "permissions": "rwm"}),
        ({"type": "u"}, {"type": "u", "major": 1, "minor": 3, "permissions": "rwm"}),
        ({"major": 1, "minor": 3}, {"type": "c", "major": 1, "minor": 3, "permissions": "rwm"}),
        ({"permissions": "r"}, {"type": "c", "major": 1, "minor": 3, "permissions": "r"}),
        ({"permissions": "none"}, {"type": "c", "major": 1, "minor": 3, "permissions": "none"}),
        ({"permissions": ""}, {"type": "c", "major": 1, "minor": 3, "permissions": "rwm"}),
        (
            {"fileMode": 0o600, "uid": 5, "gid": 0},
            {"type": "c", "major": 1, "minor": 3, "permissions": "rwm"}
            | {"fileMode": 0o600, "uid": 5, "gid": 0},
        ),
    ],
)
def test_what_is_missing_is_taken_from_the_node(machine: Machine, node: Any, expected: Any) -> None:
    edits = machine.edits({"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null", **node}]})
    assert nodes(edits) == [{"path": "/dev/x", "hostPath": "/dev/null", **expected}]


def test_the_host_path_is_the_path_by_default(machine: Machine) -> None:
    assert machine.edits({"deviceNodes": [{"path": "/dev/zero"}]}).device_nodes[0].minor == 5


@pytest.mark.parametrize(("uid", "gid"), [(0, 0), (1000, 0), (1000, 100)])
def test_nodes_belong_to_the_user_of_the_process(machine: Machine, uid: int, gid: int) -> None:
    [node] = machine.edits({"deviceNodes": [{"path": "/dev/null"}]}, uid=uid, gid=gid).device_nodes
    assert (node.uid, node.gid) == (uid or None, gid or None)
    [node] = machine.edits(
        {"deviceNodes": [{"path": "/dev/null", "uid": 0, "gid": 7}]}, uid=uid, gid=gid
    ).device_nodes
    assert (node.uid, node.gid) == (0, 7)


@pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes takes root")
def test_a_block_device(machine: Machine) -> None:
    path = machine.base / "block"
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(7, 99))
    edits = machine.edits({"deviceNodes": [{"path": str(path)}]})
    assert nodes(edits)[0]["type"] == "b"
    assert json.loads(apply("{}", edits))["linux"]["resources"]["devices"] == [
        {"allow": True, "type": "b", "major": 7, "minor": 99, "access": "rwm"}
    ]


def test_a_fifo_has_no_numbers(machine: Machine) -> None:
    path = machine.base / "fifo"
    os.mkfifo(path)
    for node in ({"path": str(path)}, {"path": str(path), "type": "p"}):
        edits = machine.edits({"deviceNodes": [node]})
        linux = json.loads(apply("{}", edits))["linux"]
        assert linux == {"devices": [{"path": str(path), "type": "p"}]}


def test_a_node_that_a_spec_describes_in_full_may_be_absent(machine: Machine) -> None:
    node = {"path": "/dev/absent", "type": "c", "major": 240, "minor": 0}
    assert nodes(machine.edits({"deviceNodes": [node]}))[0]["major"] == 240
    node = {"path": "/dev/absent", "type": "p"}
    assert nodes(machine.edits({"deviceNodes": [node]}))[0]["type"] == "p"
    # Without mknod there is nothing that could be mounted.
    error = machine.refused({"deviceNodes": [node]}, binds_devices=True)
    assert "/dev/absent, which cannot be used: it does not exist" in error.sentence


@pytest.mark.parametrize(
    "node", [{}, {"type": "c"}, {"type": "c", "minor": 3}, {"major": 5, "minor": 3}]
)
def test_any_other_that_is_absent_is_refused(machine: Machine, node: Any) -> None:
    error = machine.refused({"deviceNodes": [{"path": "/dev/absent", **node}]})
    assert error.sentence == (
        "The CDI device vendor.com/class=d needs the device node /dev/absent, which cannot be "
        "used: it does not exist."
    )
    assert f"{machine.base}/low/d.json asks for it" in error.hint


def test_what_is_no_device_node_is_refused(machine: Machine) -> None:
    link, file = machine.base / "link", machine.base / "file"
    link.symlink_to("/dev/null")
    file.write_text("")
    for path, said in ((link, "symbolic link"), (file, "a file"), (machine.base, "a folder")):
        error = machine.refused({"deviceNodes": [{"path": "/dev/x", "hostPath": str(path)}]})
        assert f"it is {said.removeprefix('a ')}" in error.sentence.replace("it is a ", "it is ")


def test_a_node_of_another_type_is_refused(machine: Machine) -> None:
    error = machine.refused({"deviceNodes": [{"path": "/dev/null", "type": "b", "major": 1}]})
    assert "as a device node of type b, and it has the type c" in error.sentence


def test_outdated_numbers_are_those_of_the_node(machine: Machine) -> None:
    """B49: majors move between boots."""
    node = {"path": "/dev/null", "type": "c", "major": 510, "minor": 3}
    path = machine.file("low/a.json", spec(d={"deviceNodes": [node]}))
    edits, warnings = machine.resolve("d")
    assert (edits.device_nodes[0].major, edits.device_nodes[0].minor) == NULL
    assert warnings == [
        f"{path} has the numbers 510:3 for /dev/null, which is 1:3 now; the container gets the "
        "latter."
    ]


def test_the_last_of_two_nodes_of_a_path(machine: Machine) -> None:
    first = {"path": "/dev/x", "hostPath": "/dev/zero"}
    second = {"path": "/dev/x", "hostPath": "/dev/null"}
    machine.file("low/a.json", spec(d={"deviceNodes": [second]}, edits={"deviceNodes": [first]}))
    edits, _ = machine.resolve("d")
    assert [node.host_path for node in edits.device_nodes] == ["/dev/null"]


# Mounts, hooks, groups.


def test_mounts_are_sorted_into_those_that_are_there(machine: Machine) -> None:
    mounts = [
        {"hostPath": "/dev", "containerPath": "/usr/lib/x", "options": ["ro", "rbind"]},
        {"hostPath": "/etc", "containerPath": "/usr"},
        {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs"},
    ]
    edits = machine.edits({"mounts": mounts})
    before = json.dumps({"mounts": [{"destination": "/proc"}, {"destination": "/usr/share"}]})
    after = json.loads(apply(before, edits))["mounts"]
    assert [mount["destination"] for mount in after] == [
        "/proc",
        "/usr",
        "/usr/share",
        "/t",
        "/usr/lib/x",
    ]
    assert after[1] == {
        "destination": "/usr",
        "type": "bind",
        "source": "/etc",
        "options": ["bind"],
    }
    assert after[3]["type"] == "tmpfs"
    assert apply(json.dumps({"mounts": after}), edits).count('"/usr"') == 1


def test_a_file_that_is_gone_is_told_with_its_spec(machine: Machine) -> None:
    """A spec of the driver before: the low-level runtime would not tell where it comes from."""
    mount = {"hostPath": "/usr/lib/libx.so.550", "containerPath": "/usr/lib/libx.so.550"}
    error = machine.refused({"mounts": [mount]})
    assert error.sentence == (
        "The CDI device vendor.com/class=d needs /usr/lib/libx.so.550, which cannot be used: it "
        "does not exist."
    )
    assert error.hint.startswith(f"{machine.base}/low/d.json asks for it; if that is outdated")
    other = {"hostPath": "absent", "containerPath": "/x", "type": "tmpfs"}
    assert machine.edits({"mounts": [other]}).mounts


def test_hooks_run_with_their_own_environment_only(machine: Machine) -> None:
    edits = machine.edits(
        {
            "hooks": [
                {"hookName": "createContainer", "path": "/bin/a"},
                {"hookName": "poststop", "path": "/bin/b", "args": ["b", "x"], "env": ["A=1"]}
                | {"timeout": 5},
            ]
        }
    )
    assert json.loads(apply("{}", edits))["hooks"] == {
        "createContainer": [{"path": "/bin/a", "args": ["/bin/a"], "env": []}],
        "poststop": [{"path": "/bin/b", "args": ["b", "x"], "env": ["A=1"], "timeout": 5}],
    }


def test_additional_groups(machine: Machine) -> None:
    edits = machine.edits({"additionalGids": [0, 44, 44, 5]})
    user = json.loads(apply('{"process":{"user":{"additionalGids":[5]}}}', edits))["process"]
    assert user == {"user": {"additionalGids": [5, 44]}}


def test_groups_of_the_host_are_none_in_a_user_namespace(machine: Machine) -> None:
    machine.file("low/a.json", spec(d={"additionalGids": [44], "env": ["A=1"]}))
    edits, warnings = machine.resolve("d", binds_devices=True)
    assert edits.additional_gids == []
    assert "the groups 44" in warnings[0]


# User namespaces.

IDMAP = {"mountOptions": ["idmap", "ridmap"]}


@pytest.mark.parametrize(
    ("options", "kind", "expected"),
    [
        (["ro", "bind"], "", ["ro", "bind", "idmap"]),
        (["rbind"], "", ["rbind", "ridmap"]),
        (["rbind"], "none", ["rbind", "ridmap"]),
        (["bind", "idmap"], "", ["bind", "idmap"]),
        (["bind", "ridmap"], "", ["bind", "ridmap"]),
        (["ro"], "tmpfs", ["ro"]),
        (["bind"], "tmpfs", ["bind"]),
        (["ro"], "", ["ro", "bind", "idmap"]),
        ([], "bind", ["bind", "idmap"]),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root maps the owners of a mount")
def test_owners_are_mapped_into_a_user_namespace(
    machine: Machine, options: list[str], kind: str, expected: list[str]
) -> None:
    mount = {"hostPath": "/", "containerPath": "/c", "options": options, "type": kind}
    machine.runtime(**IDMAP)
    [made] = machine.edits({"mounts": [mount]}, user_namespace=True, binds_devices=True).mounts
    assert made.options == expected
    plain = [option for option in expected if option in options or option == "bind"]
    [made] = machine.edits({"mounts": [mount]}).mounts
    assert made.options == plain
    machine.runtime()
    [made] = machine.edits({"mounts": [mount]}, user_namespace=True).mounts
    assert made.options == plain


def test_nodes_are_bind_mounts_in_a_user_namespace(machine: Machine) -> None:
    edits = machine.edits({"deviceNodes": [{"path": "/dev/null"}]}, binds_devices=True)
    data = json.loads(apply("{}", edits))
    assert "devices" not in data["linux"]
    assert data["mounts"][0]["source"] == "/dev/null"


# What not every low-level runtime knows.

NET: Any = {"netDevices": [{"hostInterfaceName": "e0", "name": "n0"}]}


@pytest.mark.parametrize(
    ("edits", "features", "said"),
    [
        (NET, {"netDevices": {"enabled": True}}, ""),
        (NET, {"netDevices": {"enabled": False}}, "network interfaces (netDevices)"),
        (NET, {}, "network interfaces (netDevices)"),
        ({"intelRdt": {"schemata": ["x"]}}, {"intelRdt": {"schemata": True}}, ""),
        ({"intelRdt": {"schemata": ["x"]}}, {"intelRdt": {"enabled": True}}, "schemata"),
        ({"intelRdt": {"enableMonitoring": True}}, {"intelRdt": {"monitoring": True}}, ""),
        ({"intelRdt": {"enableMonitoring": True}}, {}, "an intelRdt with enableMonitoring"),
        ({"intelRdt": {"closID": "a", "l3CacheSchema": "b", "memBwSchema": "c"}}, {}, ""),
        ({"intelRdt": {"closID": "a", "enableMonitoring": False}}, {}, ""),
    ],
)
def test_newer_fields_need_a_runtime_that_knows_them(
    machine: Machine, edits: Any, features: Any, said: str
) -> None:
    machine.runtime(linux=features)
    if said:
        error = machine.refused(edits)
        assert said in error.sentence
        assert machine.low_level in error.sentence
        assert "vendor.com/class=d" in error.sentence
        return
    linux = json.loads(apply("{}", machine.edits(edits)))["linux"]
    if edits is NET:
        assert linux == {"netDevices": {"e0": {"name": "n0"}}}
    else:
        assert linux == {"intelRdt": {k: v for k, v in edits["intelRdt"].items() if v}}


def test_a_runtime_without_features_is_refused_newer_fields(machine: Machine) -> None:
    assert "does not name among its features" in machine.refused(NET).sentence


def test_the_last_intel_rdt_counts(machine: Machine) -> None:
    first, second = {"closID": "a", "memBwSchema": "x"}, {"closID": "b"}
    machine.file("low/a.json", spec(a={"intelRdt": first}, b={"intelRdt": second}))
    assert machine.resolve("a", "b")[0].intel_rdt == second
    assert machine.resolve("b", "a")[0].intel_rdt == first


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        (("e0", "n0"), ("e1", "n1"), True),
        (("e0", "n0"), ("e0", "n0"), True),
        (("e0", "n0"), ("e0", "n1"), False),
        (("e0", "n0"), ("e1", "n0"), False),
    ],
)
def test_network_interfaces_of_several_devices(
    machine: Machine, first: tuple[str, str], second: tuple[str, str], fits: bool
) -> None:
    machine.runtime(linux={"netDevices": {"enabled": True}})
    devices: Any = {
        name: {"netDevices": [{"hostInterfaceName": host, "name": inside}]}
        for name, (host, inside) in zip("ab", (first, second), strict=True)
    }
    machine.file("low/a.json", spec(**devices))
    if fits:
        assert machine.resolve("a", "b")[0].net_devices == dict((first, second))
    else:
        with pytest.raises(GpushimError, match="contradicts another"):
            machine.resolve("a", "b")


# The whole.


def test_twice_is_once(machine: Machine) -> None:
    machine.runtime(linux={"netDevices": {"enabled": True}})
    edits = machine.edits(
        {
            "env": ["A=1"],
            "deviceNodes": [{"path": "/dev/null"}, {"path": "/dev/zero", "permissions": "none"}],
            "mounts": [{"hostPath": "/", "containerPath": path} for path in ("/a/b", "/a")],
            "hooks": [{"hookName": "poststop", "path": "/h"}],
            "additionalGids": [44],
            "intelRdt": {"closID": "x"},
            **NET,
        }
    )
    before = '{"mounts":[{"destination":"/a/b/c"},{"destination":"/a"},{"destination":"/z"}]}'
    once = apply(before, edits)
    assert apply(once, edits) == once
    assert [m["destination"] for m in json.loads(once)["mounts"]] == ["/a", "/a/b", "/a/b/c", "/z"]


def test_the_target_of_a_bundle(tmp_path: Path) -> None:
    specs: list[tuple[Any, tuple[int, int, bool]]] = [
        ({}, (0, 0, False)),
        ({"process": {"user": {"uid": 5, "gid": 6}}}, (5, 6, False)),
        ({"process": {"user": {"uid": "5", "gid": True}}}, (0, 0, False)),
        ({"linux": {"namespaces": [{"type": "pid"}, None, {"type": "user"}]}}, (0, 0, True)),
        ({"process": [], "linux": None}, (0, 0, False)),
    ]
    for data, expected in specs:
        (tmp_path / "config.json").write_text(json.dumps(data))
        made = target(load(str(tmp_path), "config.json"), False, "/runc")
        assert (made.uid, made.gid, made.user_namespace) == expected


def test_any_order_of_directories_and_files_gives_one_answer(machine: Machine) -> None:
    """A conflict below is none once a later directory has the device."""
    for low, high in itertools.product((1, 2), (0, 1)):
        for path in machine.base.glob("*/*.json"):
            path.unlink()
        for number in range(low):
            machine.file(f"low/{number}.json", spec(a={"env": ["V=low"]}))
        for number in range(high):
            machine.file(f"high/{number}.json", spec(a={"env": ["V=high"]}))
        state = current(machine.places)
        if high:
            assert machine.resolve("a")[0].env == {"V": "high"}
        elif low == 1:
            assert machine.resolve("a")[0].env == {"V": "low"}
        else:
            assert list(state["conflicts"]) == ["vendor.com/class=a"]
