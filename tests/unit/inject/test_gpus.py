"""What a grant means in a spec: nodes, groups, files, the params hook."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpushim.allocate.grant import Grant
from gpushim.errors import GpushimError
from gpushim.host.model import DriverTree, ExtraMount, Gpu, Inventory, MigDevice
from gpushim.inject.container import Container
from gpushim.inject.gpus import (
    device_edits,
    driver_edits,
    mig_warnings,
    needed_nodes,
    params_hook,
)
from gpushim.oci.edits import Edits
from gpushim.oci.rootfs import RootFs

HOOKS = ["nvidia-container-toolkit", "logger"]
CONTROL = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]


def gpu(index: int, minor: int) -> Gpu:
    return Gpu(index, f"GPU-{index}", minor, f"0000:0{index}:00.0", "NVIDIA A100")


def inventory(modify: bool = True, program: str = "/usr/bin/mount") -> Inventory:
    extra = [
        ExtraMount("/h/icd", "/etc/vulkan/icd.d/nvidia_icd.json", ["graphics", "display"]),
        ExtraMount("/h/cl", "/etc/OpenCL/vendors/nvidia.icd", ["compute"]),
    ]
    return Inventory("550.1", [], {}, extra, [], modify, program)


def container(mounts: dict[str, str] | None = None) -> Container:
    return Container("/b/rootfs", False, [], mounts or {"/proc": "proc"}, False, False, HOOKS)


@pytest.mark.parametrize(
    ("gpus", "capabilities", "nodes"),
    [
        ([], ["compute"], []),  # B33
        ([gpu(0, 3)], ["compute"], [*CONTROL, "nvidia3"]),
        ([gpu(0, 3), gpu(1, 0)], [], [*CONTROL, "nvidia3", "nvidia0"]),
        ([gpu(0, 0)], ["graphics"], [*CONTROL, "nvidia-modeset", "nvidia0"]),
        ([gpu(0, 0)], ["compute", "display"], [*CONTROL, "nvidia-modeset", "nvidia0"]),
    ],
)
def test_nodes(gpus: list[Gpu], capabilities: list[str], nodes: list[str]) -> None:
    assert needed_nodes(Grant(gpus, capabilities)) == nodes


def mig(index: int, instance: int, compute: int) -> MigDevice:
    return MigDevice(index, f"MIG-{index}", "1g.10gb", None, 1, index, instance, compute)


def test_nodes_of_mig_devices() -> None:
    """B37: the GPU's, the GPU instance's and the compute instance's, each once, and no others."""
    board, other = gpu(0, 3), gpu(1, 0)
    grant = Grant([other], [], [(board, mig(0, 12, 13)), (board, mig(1, 12, 14))])
    caps = [f"nvidia-caps/nvidia-cap{minor}" for minor in (12, 13, 14)]
    assert needed_nodes(grant) == [*CONTROL, "nvidia3", "nvidia0", *caps]


def test_a_gpu_in_mig_mode() -> None:
    """It is given as a whole, and CUDA finds nothing on it."""
    gpus = [gpu(0, 0), gpu(1, 3), gpu(2, 2)]
    gpus[0].mig_enabled, gpus[1].mig_enabled, gpus[2].mig_enabled = False, True, True
    gpus[2].mig_devices = [mig(0, 12, 13), mig(1, 12, 14)]
    first, second = mig_warnings(gpus)
    assert f"GPU 1 ({gpus[1].uuid}) is in MIG mode" in first
    assert "make MIG devices" in first
    assert "its MIG devices (2:0 to 2:1 1g.10gb)" in second
    assert mig_warnings(gpus[:1]) == []


def test_devices_and_their_groups() -> None:
    """A node that is not for everybody needs its group: 0660 root:video."""
    edits = Edits()
    facts = {
        "nvidiactl": (195, 255, 0o666, 0, 0),
        "nvidia0": (195, 0, 0o660, 0, 44),
        "nvidia1": (195, 1, 0o660, 0, 44),
        "nvidia2": (195, 2, 0o664, 0, 45),
        "nvidia3": (195, 3, 0o666, 0, 46),
        "nvidia4": (195, 4, 0o600, 5, 0),
    }
    device_edits(edits, "/h/dev", facts)
    assert edits.additional_gids == [44, 45]
    first = edits.device_nodes[1]
    assert (first.path, first.host_path) == ("/dev/nvidia0", "/h/dev/nvidia0")
    assert (first.major, first.minor, first.file_mode, first.uid, first.gid) == (
        195,
        0,
        0o660,
        0,
        44,
    )
    assert {node.permissions for node in edits.device_nodes} == {"rw"}


def test_groups_mean_something_else_in_a_user_namespace() -> None:
    """B15."""
    edits = Edits()
    edits.bind_devices = True
    device_edits(edits, "/dev", {"nvidia0": (195, 0, 0o660, 0, 44)})
    assert edits.additional_gids == []


def mounted(edits: Edits) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in edits.mounts}


TREE = DriverTree("/t", ["libcuda.so.1", "libnvidia-ml.so.1"], [])
SOCKET = ("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket")


def test_driver_files() -> None:
    edits = Edits()
    grant = Grant([gpu(0, 0)], ["compute", "utility"])
    assert driver_edits(edits, container(), grant, inventory(), TREE, [SOCKET]) == (
        "/usr/local/nvidia"
    )
    assert mounted(edits) == {
        "/usr/local/nvidia": "/t",
        "/usr/bin/nvidia-smi": "/t/bin/nvidia-smi",
        "/etc/OpenCL/vendors/nvidia.icd": "/h/cl",
        SOCKET[1]: SOCKET[0],
    }
    options = {mount.container_path: mount.options for mount in edits.mounts}
    assert "ro" in options["/usr/local/nvidia"]
    assert "ro" not in options[SOCKET[1]]
    assert "noexec" in options[SOCKET[1]]
    assert edits.remove_hooks == ["nvidia-container-toolkit"]


@pytest.mark.parametrize(
    ("capabilities", "paths"),
    [
        ([], {"/usr/local/nvidia"}),
        (["video"], {"/usr/local/nvidia"}),
        (["utility"], {"/usr/local/nvidia", "/usr/bin/nvidia-smi"}),
        (["graphics"], {"/usr/local/nvidia", "/etc/vulkan/icd.d/nvidia_icd.json"}),
    ],
)
def test_only_what_the_capabilities_call_for(capabilities: list[str], paths: set[str]) -> None:
    edits = Edits()
    driver_edits(edits, container(), Grant([], capabilities), inventory(), TREE, [])
    assert mounted(edits).keys() == paths


def test_a_machine_without_nvidia_smi() -> None:
    edits = Edits()
    driver_edits(edits, container(), Grant([], ["utility"]), inventory(), TREE, [], False)
    assert mounted(edits).keys() == {"/usr/local/nvidia"}


@pytest.mark.parametrize(
    ("capability", "library"), [("compute", "libcuda.so.1"), ("utility", "libnvidia-ml.so.1")]
)
def test_a_driver_without_what_a_capability_is_for(capability: str, library: str) -> None:
    tree = DriverTree("/t", [name for name in TREE.libraries if name != library], [])
    with pytest.raises(GpushimError, match=library):
        driver_edits(Edits(), container(), Grant([], [capability]), inventory(), tree, [])
    driver_edits(Edits(), container(), Grant([], ["video"]), inventory(), tree, [])


def test_what_the_user_mounts_stays_the_users() -> None:
    edits = Edits()
    user = {"/usr/local/nvidia": "bind", "/usr/bin": "bind", "/etc/OpenCL": "bind", "/run": "bind"}
    grant = Grant([], ["compute", "utility"])
    place = driver_edits(edits, container(user), grant, inventory(), TREE, [SOCKET])
    assert place == "/opt/gpushim/nvidia"
    assert mounted(edits) == {place: "/t"}


@pytest.mark.parametrize(
    ("link", "left_out"),
    [
        ("/etc", ["/etc/OpenCL/vendors/nvidia.icd"]),
        ("/etc/OpenCL/vendors/nvidia.icd", ["/etc/OpenCL/vendors/nvidia.icd"]),
        ("/usr/bin", ["/usr/bin/nvidia-smi"]),
        ("/usr/bin/nvidia-smi", ["/usr/bin/nvidia-smi"]),
        ("/run", [SOCKET[1]]),
        ("/usr/local", ["/usr/local/nvidia"]),
        ("/usr", ["/usr/bin/nvidia-smi", "/usr/local/nvidia"]),
    ],
)
def test_what_a_link_leads_to_in_a_volume_stays_the_users(
    tmp_path: Path, link: str, left_out: list[str]
) -> None:
    (tmp_path / link[1:]).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link[1:]).symlink_to("/data/sub")
    grant = Grant([], ["compute", "utility"])
    found = {}
    for volume in ("/elsewhere", "/data"):
        edits = Edits()
        of = container({"/proc": "proc", volume: "bind"})
        with RootFs(str(tmp_path)) as root:
            of.look_into(root)
            driver_edits(edits, of, grant, inventory(), TREE, [SOCKET])
            of.look_away()
        found[volume] = set(mounted(edits))
    assert found["/elsewhere"] - found["/data"] == set(left_out)
    moved = {"/opt/gpushim/nvidia"} if "/usr/local/nvidia" in left_out else set()
    assert found["/data"] - found["/elsewhere"] == moved


def test_the_params_hook() -> None:
    edits = Edits()
    params_hook(edits, container(), inventory(), "/run/gpushim/params", True)
    (hook,) = edits.hooks
    assert hook.hook_name == "createContainer"
    assert hook.path == "/usr/bin/mount"
    assert hook.args == [
        *["mount", "-n", "--bind", "-o", "ro", "/run/gpushim/params"],
        "/b/rootfs/proc/driver/nvidia/params",
    ]
    assert hook.env == ["LC_ALL=C"]


@pytest.mark.parametrize(
    ("mounts", "modify", "program", "enabled"),
    [
        ({"/proc": "proc"}, True, "/usr/bin/mount", False),
        ({"/proc": "proc"}, False, "/usr/bin/mount", True),
        ({"/proc": "proc"}, True, "", True),
        ({"/proc": "bind"}, True, "/usr/bin/mount", True),
        ({"/sys": "sysfs"}, True, "/usr/bin/mount", True),
    ],
)
def test_no_params_hook(mounts: dict[str, str], modify: bool, program: str, enabled: bool) -> None:
    edits = Edits()
    params_hook(edits, container(mounts), inventory(modify, program), "/p", enabled)
    assert edits.hooks == []
