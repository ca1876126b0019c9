"""Edits become members of a spec; applied twice they change nothing more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushim.oci.apply import apply
from gpushim.oci.edits import CAPABILITY_SETS, HOOK_STAGES, DeviceNode, Edits, Hook, Mount
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["A", "B", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"]
PATHS = ["/a", "/a/b", "/usr/local/nvidia", "/usr/local/nvidia/", "/dev/nvidia0", "/dev/nvidiactl"]
PROGRAMS = ["/usr/bin/nvidia-container-runtime-hook", "/sbin/mount", "nvidia-container-toolkit", ""]

nodes = st.builds(
    DeviceNode,
    st.sampled_from(PATHS),
    st.just("/host/node"),
    st.integers(0, 3),
    st.integers(0, 3),
    file_mode=st.sampled_from([0o666, 0o660, None]),
    gid=st.sampled_from([0, 1, None]),
    permissions=st.sampled_from(["rw", "rwm", ""]),
    type=st.sampled_from("cbup"),
)
mounts = st.builds(
    Mount,
    st.just("/host"),
    st.sampled_from(PATHS),
    st.sampled_from([["ro", "bind"], ["bind"]]),
    st.sampled_from(["bind", "tmpfs"]),
)
hooks = st.builds(
    Hook,
    st.sampled_from(HOOK_STAGES),
    st.sampled_from(["/sbin/mount", "/x/hook"]),
    st.just(["mount", "x"]),
    st.just(["LC_ALL=C"]),
    st.sampled_from([None, 5]),
)


@st.composite
def edits_of(draw: st.DrawFn) -> Edits:
    edits = Edits()
    edits.env = draw(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=3), max_size=3))
    edits.remove_env = draw(st.lists(st.sampled_from(NAMES), max_size=2))
    edits.device_nodes = draw(st.lists(nodes, max_size=4))
    edits.mounts = draw(st.lists(mounts, max_size=4))
    edits.hooks = draw(st.lists(hooks, max_size=2))
    edits.additional_gids = draw(st.lists(st.integers(1, 3), max_size=3))
    edits.remove_hooks = draw(
        st.lists(st.sampled_from([p.rpartition("/")[2] for p in PROGRAMS[::2]]), max_size=2)
    )
    edits.remove_devices = draw(st.lists(st.sampled_from(PATHS), max_size=3))
    edits.remove_mounts = draw(st.lists(st.sampled_from(PATHS), max_size=3))
    edits.net_devices = draw(
        st.dictionaries(st.sampled_from(["eth0", "eth1"]), st.sampled_from(["a", "b"]), max_size=2)
    )
    edits.intel_rdt = draw(st.sampled_from([None, {"closID": "x"}, {"enableMonitoring": True}]))
    edits.resources = draw(
        st.dictionaries(
            st.sampled_from(["memory", "unified"]),
            st.dictionaries(st.sampled_from(["limit", "pids.max"]), st.integers(1, 2), max_size=2),
            max_size=2,
        )
    )
    edits.memory_policy = draw(st.sampled_from([None, {"mode": "MPOL_PREFERRED", "nodes": "1"}]))
    edits.tmpfs_sizes = draw(
        st.dictionaries(st.sampled_from(["/a", "/a/b"]), st.integers(1, 2), max_size=2)
    )
    edits.drop_capabilities = draw(st.lists(st.sampled_from(["CAP_A", "CAP_B"]), max_size=2))
    edits.no_new_privileges = draw(st.booleans())
    edits.bind_devices = draw(st.booleans())
    edits.sort_mounts = draw(st.booleans())
    return edits


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


ENTRIES = st.lists(
    st.sampled_from(
        ["A=1", "A=2", "A", "B=", "=", "", "NVIDIA_VISIBLE_DEVICES=all", "C=\ud800", 7]
    ),
    max_size=6,
)
RULES = st.lists(
    st.sampled_from(
        [
            {"allow": False, "access": "rwm"},
            {"allow": True, "access": "rwm"},
            {"allow": True, "type": "c", "major": 1, "minor": 1, "access": "rw"},
            {"allow": True, "type": "c", "major": 1, "minor": 0, "access": "rwm"},
            {"allow": True, "type": "b", "major": 1, "minor": 1, "access": "r"},
            None,
            "x",
        ]
    ),
    max_size=4,
)
SPECS = st.fixed_dictionaries(
    {"ociVersion": st.just("1.0.2")},
    optional={
        "process": maybe(
            st.fixed_dictionaries(
                {},
                optional={
                    "env": maybe(ENTRIES),
                    "user": maybe(
                        st.fixed_dictionaries(
                            {"uid": st.just(0)},
                            optional={"additionalGids": maybe(st.lists(st.integers(0, 3)))},
                        )
                    ),
                    "unknown": st.just({"x": [1.0]}),
                    "noNewPrivileges": maybe(st.booleans()),
                    "capabilities": maybe(
                        st.dictionaries(
                            st.sampled_from(CAPABILITY_SETS),
                            maybe(st.lists(st.sampled_from(["CAP_A", "cap_a", "CAP_C", 7]))),
                            max_size=3,
                        )
                    ),
                },
            )
        ),
        "mounts": maybe(
            st.lists(
                st.fixed_dictionaries(
                    {"destination": st.sampled_from([*PATHS, "rel", 5])},
                    optional={
                        "type": st.sampled_from(["tmpfs", "bind"]),
                        "options": maybe(
                            st.lists(st.sampled_from(["ro", "size=1", "size=65536k"]), max_size=3)
                        ),
                    },
                )
                | st.none(),
                max_size=4,
            )
        ),
        "linux": maybe(
            st.fixed_dictionaries(
                {},
                optional={
                    "devices": maybe(
                        st.lists(
                            st.fixed_dictionaries(
                                {"path": st.sampled_from(PATHS)},
                                optional={
                                    "type": st.sampled_from("cbup"),
                                    "major": st.integers(0, 2),
                                    "minor": st.integers(0, 2),
                                },
                            )
                        )
                    ),
                    "netDevices": maybe(st.just({"eth0": {"name": "a"}, "eth9": {}})),
                    "memoryPolicy": maybe(st.just({"mode": "MPOL_BIND", "nodes": "0"})),
                    "intelRdt": maybe(st.just({"closID": "x", "l3CacheSchema": "L3:0=f"})),
                    "resources": maybe(
                        st.fixed_dictionaries(
                            {},
                            optional={
                                "devices": maybe(RULES),
                                "memory": maybe(st.just({"limit": 7, "swap": -1})),
                                "unified": maybe(st.just({"memory.high": "max"})),
                            },
                        )
                    ),
                },
            )
        ),
        "hooks": maybe(
            st.dictionaries(
                st.sampled_from(HOOK_STAGES),
                maybe(st.lists(st.fixed_dictionaries({"path": st.sampled_from(PROGRAMS)}))),
                max_size=3,
            )
        ),
    },
)


@given(SPECS, edits_of())
def test_twice_is_once(spec: dict[str, Any], edits: Edits) -> None:
    """B05, B01, B02."""
    once = apply(json.dumps(spec), edits)
    assert apply(once, edits) == once


@given(SPECS)
def test_no_edits_change_nothing(spec: dict[str, Any]) -> None:
    text = json.dumps(spec, indent=1)
    assert apply(text, Edits()) is text


@given(SPECS, edits_of())
def test_everything_is_there_afterwards(spec: dict[str, Any], edits: Edits) -> None:
    after = json.loads(apply(json.dumps(spec), edits))
    env = (after.get("process") or {}).get("env") or []
    for name, value in edits.env.items():
        there = [e for e in env if isinstance(e, str) and e.partition("=")[0] == name]
        assert there == [f"{name}={value}"]
    for name in set(edits.remove_env) - edits.env.keys():
        assert not [e for e in env if isinstance(e, str) and e.partition("=")[0] == name]
    linux = after.get("linux") or {}
    rules = (linux.get("resources") or {}).get("devices") or []
    wanted = [rule_of(n) for n in edits.device_nodes if n.permissions and n.type != "p"]
    count = len({tuple(rule.items()) for rule in wanted})
    tail = rules[len(rules) - count :]
    assert all(rule in tail for rule in wanted)
    assert len(tail) == count
    paths = [d["path"].rstrip("/") for d in linux.get("devices") or []]
    places = [
        m["destination"].rstrip("/")
        for m in after.get("mounts") or []
        if m and isinstance(m["destination"], str)
    ]
    for node in edits.device_nodes:
        where = places if edits.bind_devices else paths
        assert where.count(node.path.rstrip("/")) == 1
    for mount in edits.mounts:
        assert places.count(mount.container_path.rstrip("/")) == 1
    ours = {n.path.rstrip("/") for n in edits.device_nodes}
    removed = {p.rstrip("/") for p in edits.remove_devices}
    assert not (removed - ours) & set(paths)
    if edits.intel_rdt is not None:
        assert linux["intelRdt"] == edits.intel_rdt
    for host, name in edits.net_devices.items():
        assert linux["netDevices"][host] == {"name": name}
    limits_are_there(after, edits)
    wanted_hooks = [hook_of(hook) for hook in edits.hooks]
    for stage, present in (after.get("hooks") or {}).items():
        for hook in present or []:
            if hook not in wanted_hooks:
                assert hook["path"].rpartition("/")[2] not in edits.remove_hooks, stage


def limits_are_there(after: dict[str, Any], edits: Edits) -> None:
    linux, process = after.get("linux") or {}, after.get("process") or {}
    resources = linux.get("resources") or {}
    for section, members in edits.resources.items():
        for name, value in members.items():
            assert resources[section][name] == value
    if edits.memory_policy is not None:
        assert linux["memoryPolicy"] == edits.memory_policy
    if edits.no_new_privileges:
        assert process["noNewPrivileges"] is True
    for names in (process.get("capabilities") or {}).values():
        for name in names or []:
            assert str(name).upper() not in edits.drop_capabilities
    ours = [mount.container_path.rstrip("/") for mount in edits.mounts]
    ours += [node.path.rstrip("/") for node in edits.device_nodes]
    for mount in after.get("mounts") or []:
        place = str((mount or {}).get("destination")).rstrip("/")
        if mount and mount.get("type") == "tmpfs" and place not in ours:
            size = edits.tmpfs_sizes.get(place)
            sizes = [o for o in mount.get("options") or [] if o.startswith("size=")]
            assert size is None or sizes == [f"size={size}"]


def rule_of(node: DeviceNode) -> dict[str, Any]:
    kind = "c" if node.type == "u" else node.type
    numbers = {"major": node.major, "minor": node.minor}
    return {"allow": True, "type": kind, **numbers, "access": node.permissions}


def hook_of(hook: Hook) -> dict[str, Any]:
    made = {"path": hook.path, "args": hook.args, "env": hook.env}
    return made if hook.timeout is None else {**made, "timeout": hook.timeout}


def made(**fields: Any) -> Edits:
    edits = Edits()
    for name, value in fields.items():
        setattr(edits, name, value)
    return edits


def applied(spec: Any, **fields: Any) -> Any:
    return json.loads(apply(json.dumps(spec), made(**fields)))


DOCKER = {
    "process": {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_MKNOD"], "ambient": None}},
    "mounts": [
        {"destination": "/dev/shm", "type": "tmpfs", "options": ["size=67108864", "mode=1777"]},
        {"destination": "/dev/shm/", "type": "bind", "options": ["size=1"]},
    ],
    "linux": {"resources": {"cpu": {"shares": 0}, "memory": {"swap": -1}, "pids": None}},
}


def test_limits_are_put_beside_what_is_there() -> None:
    after = applied(
        DOCKER,
        resources={"cpu": {"quota": 1, "period": 2}, "pids": {"limit": 3}, "unified": {"a.b": "4"}},
    )
    assert after["linux"]["resources"] == {
        "cpu": {"shares": 0, "quota": 1, "period": 2},
        "memory": {"swap": -1},
        "pids": {"limit": 3},
        "unified": {"a.b": "4"},
    }
    assert after["mounts"] == DOCKER["mounts"]


def test_only_a_tmpfs_is_resized() -> None:
    after = applied(DOCKER, tmpfs_sizes={"/dev/shm": 5, "/elsewhere": 6})["mounts"]
    assert after[0]["options"] == ["mode=1777", "size=5"]
    assert after[1:] == DOCKER["mounts"][1:]  # type: ignore[index]


def test_a_tmpfs_is_resized_where_a_mount_goes_before_it() -> None:
    """CDI's order puts a mount at /dev before the one that lies in it."""
    after = applied(
        DOCKER,
        tmpfs_sizes={"/dev/shm": 5},
        mounts=[Mount("/host", "/dev", ["bind"])],
        sort_mounts=True,
    )["mounts"]
    assert [mount["destination"] for mount in after] == ["/dev", "/dev/shm", "/dev/shm/"]
    assert after[1]["options"] == ["mode=1777", "size=5"]


def test_a_tmpfs_of_our_own_is_not_resized() -> None:
    after = applied(
        DOCKER, tmpfs_sizes={"/dev/shm": 5}, mounts=[Mount("shm", "/dev/shm", ["ro"], "tmpfs")]
    )
    assert [mount["options"] for mount in after["mounts"]] == [["ro"]]


def test_privileges_go_from_every_set_and_none_is_made() -> None:
    after = applied(DOCKER, drop_capabilities=["CAP_MKNOD"], no_new_privileges=True)["process"]
    assert after["capabilities"] == {"bounding": ["CAP_CHOWN"], "ambient": None}
    assert after["noNewPrivileges"] is True
    assert (
        "capabilities" not in applied({"process": {}}, drop_capabilities=["CAP_MKNOD"])["process"]
    )


def test_a_section_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"linux\.resources\.memory is not a JSON object"):
        applied({"linux": {"resources": {"memory": [1]}}}, resources={"memory": {"limit": 1}})


def test_limits_of_two_are_put_together() -> None:
    one = made(resources={"memory": {"limit": 1}}, drop_capabilities=["A"], tmpfs_sizes={"/a": 1})
    one.extend(made(resources={"memory": {"limit": 2}, "cpu": {"shares": 3}}))
    one.extend(made(memory_policy={"mode": "m"}, no_new_privileges=True, tmpfs_sizes={"/a": 2}))
    one.extend(Edits())
    data = one.to_json()
    assert data["resources"] == {"memory": {"limit": 2}, "cpu": {"shares": 3}}
    assert data["memoryPolicy"] == {"mode": "m"}
    assert data["tmpfsSizes"] == {"/a": 2}
    assert data["dropCapabilities"] == ["A"]
    assert data["noNewPrivileges"] is True


NODE = DeviceNode("/dev/nvidia0", "/host/dev/nvidia0", 195, 0)


def test_a_variable_is_set_where_it_stood_last() -> None:
    spec = {"process": {"env": ["A=1", "X=1", "A=2", "Y", "A=3", "Z="]}}
    assert applied(spec, env={"A": "new"})["process"]["env"] == ["X=1", "Y", "A=new", "Z="]
    assert applied(spec, env={"N": "1"})["process"]["env"][-1] == "N=1"


@pytest.mark.parametrize(
    "spec", [{}, {"process": None}, {"process": {}}, {"process": {"env": None}}]
)
def test_a_missing_environment_is_made(spec: Any) -> None:
    """B02."""
    assert applied(spec, env={"A": "1"})["process"]["env"] == ["A=1"]


@pytest.mark.parametrize(
    "linux", [None, {}, {"resources": None}, {"resources": {"devices": None}, "devices": None}]
)
def test_null_resources(linux: Any) -> None:
    """B01: null counts as absent; only what gains something is made."""
    after = applied({"linux": linux, "mounts": None}, device_nodes=[NODE])
    assert after["linux"]["devices"] == [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
        | {"fileMode": 0o666, "uid": 0, "gid": 0}
    ]
    assert after["linux"]["resources"]["devices"] == [
        {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}
    ]
    assert after["mounts"] is None
    assert "hooks" not in after
    assert "process" not in after


def test_mounts_of_the_same_place_give_way() -> None:
    spec = {"mounts": [{"destination": d} for d in ("/x/", "/y", "/x", "/x/y")]}
    after = applied(spec, mounts=[Mount("/h", "/x", ["ro"])])["mounts"]
    assert [m["destination"] for m in after] == ["/y", "/x/y", "/x"]
    assert after[-1] == {"destination": "/x", "type": "bind", "source": "/h", "options": ["ro"]}


def test_a_node_that_is_there_is_not_there_twice() -> None:
    """B06."""
    spec = {"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 9}]}}
    devices = applied(spec, device_nodes=[NODE])["linux"]["devices"]
    assert [(d["path"], d["major"]) for d in devices] == [("/dev/nvidia0", 195)]


def test_allow_rules_stand_behind_those_that_deny() -> None:
    allow = {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}
    deny = {"allow": False, "access": "rwm"}
    spec = {"linux": {"resources": {"devices": [allow, deny]}}}
    assert applied(spec, device_nodes=[NODE])["linux"]["resources"]["devices"] == [deny, allow]


def test_hooks_are_taken_out_by_their_programs_name() -> None:
    other = {"path": "/opt/nvidia-container-runtime-hook/other", "args": ["x"]}
    spec = {
        "hooks": {
            "prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}, other],
            "poststop": [{"path": "nvidia-container-runtime-hook"}],
        }
    }
    after = applied(spec, remove_hooks=["nvidia-container-runtime-hook"])
    assert after["hooks"] == {"prestart": [other], "poststop": []}


def test_nodes_by_bind_mounts() -> None:
    """B15: in a user namespace."""
    after = applied({}, device_nodes=[NODE], bind_devices=True)
    assert "devices" not in after["linux"]
    assert after["linux"]["resources"]["devices"][0]["minor"] == 0
    assert after["mounts"][0]["source"] == "/host/dev/nvidia0"
    assert after["mounts"][0]["destination"] == "/dev/nvidia0"


def test_additional_groups_are_added_once() -> None:
    spec = {"process": {"user": {"uid": 1, "additionalGids": [44, 5]}}}
    user = applied(spec, additional_gids=[44, 7, 7])["process"]["user"]
    assert user == {"uid": 1, "additionalGids": [44, 5, 7]}


def test_bytes_and_surrogates_survive() -> None:
    """B16."""
    text = '{"process":{"env":["A=\\ud800","B=\udce9", "C" ,"D=\\u0041"]},"x":1.50}'
    after = apply(text, made(env={"E": "1"}))
    assert after == '{"process":{"env":["A=\\ud800","B=\udce9", "C" ,"D=\\u0041","E=1"]},"x":1.50}'


def test_a_very_large_environment() -> None:
    """B17."""
    spec = {"process": {"env": [*(f"V{n}=x" for n in range(5000)), "L=" + "y" * 200_000]}}
    after = applied(spec, env={"NVIDIA_VISIBLE_DEVICES": "GPU-1"})["process"]["env"]
    assert after == [*spec["process"]["env"], "NVIDIA_VISIBLE_DEVICES=GPU-1"]


@pytest.mark.parametrize(
    "spec",
    ['{"process":[]}', '{"process":{"env":{}}}', '{"linux":"x"}', '{"mounts":{}}', "[]", "{"],
)
def test_wrong_types_are_a_value_error(spec: str) -> None:
    with pytest.raises(ValueError):
        apply(spec, made(env={"A": "1"}, device_nodes=[NODE], mounts=[Mount("/h", "/x", [])]))


def test_edits_as_plain_data() -> None:
    edits = made(
        env={"A": "1"},
        device_nodes=[NODE],
        mounts=[Mount("/h", "/x", ["ro"])],
        hooks=[Hook("createContainer", "/sbin/mount", ["mount"], [])],
    )
    data = json.loads(json.dumps(edits.to_json()))
    assert data["env"] == ["A=1"]
    assert data["deviceNodes"][0]["hostPath"] == "/host/dev/nvidia0"
    assert data["mounts"] == [{"hostPath": "/h", "containerPath": "/x", "options": ["ro"]}]
    assert data["hooks"][0]["hookName"] == "createContainer"


def test_all_edits_as_plain_data() -> None:
    edits = made(
        device_nodes=[DeviceNode("/dev/p", "/dev/p", 0, 0, None, None, None, "", "p")],
        mounts=[Mount("tmpfs", "/x", ["size=1m"], "tmpfs")],
        hooks=[Hook("poststop", "/h", ["h"], [], 5)],
        additional_gids=[44],
        intel_rdt={"closID": "x"},
        net_devices={"eth1": "net1"},
        remove_env=["A"],
        remove_hooks=["b"],
        remove_devices=["/dev/c"],
        remove_mounts=["/d"],
    )
    shared = {
        "deviceNodes": [
            {"path": "/dev/p", "hostPath": "/dev/p", "type": "p", "major": 0, "minor": 0}
            | {"permissions": "none"}
        ],
        "mounts": [
            {"hostPath": "tmpfs", "containerPath": "/x", "options": ["size=1m"], "type": "tmpfs"}
        ],
        "hooks": [{"hookName": "poststop", "path": "/h", "args": ["h"], "env": [], "timeout": 5}],
        "additionalGids": [44],
        "intelRdt": {"closID": "x"},
        "netDevices": [{"hostInterfaceName": "eth1", "name": "net1"}],
    }
    assert edits.container_edits() == shared
    assert edits.to_json() == shared | {
        "env": [],
        "removeEnv": ["A"],
        "removeHooks": ["b"],
        "removeDevices": ["/dev/c"],
        "removeMounts": ["/d"],
        "bindDevices": False,
    }


def test_edits_without_anything_are_an_empty_cdi_section() -> None:
    assert Edits().container_edits() == {}


def test_edits_are_extended_by_others() -> None:
    first = made(
        env={"A": "1", "B": "1"},
        additional_gids=[1],
        net_devices={"e0": "a"},
        intel_rdt={"closID": "x"},
        remove_env=["R"],
    )
    first.extend(
        made(
            env={"B": "2"},
            additional_gids=[2],
            net_devices={"e0": "b", "e1": "c"},
            mounts=[Mount("/h", "/x", [])],
            sort_mounts=True,
            bind_devices=True,
        )
    )
    assert first.env == {"A": "1", "B": "2"}
    assert first.additional_gids == [1, 2]
    assert first.net_devices == {"e0": "b", "e1": "c"}
    assert first.intel_rdt == {"closID": "x"}
    assert [mount.host_path for mount in first.mounts] == ["/h"]
    assert first.remove_env == ["R"]
    assert first.sort_mounts
    assert first.bind_devices
    first.extend(made(intel_rdt={"closID": "y"}))
    assert first.intel_rdt == {"closID": "y"}


ENGINES_GPUS: dict[str, Any] = {
    "devices": [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0},
        {"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1},
        {"path": "/dev/null2", "type": "c", "major": 1, "minor": 3},
        {"path": "/dev/null3", "type": "c", "major": 1, "minor": 3},
    ],
    "resources": {
        "devices": [
            {"allow": False, "access": "rwm"},
            {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rwm"},
            {"allow": True, "type": "c", "major": 195, "minor": 1, "access": "rwm"},
            {"allow": False, "type": "c", "major": 195, "minor": 1, "access": "rwm"},
            {"allow": True, "type": "b", "major": 195, "minor": 1, "access": "rwm"},
            {"allow": True, "type": "c", "major": 195, "access": "r"},
            {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
        ]
    },
}


def test_devices_that_an_engine_injected_are_taken_out_with_their_rules() -> None:
    after = applied({"linux": ENGINES_GPUS}, remove_devices=["/dev/nvidia1", "/dev/absent"])
    paths = [device["path"] for device in after["linux"]["devices"]]
    assert paths == ["/dev/nvidia0", "/dev/null2", "/dev/null3"]
    before = ENGINES_GPUS["resources"]["devices"]
    assert after["linux"]["resources"]["devices"] == before[:2] + before[3:]


def test_a_rule_stays_while_another_node_needs_it() -> None:
    after = applied({"linux": ENGINES_GPUS}, remove_devices=["/dev/null2"])
    assert after["linux"]["resources"] == ENGINES_GPUS["resources"]
    after = applied({"linux": ENGINES_GPUS}, remove_devices=["/dev/null2", "/dev/null3"])
    assert len(after["linux"]["resources"]["devices"]) == 6


def test_a_device_that_is_taken_out_and_added_is_there() -> None:
    after = applied({"linux": ENGINES_GPUS}, remove_devices=["/dev/nvidia0"], device_nodes=[NODE])
    assert [d["path"] for d in after["linux"]["devices"]][-1] == "/dev/nvidia0"
    rules = after["linux"]["resources"]["devices"]
    assert [r["access"] for r in rules if r.get("minor") == 0] == ["rw"]


def test_mounts_that_an_engine_injected_are_taken_out() -> None:
    spec = {"mounts": [{"destination": d} for d in ("/a", "/b/", "/c", "/b/c")]}
    after = applied(spec, remove_mounts=["/b", "/c/", "/z"], mounts=[Mount("/h", "/c", [])])
    assert [m["destination"] for m in after["mounts"]] == ["/a", "/b/c", "/c"]


@pytest.mark.parametrize(
    ("present", "added", "expected"),
    [
        (
            ["/proc", "/dev", "/dev/pts", "/sys"],
            ["/x"],
            ["/proc", "/dev", "/dev/pts", "/sys", "/x"],
        ),
        (["/usr/data", "/z"], ["/usr"], ["/usr", "/usr/data", "/z"]),
        (["/usr/data", "/z"], ["/usr/lib", "/usr"], ["/usr", "/usr/data", "/z", "/usr/lib"]),
        (["/a/b/c"], ["/a/b", "/a"], ["/a", "/a/b", "/a/b/c"]),
        (["/ab"], ["/a"], ["/ab", "/a"]),
        (["/", "/a"], ["/a/b"], ["/", "/a", "/a/b"]),
        (["/a", "/a/b"], ["/"], ["/", "/a", "/a/b"]),
        # Whoever covers a mount of their own meant it.
        (["/a/b/c", "/a"], ["/a/b"], ["/a/b/c", "/a", "/a/b"]),
        (["/a/b/c", "/a", "/a/b/d"], ["/a/b"], ["/a/b/c", "/a", "/a/b", "/a/b/d"]),
    ],
)
def test_mounts_of_cdi_devices_stand_where_they_cover_nothing(
    present: list[str], added: list[str], expected: list[str]
) -> None:
    spec = {"mounts": [{"destination": destination} for destination in present]}
    mounts = [Mount("/h", path, []) for path in added]
    after = applied(spec, mounts=mounts, sort_mounts=True)
    assert [m["destination"] for m in after["mounts"]] == expected


def test_present_mounts_stay_as_they_are_written() -> None:
    text = '{"mounts": [ {"destination" : "/a/b"} ,\n {"destination":"\\u002fc"} ]}'
    after = apply(text, made(mounts=[Mount("/h", "/a", [])], sort_mounts=True))
    ours = '{"destination":"/a","type":"bind","source":"/h","options":[]},'
    assert after == text.replace('{"destination" :', ours + '{"destination" :')


@pytest.mark.parametrize(
    ("node", "device", "rules"),
    [
        (
            DeviceNode("/dev/x", "/dev/x", 1, 2, None, None, None, "rwm", "b"),
            {"path": "/dev/x", "type": "b", "major": 1, "minor": 2},
            [{"allow": True, "type": "b", "major": 1, "minor": 2, "access": "rwm"}],
        ),
        (
            DeviceNode("/dev/x", "/dev/x", 1, 2, 0o600, 7, 8, "r", "u"),
            {"path": "/dev/x", "type": "u", "major": 1, "minor": 2}
            | {"fileMode": 0o600, "uid": 7, "gid": 8},
            [{"allow": True, "type": "c", "major": 1, "minor": 2, "access": "r"}],
        ),
        (
            DeviceNode("/dev/x", "/dev/x", 0, 0, None, None, None, "rwm", "p"),
            {"path": "/dev/x", "type": "p"},
            None,
        ),
        (
            DeviceNode("/dev/x", "/dev/x", 1, 2, None, None, None, "", "c"),
            {"path": "/dev/x", "type": "c", "major": 1, "minor": 2},
            None,
        ),
    ],
)
def test_kinds_of_nodes(node: DeviceNode, device: Any, rules: Any) -> None:
    linux = applied({}, device_nodes=[node])["linux"]
    assert linux["devices"] == [device]
    assert linux.get("resources", {}).get("devices") == rules


def test_intel_rdt_and_network_devices() -> None:
    spec = {"linux": {"intelRdt": {"closID": "old", "memBwSchema": "x"}, "netDevices": {"e0": {}}}}
    after = applied(spec, intel_rdt={"closID": "new"}, net_devices={"e0": "a", "e1": "b"})["linux"]
    assert after["intelRdt"] == {"closID": "new"}
    assert after["netDevices"] == {"e0": {"name": "a"}, "e1": {"name": "b"}}
