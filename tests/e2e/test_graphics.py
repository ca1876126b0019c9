"""Containers that draw: nodes in /dev/dri, links by bus id, and the files that loaders look for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cannot
from tests.fakehost import Description
from tests.harness import Bundle, Runtime, workspace
from tests.harness.bundle import PROBE
from tests.harness.machine import Machine
from tests.harness.seen import mount_points, outcomes

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]

# crun 1.8 does not start where version 1 and 2 of control groups are mixed, so it sees only one.
CRUN = (
    *("unshare", "-m", "sh", "-c"),
    'if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi; exec "$0" "$@"',
    *("crun", "--cgroup-manager=disabled"),
)
DRI = [f"/dev/dri/{name}{number}" for name in ("card", "renderD12") for number in range(4)]
DRI += [f"/dev/dri/renderD{number}" for number in range(128, 132)]
# What by-path has, and where each of its links leads.
LINKS = 'for link in /dev/dri/by-path/*; do echo "$link -> $(readlink -f $link)"; done; '
OPEN = f"{PROBE} open {' '.join(DRI)}; "


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """Three GPUs whose nodes begin at card1; nobody changes it."""
    path = workspace.make("drawing", Path("/var/tmp"))
    yield Machine(path, Description(gpus=3, bmc_vga=True, minors="reversed", modify_device_files=0))
    workspace.remove(path)


def asking(devices: str, capabilities: str = "graphics,utility") -> list[str]:
    return [
        f"NVIDIA_VISIBLE_DEVICES={devices}",
        f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",
    ]


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def links(machine: Machine, *indices: int) -> dict[str, str]:
    found = {}
    for index in indices:
        bus = machine.host.gpus[index].bus
        found[f"/dev/dri/by-path/pci-{bus}-card"] = f"/dev/dri/card{index + 1}"
        found[f"/dev/dri/by-path/pci-{bus}-render"] = f"/dev/dri/renderD{128 + index}"
    return found


def shown(text: str) -> dict[str, str]:
    return {name: path for name, path in outcomes(text).items() if name.startswith("/dev/dri/by")}


def opened(text: str) -> dict[str, str]:
    """What opening each node gave, without those that are not there."""
    return {
        path: outcome
        for path, outcome in outcomes(text).items()
        if path in DRI and outcome != "ENOENT"
    }


@pytest.mark.parametrize("capabilities", ["graphics,utility", "display", "all"])
def test_nodes_of_the_granted_gpus(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    capabilities: str,
) -> None:
    """They open as far as a kernel without the driver lets them, and nobody else's is there."""
    bundle = make_bundle("debian", shell(LINKS + OPEN), env=asking("0,2", capabilities))
    seen = runtime_of(machine).run(bundle).check().stdout
    nodes = ["/dev/dri/card1", "/dev/dri/card3", "/dev/dri/renderD128", "/dev/dri/renderD130"]
    assert sorted(opened(seen)) == nodes
    assert "EPERM" not in opened(seen).values()
    assert shown(seen) == links(machine, 0, 2)
    assert 44 in bundle.read()["process"]["user"]["additionalGids"]


def test_none_for_programs_that_compute(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(
        "debian", shell("ls -d /dev/dri || echo none"), env=asking("all", "compute")
    )
    assert runtime_of(machine).run(bundle).check().stdout == "none\n"


def test_the_device_rules_name_them_alone(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """A node that the container makes for another GPU is refused by its cgroup."""
    script = f"mknod /tmp/other c 226 2; {PROBE} open /tmp/other"
    bundle = make_bundle("debian", shell(script), env=asking("0"))
    assert "EPERM" in runtime_of(machine).run(bundle).stdout
    rules = bundle.read()["linux"]["resources"]["devices"]
    allowed = {(rule.get("major"), rule.get("minor")) for rule in rules if rule["allow"]}
    assert {number for number in allowed if number[0] == 226} == {(226, 1), (226, 128)}


def test_links_can_not_be_changed(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """They are in a directory of the host's, which containers share."""
    script = "touch /dev/dri/by-path/x; rm /dev/dri/by-path/*; " + LINKS
    sources = set()
    for _ in range(2):
        bundle = make_bundle("debian", shell(script), env=asking("1"))
        result = runtime_of(machine).run(bundle)
        sources |= {
            mount["source"]
            for mount in bundle.read()["mounts"]
            if mount["destination"] == "/dev/dri/by-path"
        }
        assert "Read-only file system" in result.stderr
        assert shown(result.stdout) == links(machine, 1)
    (source,) = sources
    assert Path(source).parent == Path(machine.places.by_path)


def test_in_a_user_namespace(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """B15: nodes by bind mounts, and the links as elsewhere."""
    script = LINKS + "ls /dev/dri"
    bundle = make_bundle("debian", shell(script), env=asking("1"), userns=True)
    seen = runtime_of(machine).run(bundle).check().stdout
    assert shown(seen) == links(machine, 1)
    assert seen.split()[-3:] == ["by-path", "card2", "renderD129"]


def test_a_users_own_dri(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    tmp_path: Path,
) -> None:
    """What a user mounts there stays as it is."""
    theirs = tmp_path / "dri"
    (theirs / "by-path").mkdir(parents=True)
    (theirs / "by-path/theirs").write_text("mine\n")
    mount = {
        "destination": "/dev/dri",
        "type": "bind",
        "source": str(theirs),
        "options": ["rbind", "rprivate"],
    }
    script = "cat /dev/dri/by-path/theirs; ls /dev/dri/by-path"
    bundle = make_bundle("debian", shell(script), env=asking("1"), mounts=[mount])
    assert runtime_of(machine).run(bundle).check().stdout == "mine\ntheirs\n"
    assert [path.name for path in (theirs / "by-path").iterdir()] == ["theirs"]
    assert "/dev/dri/by-path" in json.dumps(machine.log_lines()[-1]["notes"])


def test_a_node_that_the_user_asked_for_as_well(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """docker run --device /dev/dri/card2 --gpus 1: each node is there once."""
    bundle = make_bundle("debian", shell(LINKS + OPEN), env=asking("1"))
    device: dict[str, Any] = {"path": "/dev/dri/card2", "type": "c", "major": 226, "minor": 2}
    bundle.config["linux"]["devices"] = [{**device, "fileMode": 0o600, "uid": 0, "gid": 0}]
    rule = {"allow": True, "type": "c", "major": 226, "minor": 2, "access": "rwm"}
    bundle.config["linux"]["resources"]["devices"].append(rule)
    bundle.write()
    seen = runtime_of(machine).run(bundle).check().stdout
    assert sorted(opened(seen)) == ["/dev/dri/card2", "/dev/dri/renderD129"]
    paths = [node["path"] for node in bundle.read()["linux"]["devices"]]
    assert paths.count("/dev/dri/card2") == 1


def test_a_headless_machine(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """Without nvidia-drm there are no nodes; the container starts, and the log says why."""
    machine = make_machine(Description(gpus=1, drm=False, modify_device_files=0))
    bundle = make_bundle("debian", shell("ls -d /dev/dri || echo none"), env=asking("0"))
    assert runtime_of(machine).run(bundle).check().stdout == "none\n"
    assert "nvidia-drm is not loaded" in json.dumps(machine.log_lines()[-1]["notes"])


def test_nvidia_drm_that_is_loaded_later(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
) -> None:
    """The next container has the nodes, with nothing in between."""
    machine = make_machine(Description(gpus=1, modify_device_files=0))
    gpu = machine.host.gpus[0]
    place = machine.host.sys_root / "bus/pci/devices" / gpu.bus / "drm"
    place.rename(place.with_name("later"))
    runtime = runtime_of(machine)
    first = runtime.run(make_bundle("debian", shell(OPEN), env=asking("0"))).stdout
    place.with_name("later").rename(place)
    second = runtime.run(make_bundle("debian", shell(OPEN), env=asking("0"))).stdout
    assert opened(first) == {}
    assert sorted(opened(second)) == ["/dev/dri/card0", "/dev/dri/renderD128"]


def test_files_for_loaders(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """Vulkan and EGL name libraries that the container's loader finds; Xorg's only for display."""
    libraries = [PROBE, "dlopen", "libGLX_nvidia.so.0", "libEGL_nvidia.so.0", "libnvoptix.so.1"]
    command = [*libraries, "--", "mounts"]
    runtime = runtime_of(machine)
    seen = {}
    for capability in ("graphics", "display", "video"):
        result = runtime.run(make_bundle("debian", command, env=asking("0", capability)))
        points = {
            point
            for point in mount_points(result.stdout)
            if point.startswith(("/etc/vulkan", "/usr/share", "/usr/lib", "/etc/OpenCL"))
        }
        seen[capability] = points
        found = "-> /usr/local/nvidia/lib64/libGLX_nvidia.so.0" in result.stdout
        assert found is (capability != "video")
    assert seen["video"] == set()
    assert seen["graphics"] >= {
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
        "/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so",
    }
    assert {Path(point).name for point in seen["display"] - seen["graphics"]} == {
        *("nvidia_drv.so", "libglxserver_nvidia.so", "nvidia-drm-outputclass.conf"),
    }


@pytest.mark.parametrize("layout", ["fedora"])
def test_manifests_of_a_host_with_other_directories(
    make_machine: Callable[..., Machine],
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    layout: str,
) -> None:
    """Fedora's names the library by its path on the host."""
    description = Description(gpus=1, layout=layout, modify_device_files=0)
    bundle = make_bundle("debian", shell("cat /etc/vulkan/icd.d/*"), env=asking("0"))
    seen = json.loads(runtime_of(make_machine(description)).run(bundle).check().stdout)
    assert seen["ICD"]["library_path"] == "libGLX_nvidia.so.0"


def test_under_crun(
    machine: Machine, runtime_of: Callable[[Machine], Runtime], make_bundle: MakeBundle
) -> None:
    """The same spec, but for device rules, which crun can't set on every machine."""
    if shutil.which("crun") is None:
        cannot("crun is not installed")
    bundle = make_bundle("debian", shell(LINKS), env=asking("1"))
    runtime_of(machine).run(bundle).check()
    bundle.config = bundle.read()
    del bundle.config["linux"]["resources"], bundle.config["linux"]["cgroupsPath"]
    bundle.write()
    with Runtime(*CRUN) as crun:
        assert shown(crun.run(bundle).check().stdout) == links(machine, 1)
