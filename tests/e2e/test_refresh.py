"""The snapshot and its refresh, on a fake host and with an interpreter of its own as installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpushim import snapshot
from gpushim.errors import GpushimError
from gpushim.host.model import HEALTHY
from gpushim.places import Places
from gpushim.snapshot import Snapshot

from tests.fakehost import Description, FakeHost, GpuSpec, build

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "compute+utility"
GRAPHICS = "compute+graphics+utility"


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment that has gpushim and what this one has, as an installation makes one."""
    path = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    packages = next(path.glob("lib/python*/site-packages"))
    found = [str(ROOT / name) for name in ("shim", "hooks", "specs")]
    found += [entry for entry in sys.path if entry.endswith("-packages")]
    (packages / "gpushim.pth").write_text("\n".join(found) + "\n")
    return str(path / "bin/python")


class Machine:
    """A fake host with an installation on it that has no snapshot yet."""

    def __init__(self, path: Path, interpreter: str, description: Description) -> None:
        self.host: FakeHost = build(path / "host", description)
        self.places = Places(str(path / "root"))
        for directory in (self.places.etc, self.places.lib, self.places.log):
            os.makedirs(directory)
        self.configure()
        self.install(interpreter)

    def configure(self, wait: str = "10s", more: str = "") -> None:
        text = self.host.toml().replace('driver-wait = "10s"', f'driver-wait = "{wait}"')
        Path(self.places.config).write_text(text + more)

    def install(self, interpreter: str) -> None:
        record = {"format": 1, "refresh_interpreter": interpreter}
        Path(self.places.installation).write_text(json.dumps(record))

    def obtain(self, key: str = KEY) -> Snapshot:
        return snapshot.obtain(self.places, key)

    def load(self) -> Snapshot | None:
        return snapshot.load(self.places)

    def again(self, minors: list[int] | None = None) -> Snapshot:
        return snapshot.refresh_again(self.places, KEY, "a test", minors or [])

    def failure(self, call: Callable[[], object] | None = None) -> GpushimError:
        with pytest.raises(GpushimError) as caught:
            (call or self.obtain)()
        return caught.value

    @property
    def refreshes(self) -> list[dict[str, Any]]:
        """What the log tells of each refresh that succeeded."""
        path = Path(self.places.default_log_file)
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
def machine(tmp_path: Path, interpreter: str) -> Callable[..., Machine]:
    def make(**description: Any) -> Machine:
        return Machine(tmp_path, interpreter, Description(**{"gpus": 2, **description}))

    return make


def uuids(found: Snapshot) -> list[str]:
    return [gpu.uuid for gpu in found.inventory.gpus]


def test_the_first_create_finds_out_and_the_next_one_reads(machine: Callable[..., Machine]) -> None:
    here = machine(gpus=8, minors="reversed", numa_nodes=2)
    found = here.obtain()
    assert found.kept
    assert found.problems == []
    for gpu, real in zip(found.inventory.gpus, here.host.gpus, strict=True):
        assert (gpu.index, gpu.uuid, gpu.minor, gpu.bus_id, gpu.model, gpu.numa_node) == (
            *(real.index, real.uuid, real.minor, real.bus, real.model.name, real.numa),
        )
        assert (gpu.health, gpu.memory, gpu.compute_capability) == (HEALTHY, real.memory, "8.0")
        assert gpu.mig_enabled is False
    assert found.inventory.driver_version == "550.163.01"
    assert found.inventory.cuda_version == "12.4"
    assert found.inventory.mount_program in ("/usr/bin/mount", "/bin/mount")
    assert found.config.text("host.dev-root") == str(here.host.dev_root)
    assert Path(here.places.params).read_text().splitlines()[0] == "ModifyDeviceFiles: 0"
    kept = here.load()
    assert kept is not None
    assert kept.to_json() == here.obtain().to_json() == found.to_json()
    assert len(here.refreshes) == 1
    assert os.stat(here.places.run).st_mode & 0o777 == 0o755


def test_trees_of_more_capabilities_are_added_to_those_there(
    machine: Callable[..., Machine],
) -> None:
    here = machine()
    here.obtain()
    assert here.obtain(GRAPHICS).has_tree(GRAPHICS)
    assert here.obtain().has_tree(KEY)
    assert len(here.refreshes) == 2
    os.utime(here.places.config)
    assert set(here.obtain().inventory.trees) == {KEY, GRAPHICS}


def test_a_tree_that_vanished_is_made_again(machine: Callable[..., Machine]) -> None:
    here = machine()
    tree = here.obtain().inventory.trees[KEY].path
    subprocess.run(["rm", "-rf", tree], check=True)
    assert here.obtain().has_tree(KEY)


def replace_by_copy(path: Path) -> None:
    """Puts another file with the same content in a file's place, as package managers do."""
    copy = path.with_name(path.name + ".new")
    shutil.copy2(path, copy)
    copy.replace(path)


CHANGES: dict[str, Callable[[Machine], object]] = {
    "driver upgrade": lambda here: here.host.upgrade_driver("570.86.15"),
    "hot plug": lambda here: here.host.hotplug(GpuSpec()),
    "unplugged": lambda here: here.host.unplug(0),
    "MIG layout": lambda here: here.host.set_mig_layout(0, ["1g.10gb"]),
    "configuration": lambda here: here.configure("11s"),
    "configuration removed": lambda here: os.unlink(here.places.config),
    "params": lambda here: here.host.set_modify_device_files(0),
    "our params file removed": lambda here: os.unlink(here.places.params),
    "a library replaced": lambda here: replace_by_copy(here.host.nvml),
    "loader cache": lambda here: os.utime(here.host.root / "etc/ld.so.cache"),
    "a library directory": lambda here: (here.host.library_directory / "libnew.so").touch(),
}


@pytest.mark.parametrize("is_linked", [True, False], ids=["hard links", "copies"])
def test_a_library_that_is_overwritten_is_so_for_containers(
    machine: Callable[..., Machine], is_linked: bool
) -> None:
    """The tree has the very same file, or the snapshot ends and a tree with the new one is made."""
    here = machine(gpus=[GpuSpec()])
    before = here.obtain().inventory.trees[KEY]
    shown = Path(before.path) / "lib64" / here.host.nvml.resolve().name
    if not is_linked:
        # As where the state directory is another file system, which hard links do not reach.
        replace_by_copy(shown)
        snapshot.refresh_again(here.places, KEY, "the tree has copies", [])
    with here.host.nvml.open("ab") as file:
        file.write(b"more")
    if here.load() is not None:
        assert shown.read_bytes() == here.host.nvml.read_bytes()
        assert is_linked
    else:
        after = here.obtain().inventory.trees[KEY]
        assert (Path(after.path) / "lib64" / shown.name).read_bytes().endswith(b"more")


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_the_snapshot(machine: Callable[..., Machine], change: str) -> None:
    here = machine(gpus=[GpuSpec(mig=("1g.10gb", "1g.10gb")), GpuSpec()])
    here.obtain()
    assert here.load() is not None
    CHANGES[change](here)
    assert here.load() is None


def test_what_does_not_matter_leaves_the_snapshot(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.obtain()
    here.host.set_memory_used(0, 1 << 30)
    information = next(here.host.proc_root.glob("driver/nvidia/gpus/*/information"))
    text = information.read_text()
    information.write_text(text.replace("IRQ:", "IRQ: 1", 1))
    assert information.read_text() != text
    assert here.load() is not None


def test_a_driver_upgrade_is_seen_by_the_next_create(machine: Callable[..., Machine]) -> None:
    """B50."""
    here = machine()
    old = here.obtain().inventory.trees[KEY].path
    here.host.upgrade_driver("570.86.15")
    found = here.obtain()
    assert found.inventory.driver_version == "570.86.15"
    assert found.inventory.trees[KEY].path != old
    assert len(here.refreshes) == 2


def test_libraries_that_do_not_fit_the_module_are_named_with_it(
    machine: Callable[..., Machine],
) -> None:
    """B50: upgraded, and not rebooted yet."""
    here = machine()
    here.obtain()
    here.host.upgrade_driver("570.86.15", userspace_only=True)
    error = here.failure()
    assert "570.86.15" in error.sentence
    assert "550.163.01" in error.sentence
    here.host.load_new_module()
    assert here.obtain().inventory.driver_version == "570.86.15"


def test_a_library_that_is_being_written_is_looked_at_again(
    machine: Callable[..., Machine],
) -> None:
    """An installer may write into a file that is there, which no directory's time tells."""
    here = machine()
    library = here.host.library_directory / f"libcuda.so.{here.host.description.driver}"
    content = library.read_bytes()
    library.write_bytes(content[:100])
    assert "libcuda.so.1" not in here.obtain().inventory.trees[KEY].libraries
    library.write_bytes(content)
    assert "libcuda.so.1" in here.obtain().inventory.trees[KEY].libraries


def test_another_vm_with_other_uuids(machine: Callable[..., Machine]) -> None:
    """B52: the machine that wakes up elsewhere has other GPUs at the same places."""
    here = machine()
    before = uuids(here.obtain())
    for information in here.host.proc_root.glob("driver/nvidia/gpus/*/information"):
        text = information.read_text()
        for number, uuid in enumerate(before):
            text = text.replace(uuid, f"GPU-{number:08x}-0000-4000-8000-000000000000")
        information.write_text(text)
    assert here.load() is None


def test_hot_plug(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.obtain()
    added = here.host.hotplug(GpuSpec())
    assert added.uuid in uuids(here.obtain())
    assert len(here.refreshes) == 2


def test_a_change_while_it_is_found_out(machine: Callable[..., Machine]) -> None:
    """What is kept is never a mixture of before and after."""
    here = machine()
    here.host.set_delay(0.1)
    command = ["/usr/bin/python3", "-I", "-S", "-c", CREATE, str(ROOT / "shim")]
    first = subprocess.Popen([*command, here.places.root, KEY], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not os.path.exists(here.places.params) and time.monotonic() < deadline:
        time.sleep(0.01)
    added = here.host.hotplug(GpuSpec())
    assert first.communicate(timeout=60)[0].strip() == "ok 3 True"
    assert added.uuid in uuids(here.obtain())


def test_a_broken_gpu_does_not_hide_the_others(machine: Callable[..., Machine]) -> None:
    """B54."""
    here = machine(gpus=[GpuSpec(), GpuSpec(broken=True), GpuSpec()])
    found = here.obtain()
    health = [gpu.health for gpu in found.inventory.gpus]
    assert health[0] == health[2] == HEALTHY
    assert "NVML says" in health[1]
    assert found.inventory.gpus[2].memory
    assert found.kept
    assert any("GPU 1" in problem for problem in found.problems)


def test_garbled_information_does_not_hide_the_others(machine: Callable[..., Machine]) -> None:
    """B54, before NVML is asked."""
    here = machine(gpus=3)
    places = sorted(here.host.proc_root.glob("driver/nvidia/gpus/*/information"))
    places[0].write_bytes(b"\xff\x00garbage\n" * 10)
    places[1].unlink()
    found = here.obtain()
    assert found.inventory.gpus[2].health == HEALTHY
    assert [gpu.uuid for gpu in found.inventory.gpus[:2]] == ["", ""]
    assert HEALTHY not in [gpu.health for gpu in found.inventory.gpus[:2]]


def test_an_unknown_uuid_becomes_known_by_opening_the_node(machine: Callable[..., Machine]) -> None:
    here = machine(gpus=[GpuSpec(lazy_uuid=True), GpuSpec()])
    found = here.obtain()
    assert uuids(found) == [gpu.uuid for gpu in here.host.gpus]
    assert "?" not in Path(here.places.snapshot).read_text().split('"inventory"')[1]
    assert found.kept


def test_a_hanging_nvml_costs_the_figures_and_nothing_else(machine: Callable[..., Machine]) -> None:
    """B83: no NVML is needed where /proc suffices; and such a finding is not kept."""
    here = machine()
    here.configure("1s")
    here.host.hang_nvml()
    found = here.obtain()
    assert uuids(found) == [gpu.uuid for gpu in here.host.gpus]
    assert [gpu.memory for gpu in found.inventory.gpus] == [None, None]
    assert any("NVML gave no answer" in problem for problem in found.problems)
    assert not found.kept
    assert not os.path.exists(here.places.snapshot)
    here.host.hang_nvml(False)
    assert here.obtain().kept


def test_a_slow_nvml_is_waited_for_as_long_as_it_answers(machine: Callable[..., Machine]) -> None:
    """B83: seconds for each GPU, on many."""
    here = machine(gpus=8)
    here.configure("2s")
    here.host.set_delay(0.15)
    found = here.obtain()
    assert found.kept
    assert all(gpu.memory for gpu in found.inventory.gpus)


def test_a_driver_that_is_not_loaded_is_loaded(machine: Callable[..., Machine]) -> None:
    """B55: the nodes are not there either."""
    here = machine()
    here.host.unload_driver()
    found = here.obtain()
    assert uuids(found) == [gpu.uuid for gpu in here.host.gpus]
    assert found.kept
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        assert (here.host.dev_root / name).is_char_device(), name


def test_a_driver_that_does_not_load_is_an_error_in_bounded_time(
    machine: Callable[..., Machine],
) -> None:
    """B55: nothing is kept, and the sentence is its own."""
    here = machine()
    here.configure("1s")
    here.host.unload_driver(refuse=True)
    began = time.monotonic()
    error = here.failure()
    assert time.monotonic() - began < 8
    assert "The NVIDIA driver is not loaded" in error.sentence
    assert not os.path.exists(here.places.snapshot)


def test_a_driver_that_comes_late_is_waited_for(machine: Callable[..., Machine]) -> None:
    """B55: udev is faster or slower than the restart policy."""
    here = machine()
    here.host.unload_driver(delay=1.0)
    assert here.obtain().kept


def test_a_machine_without_gpus_says_so_at_once(machine: Callable[..., Machine]) -> None:
    here = machine(gpus=1)
    here.host.unload_driver()
    here.host.unplug(0)
    (here.host.sys_root / "bus/pci/devices").mkdir(parents=True)  # empty directories are not kept
    assert "has no NVIDIA GPU" in here.failure().sentence


@pytest.mark.parametrize("helpers", [True, False])
def test_missing_nodes_are_made(machine: Callable[..., Machine], helpers: bool) -> None:
    """B56, by nvidia-modprobe and by mknod; B46: with their /dev/char links."""
    here = machine(device_mode=0o660, device_gid=44)
    if not helpers:
        (here.host.root / "usr/bin/nvidia-modprobe").unlink()
    names = ("nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    numbers = {name: os.stat(here.host.dev_root / name).st_rdev for name in names}
    for name in names:
        here.host.remove_node(name)
    assert here.obtain().kept
    for name in names:
        made = os.stat(here.host.dev_root / name)
        mode, gid = (0o666, 0) if "uvm" in name else (0o660, 44)  # as nvidia-modprobe does
        assert (made.st_mode & 0o7777, made.st_uid, made.st_gid) == (mode, 0, gid), name
        assert made.st_rdev == numbers[name], name
        link = here.host.dev_root / f"char/{os.major(made.st_rdev)}:{os.minor(made.st_rdev)}"
        assert os.readlink(link) == f"../{name}"


def test_missing_links_are_made(machine: Callable[..., Machine]) -> None:
    """B46."""
    here = machine(dev_char_links=False)
    (here.host.dev_root / "char").mkdir(exist_ok=True)
    here.obtain()
    number = os.stat(here.host.dev_root / "nvidia0").st_rdev
    link = here.host.dev_root / f"char/{os.major(number)}:{os.minor(number)}"
    assert os.readlink(link) == "../nvidia0"


def test_modeset_is_made_for_graphics_alone(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.host.remove_node("nvidia-modeset")
    here.obtain()
    assert not (here.host.dev_root / "nvidia-modeset").exists()
    here.obtain(GRAPHICS)
    assert (here.host.dev_root / "nvidia-modeset").is_char_device()


def test_a_node_that_cannot_be_made(machine: Callable[..., Machine]) -> None:
    """B56: incomplete is not kept; and it is an error for who needs that node."""
    here = machine()
    here.host.remove_node("nvidia1")
    (here.host.dev_root / "nvidia1").mkdir()
    found = here.obtain()
    assert not found.kept
    assert any("nvidia1 is missing" in problem for problem in found.problems)
    assert "nvidia1 is missing" in here.failure(lambda: here.again([1])).sentence
    assert not here.again([0]).kept


def test_refresh_again_is_a_new_one(machine: Callable[..., Machine]) -> None:
    here = machine()
    first = here.obtain()
    second = here.again()
    assert second.finished > first.finished
    assert [line["reason"] for line in here.refreshes][1] == "a test"


def test_a_broken_configuration_is_told(machine: Callable[..., Machine]) -> None:
    here = machine()
    Path(here.places.config).write_text("[host\n")
    assert here.places.config in here.failure().sentence


def test_a_newer_snapshot_is_refused_and_an_unusable_one_replaced(
    machine: Callable[..., Machine],
) -> None:
    here = machine()
    here.obtain()
    path = Path(here.places.snapshot)
    good = path.read_text()
    path.write_text(good.replace('"format":1', '"format":2', 1))
    assert "newer gpushim" in here.failure().sentence
    for bad in ("", "{", "[]", '{"format":1}', '{"format":0}', '{"format":"1"}', good[:-5] + "}"):
        path.write_text(bad)
        assert here.load() is None, bad
    path.write_text(good.replace('"numa_node"', '"numa"', 1))
    assert here.load() is None
    assert here.obtain().kept


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_snapshot_that_others_can_write_is_not_trusted(
    machine: Callable[..., Machine], mode: int
) -> None:
    here = machine()
    here.obtain()
    os.chmod(here.places.snapshot, mode)
    assert here.load() is None
    os.chmod(here.places.snapshot, 0o644)
    assert here.load() is not None
    os.chown(here.places.snapshot, 12345, 0)
    assert here.load() is None


def test_other_platforms_get_one_sentence(machine: Callable[..., Machine]) -> None:
    """B84 and B85."""
    here = machine()
    subprocess.run(["rm", "-rf", here.host.proc_root / "driver"], check=True)
    (here.host.dev_root / "dxg").touch()
    assert "WSL2" in here.failure().sentence
    (here.host.root / "etc/nv_tegra_release").touch()
    assert "Jetson" in here.failure().sentence


INSTALLATIONS = {
    "no record": (None, "can't be read"),
    "no JSON": ("{", "names no interpreter"),
    "not in it": ('{"format":1}', "names no interpreter"),
    "vanished": ('{"refresh_interpreter":"/nonexistent/python"}', "can't be started"),
    "lacks gpushim": ('{"refresh_interpreter":"/usr/bin/python3"}', "No module named"),
    "fails": ('{"refresh_interpreter":"/bin/false"}', "failed (status 1)"),
}


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_an_installation_that_cannot_refresh(machine: Callable[..., Machine], name: str) -> None:
    here = machine()
    content, words = INSTALLATIONS[name]
    os.unlink(here.places.installation)
    if content is not None:
        Path(here.places.installation).write_text(content)
    assert words in here.failure().sentence


def test_a_full_or_read_only_disk_costs_the_keeping_alone(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.obtain()  # which made the driver tree
    subprocess.run(["rm", "-rf", here.places.run], check=True)
    Path(here.places.run).touch()  # even root can't make a directory of it
    found = here.obtain()
    assert uuids(found) == [gpu.uuid for gpu in here.host.gpus]
    assert not found.kept
    assert any("can't be kept" in problem for problem in found.problems)
    # The params file can't be there either, so nothing may try to mount it.
    assert not found.inventory.modify_device_files


def test_a_refresh_that_hangs_is_ended(
    machine: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine()
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    here.install(str(program))
    monkeypatch.setattr("gpushim.host.refresh_process._START_SECONDS", 0.3)
    began = time.monotonic()
    assert "did not end in time" in here.failure().sentence
    assert time.monotonic() - began < 5


CREATE = """
import sys
sys.path.insert(0, sys.argv[1])
from gpushim import snapshot
from gpushim.errors import GpushimError
from gpushim.places import Places
try:
    found = snapshot.obtain(Places(sys.argv[2]), sys.argv[3])
    print("ok", len(found.inventory.gpus), found.kept)
except GpushimError as error:
    print(error)
"""


def at_once(here: Machine, count: int) -> list[str]:
    """What so many creates at once say."""
    command = ["/usr/bin/python3", "-I", "-S", "-c", CREATE, str(ROOT / "shim")]
    started = [
        subprocess.Popen([*command, here.places.root, KEY], stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    return [process.communicate(timeout=120)[0].strip() for process in started]


def test_fifty_creates_at_once_cause_one_refresh(machine: Callable[..., Machine]) -> None:
    here = machine()
    assert at_once(here, 50) == ["ok 2 True"] * 50
    assert len(here.refreshes) == 1
    here.host.hotplug(GpuSpec())
    assert at_once(here, 50) == ["ok 3 True"] * 50
    assert len(here.refreshes) == 2


def test_creates_at_once_share_an_incomplete_finding(machine: Callable[..., Machine]) -> None:
    """It serves those who waited for it, and the next one looks again."""
    here = machine()
    here.configure("3s")
    here.host.hang_nvml()
    assert at_once(here, 10) == ["ok 2 False"] * 10
    assert len(here.refreshes) == 1
    here.obtain()
    assert len(here.refreshes) == 2


def test_creates_at_once_share_an_error(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.configure("3s")
    here.host.unload_driver(refuse=True)
    began = time.monotonic()
    said = at_once(here, 10)
    assert len(set(said)) == 1
    assert "The NVIDIA driver is not loaded" in said[0]
    assert time.monotonic() - began < 12


def test_a_killed_create_leaves_its_refresh_to_the_others(machine: Callable[..., Machine]) -> None:
    """The child holds the lock too, so no second refresh runs beside it."""
    here = machine()
    here.host.set_delay(0.2)
    command = ["/usr/bin/python3", "-I", "-S", "-c", CREATE, str(ROOT / "shim")]
    first = subprocess.Popen([*command, here.places.root, KEY], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not os.path.exists(here.places.params) and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert here.obtain().kept
    assert len(here.refreshes) == 1


def test_a_user_has_a_snapshot_of_its_own(
    machine: Callable[..., Machine], tmp_path: Path, interpreter: str
) -> None:
    """Root's is used while it holds; else one beneath XDG_RUNTIME_DIR."""
    here = machine()
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    os.chown(runtime, 12345, 12345)
    for path in (tmp_path, *Path(interpreter).parents[1:3], *tmp_path.parents):
        if not os.stat(path).st_mode & 0o001:
            path.chmod(0o755)
    command = ["/usr/bin/python3", "-I", "-S", "-c", CREATE, str(ROOT / "shim")]

    def create() -> str:
        return subprocess.run(
            [*command, here.places.root, KEY],
            capture_output=True,
            text=True,
            timeout=60,
            user=12345,
            group=12345,
            extra_groups=[],
            env={"XDG_RUNTIME_DIR": str(runtime), "HOME": str(runtime)},
        ).stdout.strip()

    assert create() == "ok 2 True"
    assert (runtime / "gpushim/host.json").exists()
    assert not os.path.exists(here.places.snapshot)
    here.obtain()
    (runtime / "gpushim/host.json").unlink()
    assert create() == "ok 2 True"
    assert not (runtime / "gpushim/host.json").exists()


def test_verifying_is_quick(machine: Callable[..., Machine]) -> None:
    """Far below a millisecond for 8 GPUs; the bound leaves room for a busy machine."""
    here = machine(gpus=16)
    here.obtain()
    best = min(timed(here.load) for _ in range(50))
    assert best < 0.003


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    assert call() is not None
    return time.perf_counter() - began
