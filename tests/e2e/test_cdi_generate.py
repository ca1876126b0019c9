"""Specs of `gpushimctl cdi generate`: containers of engines that know CDI and not gpushim.

What an engine makes of a spec is done here by hand for plain runc, so that every kind of root file
system can be had, and by Podman where it is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import cannot
from tests.fakehost import preset
from tests.harness import Bundle, Runtime, workspace
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, mount_points, outcomes, probe, variables

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
Generate = Callable[..., dict[str, Any]]

TREE = "/usr/local/nvidia/lib64"
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
# crun 1.8 does not start where version 1 and 2 of control groups are mixed, so it sees only one.
_ONE_CGROUP_VERSION = (
    *("unshare", "-m", "sh", "-c"),
    'if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi; exec "$0" "$@"',
)
LIBRARIES = ["libcuda.so.1", "libnvidia-ml.so.1"]


def generated(machine: Machine, *options: str) -> dict[str, Any]:
    """The spec that gpushimctl prints."""
    text = machine.installed.ctl("cdi", "generate", "--format", "json", *options)
    spec: dict[str, Any] = json.loads(text)
    return spec


@pytest.fixture(scope="module")
def spec(dgx: Machine) -> dict[str, Any]:
    return generated(dgx)


def inject(bundle: Bundle, spec: dict[str, Any], *names: str) -> Bundle:
    """Do to a bundle what an engine does for `--device KIND=NAME` (CDI SPEC.md, containerEdits)."""
    found = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    linux, process = bundle.config["linux"], bundle.config["process"]
    for edits in [spec["containerEdits"], *(found[name] for name in names)]:
        for node in edits.get("deviceNodes", []):
            there = os.stat(node.get("hostPath", node["path"])).st_rdev
            numbers = {"type": "c", "major": os.major(there), "minor": os.minor(there)}
            more = {key: node[key] for key in ("fileMode", "gid") if key in node}
            linux.setdefault("devices", []).append({"path": node["path"], **numbers, **more})
            rule = {"allow": True, **numbers, "access": node["permissions"]}
            linux.setdefault("resources", {}).setdefault("devices", []).append(rule)
        for mount in edits.get("mounts", []):
            bundle.config["mounts"].append(
                {
                    "destination": mount["containerPath"],
                    "source": mount["hostPath"],
                    "options": mount["options"],
                }
            )
        for hook in edits.get("hooks", []):
            hooks = bundle.config.setdefault("hooks", {}).setdefault(hook["hookName"], [])
            hooks.append({name: hook[name] for name in ("path", "args", "env", "timeout")})
        process["env"] += edits.get("env", [])
        process["user"].setdefault("additionalGids", []).extend(edits.get("additionalGids", []))
    bundle.write()
    return bundle


def test_the_names_of_devices(dgx: Machine, spec: dict[str, Any]) -> None:
    uuids = [gpu.uuid for gpu in dgx.host.gpus]
    names = [device["name"] for device in spec["devices"]]
    assert names == [name for pair in enumerate(uuids) for name in map(str, pair)] + ["all"]
    assert (spec["kind"], spec["cdiVersion"]) == ("nvidia.com/gpu", "0.7.0")
    few = generated(dgx, "--name", "index", "--no-all-device")
    assert [device["name"] for device in few["devices"]] == [str(index) for index in range(8)]
    by_uuid = generated(dgx, "--name", "uuid")
    assert [device["name"] for device in by_uuid["devices"]] == [*uuids, "all"]


def test_yaml_and_json_say_the_same(dgx: Machine, spec: dict[str, Any], tmp_path: Path) -> None:
    """And a file is written whole, with a sentence if nobody reads it there."""
    path = tmp_path / "made/nvidia.yaml"
    dgx.installed.ctl("cdi", "generate", "--output", path)
    assert yaml.safe_load(path.read_text()) == spec
    assert path.stat().st_mode & 0o7777 == 0o644
    assert os.listdir(path.parent) == ["nvidia.yaml"]
    dgx.installed.ctl("cdi", "generate", "--output", path.with_suffix(".json"))
    assert json.loads(path.with_suffix(".json").read_text()) == spec


@pytest.mark.parametrize("options", [[], ["--layout", "files"], ["--no-hook"]])
def test_our_own_reader_accepts_it(dgx: Machine, tmp_path: Path, options: list[str]) -> None:
    """By the rules of the specification and by its schema."""
    for form in ("json", "yaml"):
        path = tmp_path / f"nvidia.{form}"
        dgx.installed.ctl("cdi", "generate", "--output", path, *options)
        dgx.installed.ctl("cdi", "validate", path)


def refused(machine: Machine, *options: str) -> str:
    with pytest.raises(AssertionError) as failure:
        generated(machine, *options)
    return str(failure.value)


def test_what_is_refused(dgx: Machine, tmp_path: Path) -> None:
    assert "'foo'" in refused(dgx, "--capabilities", "compute,foo")
    assert "is a folder" in refused(dgx, "--output", str(tmp_path))
    (tmp_path / "file").touch()
    assert "can't be written" in refused(dgx, "--output", f"{tmp_path}/file/nvidia.yaml")


def test_an_older_version_where_that_will_do(dgx: Machine) -> None:
    """Additional groups need 0.7.0, which the engines of Debian 12 do not know yet."""
    spec = generated(dgx, "--capabilities", "compute,utility")
    assert spec["cdiVersion"] == "0.5.0"
    paths = {
        node["path"]
        for device in spec["devices"]
        for node in device["containerEdits"]["deviceNodes"]
    }
    assert paths == {f"/dev/nvidia{minor}" for minor in range(8)}


@pytest.mark.parametrize(
    ("image", "root", "readonly"),
    [
        ("debian", "overlay", False),
        ("debian", "overlay", True),
        ("debian", "copy", False),
        ("fedora-like", "overlay", False),
        ("fedora-like", "copy", True),
        ("distroless", "overlay", False),
        ("distroless", "copy", False),
    ],
)
def test_two_gpus(
    dgx: Machine,
    spec: dict[str, Any],
    runc: Runtime,
    make_bundle: MakeBundle,
    image: str,
    root: str,
    readonly: bool,
) -> None:
    """Each image's own loader finds the driver, and the nodes are those of the named GPUs."""
    command = probe(["open", *NODES], ["dlopen", *LIBRARIES], ["env"], ["ls", "/dev"])
    bundle = make_bundle(image, command, root=root, readonly=readonly)
    seen = runc.run(inject(bundle, spec, "1", dgx.host.gpus[3].uuid)).check().stdout
    assert devices(seen) == dict.fromkeys([*CONTROL, dgx.node(1), dgx.node(3)], "ENXIO")
    assert [outcomes(seen)[name] for name in LIBRARIES] == [f"{TREE}/{name}" for name in LIBRARIES]
    assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert ".gpushim" not in seen


def test_all_and_nvidia_smi(
    dgx: Machine, spec: dict[str, Any], runc: Runtime, make_bundle: MakeBundle
) -> None:
    bundle = inject(make_bundle("debian", ["nvidia-smi", "-L"]), spec, "all")
    assert runc.run(bundle).check().stdout.count("GPU ") == 8


def test_ldconfig_in_the_container_keeps_the_driver(
    spec: dict[str, Any], runc: Runtime, make_bundle: MakeBundle
) -> None:
    script = "ldconfig && exec /usr/local/bin/probe dlopen libcuda.so.1"
    bundle = inject(make_bundle("debian", ["/bin/sh", "-c", script]), spec, "0")
    assert TREE in runc.run(bundle).check().stdout


def test_a_root_that_others_may_share_is_not_written_to(
    spec: dict[str, Any], runc: Runtime, make_bundle: MakeBundle
) -> None:
    bundle = inject(make_bundle("debian", probe(["mounts"]), root="copy"), spec, "0")
    cache = bundle.rootfs / "etc/ld.so.cache"
    drop_ins = bundle.rootfs / "etc/ld.so.conf.d"
    before = cache.read_bytes(), sorted(os.listdir(drop_ins))
    seen = runc.run(bundle).check().stdout
    assert "/etc/ld.so.cache" in mount_points(seen)
    assert (cache.read_bytes(), sorted(os.listdir(drop_ins))) == before


@pytest.mark.parametrize("image", ["musl", "busybox", "scratch"])
def test_images_whose_loader_can_t_be_helped(
    spec: dict[str, Any], runc: Runtime, make_bundle: MakeBundle, image: str
) -> None:
    """They start, and have the files."""
    bundle = make_bundle(image, probe(["ls", TREE], ["open", *NODES]))
    seen = runc.run(inject(bundle, spec, "0")).check().stdout
    assert "libcuda.so.1" in seen
    assert len(devices(seen)) == 4


@pytest.mark.parametrize("root", ["overlay", "copy"])
def test_a_user_namespace(dgx: Machine, runc: Runtime, make_bundle: MakeBundle, root: str) -> None:
    """The hook can write nothing of the host's, and needs no device nodes for what it does."""
    spec = generated(dgx)
    bundle = make_bundle(
        "debian", probe(["dlopen", *LIBRARIES], ["mounts"]), root=root, userns=True
    )
    spec["containerEdits"]["deviceNodes"] = []
    spec["devices"] = [{"name": "none", "containerEdits": {}}]
    seen = runc.run(inject(bundle, spec, "none")).check().stdout
    assert outcomes(seen)["libcuda.so.1"] == f"{TREE}/libcuda.so.1"


@pytest.mark.parametrize("root", ["overlay", "copy"])
def test_crun(spec: dict[str, Any], make_bundle: MakeBundle, root: str) -> None:
    """Its hooks find the same as runc's; without device rules, which it can't set everywhere."""
    bundle = make_bundle("debian", probe(["dlopen", *LIBRARIES]), root=root, cgroups=False)
    alone = {**spec["containerEdits"], "deviceNodes": []}
    none = {"name": "none", "containerEdits": {}}
    inject(bundle, {**spec, "containerEdits": alone, "devices": [none]}, "none")
    with Runtime(*_ONE_CGROUP_VERSION, "crun", "--cgroup-manager=disabled") as crun:
        seen = crun.run(bundle).check().stdout
    assert outcomes(seen)["libcuda.so.1"] == f"{TREE}/libcuda.so.1"


def test_without_a_hook(dgx: Machine, runc: Runtime, make_bundle: MakeBundle) -> None:
    spec = generated(dgx, "--no-hook")
    assert "hooks" not in spec["containerEdits"]
    bundle = inject(make_bundle("debian", probe(["dlopen", *LIBRARIES], ["env"])), spec, "0")
    seen = runc.run(bundle).check().stdout
    assert outcomes(seen)["libcuda.so.1"] == f"{TREE}/libcuda.so.1"
    assert variables(seen)["LD_LIBRARY_PATH"].split(":")[0] == TREE
    assert not (bundle.rootfs / "etc/ld.so.conf.d/00-gpushim.conf").exists()


@pytest.mark.parametrize("image", ["debian", "fedora-like"])
@pytest.mark.parametrize("hook", [True, False])
def test_each_file_by_itself(
    dgx: Machine, runc: Runtime, make_bundle: MakeBundle, image: str, hook: bool
) -> None:
    """In this machine's library directory, where the loaders of its own distribution look."""
    spec = generated(dgx, "--layout", "files", *([] if hook else ["--no-hook"]))
    command = probe(["dlopen", *LIBRARIES], ["mounts"])
    bundle = inject(make_bundle(image, command), spec, "0")
    before = (bundle.rootfs / "etc/ld.so.cache").read_bytes()
    seen = runc.run(bundle).check().stdout
    paths = [outcomes(seen)[name] for name in LIBRARIES]
    assert [os.path.basename(path) for path in paths] == LIBRARIES
    assert all("x86_64-linux-gnu" in path for path in paths)
    assert "/usr/bin/nvidia-smi" in mount_points(seen)
    assert "/usr/local/nvidia" not in mount_points(seen)
    changed = (bundle.rootfs / "etc/ld.so.cache").read_bytes() != before
    assert changed is (hook and image == "fedora-like")


def test_the_params_file(
    make_machine: Callable[..., Machine], runc: Runtime, make_bundle: MakeBundle
) -> None:
    """A fixture hook puts the driver's file in the container's /proc first (test_gpu_params)."""
    machine = make_machine(preset("dgx_a100", modify_device_files=1))
    spec = generated(machine)
    look = probe(["cat", "/proc/driver/nvidia/params"], ["write", "/proc/driver/nvidia/params"])
    bundle = make_bundle("debian", look)
    root, source = bundle.rootfs, machine.host.proc_root / "driver/nvidia/params"
    script = (
        f"mount -n -t tmpfs -o mode=755 driver {root}/proc/driver && "
        f"mkdir {root}/proc/driver/nvidia && cp {source} {root}/proc/driver/nvidia/params"
    )
    hook = {
        "hookName": "createContainer",
        "path": "/bin/sh",
        "args": ["sh", "-c", script],
        "env": ["PATH=/usr/bin:/bin"],
        "timeout": 60,
    }
    spec["containerEdits"]["hooks"].insert(0, hook)
    # After a boot nobody has made the prepared copy yet.
    Path(machine.places.params).unlink()
    seen = runc.run(inject(bundle, spec, "0")).stdout
    assert "ModifyDeviceFiles: 0\n" in seen
    assert "ModifyDeviceFiles: 1" not in seen
    assert outcomes(seen)["/proc/driver/nvidia/params"] == "EROFS"


def test_links_of_the_drawing_nodes(
    dgx: Machine, spec: dict[str, Any], runc: Runtime, make_bundle: MakeBundle
) -> None:
    """Of the GPUs that the container has, and of no others."""
    bundle = inject(make_bundle("debian", probe(["ls", "/dev/dri/by-path"])), spec, "1")
    seen = runc.run(bundle).check().stdout
    bus = dgx.host.gpus[1].bus.lower()
    assert sorted(line.split()[0] for line in seen.splitlines()) == [
        f"pci-{bus}-card",
        f"pci-{bus}-render",
    ]


def test_mig(make_machine: Callable[..., Machine], runc: Runtime, make_bundle: MakeBundle) -> None:
    """MIG devices have names of their own, and `all` has these and not their GPU as a whole."""
    machine = make_machine(preset("mig_host", modify_device_files=0))
    spec = generated(machine)
    found = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    parts = [name for name in found if ":" in name]
    assert parts
    assert all(name.replace(":", "").isdigit() for name in parts)
    assert len([name for name in found if name.startswith("MIG-")]) == len(parts)
    for name in parts:
        nodes = [node["path"] for node in found[name]["deviceNodes"]]
        assert len([node for node in nodes if node.startswith("/dev/nvidia-caps/")]) == 2
    every = {node["path"] for node in found["all"]["deviceNodes"]}
    wanted = {
        node["path"]
        for name, edits in found.items()
        if ":" in name
        for node in edits["deviceNodes"]
    }
    assert wanted <= every
    bundle = inject(make_bundle("debian", ["nvidia-smi", "-L"]), spec, parts[0])
    assert "MIG" in runc.run(bundle).check().stdout


@pytest.mark.parametrize("asked", [None, 3])
def test_with_gpushim_as_the_runtime(
    dgx: Machine,
    spec: dict[str, Any],
    gpushim: Runtime,
    make_bundle: MakeBundle,
    asked: int | None,
) -> None:
    """What the engine gave counts as granted; where gpushim makes a grant of its own, the hook
    leaves the loader cache to it."""
    command = probe(["open", *NODES], ["dlopen", *LIBRARIES])
    bundle = inject(make_bundle("debian", command), spec, "1")
    if asked is not None:
        bundle.config["process"]["env"].append(f"NVIDIA_VISIBLE_DEVICES={asked}")
        bundle.write()
    seen = gpushim.run(bundle).check().stdout
    assert devices(seen)[dgx.node(1 if asked is None else asked)] == "ENXIO"
    assert "/nvidia/lib64/libcuda.so.1" in outcomes(seen)["libcuda.so.1"]


@pytest.fixture(scope="module")
def podman(dgx: Machine) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Podman with runc and a storage of its own, and a generated spec where it looks for such.

    It looks into fixed directories, so it has a mount namespace of its own in which one of them
    is ours.
    """
    if shutil.which("podman") is None:
        cannot("podman is not installed")
    base = workspace.make("podman", Path("/var/tmp"))
    specs = base / "cdi"
    specs.mkdir()
    # Podman 4.3 knows CDI up to 0.5.0.
    generate = ["cdi", "generate", "--capabilities", "compute,utility"]
    dgx.installed.ctl(*generate, "--output", specs / "nvidia.yaml")
    (base / "containers.conf").write_text(
        "[containers]\n"
        'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        "[engine]\n"
        'cgroup_manager = "cgroupfs"\n'
        'events_logger = "file"\n'
    )
    (base / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{base}/run"\ngraphroot = "{base}/data"\n'
    )
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CONTAINERS_CONF": str(base / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(base / "storage.conf"),
        "TMPDIR": str(base),
    }
    within = 'mkdir -p /run/cdi && mount -n --bind "$0" /run/cdi && exec podman "$@"'

    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "-m", "sh", "-c", within, str(specs), "--runtime", "runc"]
        return subprocess.run(
            [*command, *map(str, words)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    yield call
    call("rm", "--all", "--force")
    workspace.remove(base)


def test_podman(
    dgx: Machine,
    podman: Callable[..., subprocess.CompletedProcess[str]],
    make_bundle: MakeBundle,
) -> None:
    """`podman run --device nvidia.com/gpu=1` without gpushim as its runtime."""
    root = make_bundle("debian", root="copy").rootfs
    command = probe(["open", *NODES], ["dlopen", *LIBRARIES])
    options = ["run", "--rm", "--network", "none", "--device", "nvidia.com/gpu=1"]
    done = podman(*options, "--rootfs", root, *command)
    assert done.returncode == 0, done.stderr
    assert devices(done.stdout) == dict.fromkeys([*CONTROL, dgx.node(1)], "ENXIO")
    assert outcomes(done.stdout)["libcuda.so.1"] == f"{TREE}/libcuda.so.1"
    table = podman(*options, "--rootfs", root, "nvidia-smi", "-L")
    assert table.stdout.count("GPU ") == 1, table.stderr
