"""Images whose links lead into a volume: what runc makes for a mount must not stay in there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, mount_points, outcomes, probe

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
LIBRARIES = "usr/lib/x86_64-linux-gnu"
ASKS = ["NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_DRIVER_CAPABILITIES=all"]


@pytest.fixture(scope="module", params=["tree", "files"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    path = tmp_path_factory.mktemp(request.param)
    return Machine(path, configuration=f'[inject]\nlayout = "{request.param}"\n')


def behind_a_link(bundle: Bundle, directory: str, volume: Path) -> None:
    """Moves a directory of the image to /vol, with a link in its place, and into a volume there."""
    source = bundle.rootfs / directory
    subprocess.run(["cp", "-a", source, bundle.rootfs / "vol"], check=True)
    subprocess.run(["cp", "-a", source, volume], check=True)
    subprocess.run(["rm", "-r", source], check=True)
    source.symlink_to("/vol")
    options = ["rbind", "rprivate"]
    bundle.config["mounts"].append(
        {"destination": "/vol", "type": "bind", "source": str(volume), "options": options}
    )
    bundle.write()


@pytest.mark.parametrize("directory", ["usr/local", "usr/bin", "etc", LIBRARIES])
def test_nothing_is_left_in_the_volume(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    tmp_path: Path,
    directory: str,
) -> None:
    command = probe(["open", *NODES], ["dlopen", "libcuda.so.1"], ["mounts"])
    bundle = make_bundle("debian", command, env=ASKS)
    volume = tmp_path / "volume"
    behind_a_link(bundle, directory, volume)
    before = sorted(path.relative_to(volume) for path in volume.rglob("*"))
    seen = runtime_of(machine).run(bundle).check().stdout
    assert sorted(path.relative_to(volume) for path in volume.rglob("*")) == before
    assert devices(seen) == dict.fromkeys([*CONTROL, machine.node(1)], "ENXIO")
    assert not [point for point in mount_points(seen) if point.startswith("/vol/")]
    assert outcomes(seen)["libcuda.so.1"].endswith("/libcuda.so.1")


def test_what_keeps_the_driver_for_ldconfig_is_hidden(
    machine: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: MakeBundle,
    tmp_path: Path,
) -> None:
    """Harmless, since the cache itself is merged all the same, but told."""
    if "files" in machine.places.root:
        return  # whose libraries need nothing there
    bundle = make_bundle("debian", probe(["dlopen", "libcuda.so.1"]), env=ASKS[:1])
    behind_a_link(bundle, "etc/ld.so.conf.d", tmp_path / "volume")
    seen = runtime_of(machine).run(bundle).check().stdout
    assert outcomes(seen)["libcuda.so.1"].endswith("/libcuda.so.1")
    assert not list((tmp_path / "volume").glob("*gpushim*"))
    notes = machine.log_lines()[-1]["notes"]
    assert any("hidden by what is mounted over /etc/ld.so.conf.d" in note for note in notes)
