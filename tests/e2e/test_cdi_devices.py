"""CDI devices of any vendor under runc, from an annotation to what a container can use."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Bundle, Runtime, workspace
from tests.harness.machine import Machine
from tests.harness.seen import mount_points, outcomes, probe, variables

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]
RuntimeOf = Callable[[Machine], Runtime]

HOOK = """#!/bin/sh
/usr/bin/env | /usr/bin/sort > "${0}.env"
/bin/cat > "${0}.state"
"""


class Vendor:
    """A machine with spec files of a vendor's."""

    def __init__(self, path: Path, machine_of: Callable[..., Machine]) -> None:
        self.path = path
        self.specs = path / "specs"
        self.specs.mkdir()
        self.machine = machine_of(None, f'[cdi]\nspec-dirs = ["{self.specs}"]\n')

    def write(self, name: str = "vendor.json", edits: Any = None, **devices: Any) -> None:
        spec = {
            "cdiVersion": "1.1.0",
            "kind": "vendor.com/thing",
            "devices": [{"name": n, "containerEdits": e} for n, e in devices.items()],
        }
        (self.specs / name).write_text(json.dumps({**spec, "containerEdits": edits or {}}))

    def hook(self, name: str) -> str:
        path = self.path / name
        path.write_text(HOOK)
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def vendor(make_machine: Callable[..., Machine]) -> Iterator[Vendor]:
    path = workspace.make("vendor", Path("/var/tmp"))
    yield Vendor(path, make_machine)
    workspace.remove(path)


def asking(*names: str) -> dict[str, str]:
    return {"cdi.k8s.io/test": ",".join(f"vendor.com/thing={name}" for name in names)}


def test_devices_are_what_their_spec_says(
    vendor: Vendor, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    os.mkfifo(vendor.path / "fifo")
    # No driver has these numbers: what the device rules let pass finds nobody.
    for name, minor in (("node", 201), ("other", 202)):
        os.mknod(vendor.path / name, stat.S_IFCHR | 0o600, os.makedev(195, minor))
    (vendor.path / "data").mkdir()
    (vendor.path / "data/file").write_text("from the vendor\n")
    vendor.write(
        edits={"env": ["SHARED=1"], "additionalGids": [4242, 0]},
        a={
            "env": ["A=1"],
            "deviceNodes": [
                {"path": "/dev/mine", "hostPath": str(vendor.path / "node"), "permissions": "rw"},
                {
                    "path": "/dev/closed",
                    "hostPath": str(vendor.path / "other"),
                    "permissions": "none",
                },
                {"path": "/dev/pipe", "hostPath": str(vendor.path / "fifo")},
                {"path": "/dev/absent", "type": "c", "major": 195, "minor": 203},
            ],
            "mounts": [
                {
                    "hostPath": str(vendor.path / "data"),
                    "containerPath": "/opt",
                    "options": ["ro", "nosuid", "nodev", "rbind"],
                },
                {"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs"},
            ],
        },
        b={
            "env": ["B=1"],
            "hooks": [
                {"hookName": "createContainer", "path": vendor.hook("bare"), "timeout": 20},
                {"hookName": "createRuntime", "path": vendor.hook("own"), "env": ["MINE=1"]},
            ],
        },
    )
    (vendor.path / "data/volume").mkdir()
    (vendor.path / "data/volume/hidden").write_text("")
    (vendor.path / "volume").mkdir()
    (vendor.path / "volume/mine").write_text("of the user")
    volume = {
        "destination": "/opt/volume",
        "type": "bind",
        "source": str(vendor.path / "volume"),
        "options": ["rbind"],
    }
    bundle = make_bundle(
        "busybox",
        probe(
            ["open", "/dev/mine", "/dev/closed", "/dev/absent"],
            ["ls", "/dev"],
            ["ls", "/opt", "/opt/volume"],
            ["cat", "/opt/file"],
            ["write", "/opt/file"],
            ["mounts"],
            ["env"],
            ["ids"],
        ),
        env=["A=old", "SECRET=x"],
        annotations=asking("a", "b"),
        mounts=[volume],
    )
    result = runtime_of(vendor.machine).run(bundle)
    seen = result.stdout
    assert outcomes(seen)["/dev/mine"] == "ENXIO"
    assert outcomes(seen)["/dev/closed"] == "EPERM"
    assert outcomes(seen)["/dev/absent"] == "ENXIO"
    assert "pipe" in seen.split()
    assert outcomes(seen)["/opt/file"] == "EROFS"
    assert "from the vendor" in seen
    # The user's volume lies within what the vendor mounts, and is still there.
    assert "mine" in seen.split()
    assert "hidden" not in seen.split()
    assert {"/opt", "/opt/volume", "/scratch"} <= mount_points(seen)
    found = variables(seen)
    assert (found["SHARED"], found["A"], found["B"]) == ("1", "1", "1")
    assert "4242" in seen
    environment = (vendor.path / "bare.env").read_text()
    assert "SECRET" not in environment
    assert "MINE=1" in (vendor.path / "own.env").read_text()
    assert json.loads((vendor.path / "bare.state").read_text())["id"] == bundle.id


def test_a_container_in_a_user_namespace(
    vendor: Vendor, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    (vendor.path / "data").mkdir()
    (vendor.path / "data/file").write_text("from the vendor\n")
    vendor.path.chmod(0o755)
    vendor.write(
        a={
            "deviceNodes": [{"path": "/dev/mine", "hostPath": "/dev/null"}],
            "additionalGids": [44],
            "mounts": [
                {
                    "hostPath": str(vendor.path / "data"),
                    "containerPath": "/opt",
                    "options": ["ro", "bind"],
                }
            ],
        }
    )
    bundle = make_bundle(
        "busybox",
        probe(["open", "/dev/mine"], ["cat", "/opt/file"]),
        annotations=asking("a"),
        userns=True,
    )
    seen = runtime_of(vendor.machine).run(bundle).check().stdout
    assert outcomes(seen)["/dev/mine"] == "OK"
    assert "from the vendor" in seen
    assert "the groups 44" in vendor.machine.installed.log


def test_what_cannot_be_given_is_refused_before_anything_is_written(
    vendor: Vendor, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    vendor.write(a={"env": ["A=1"]})
    vendor.write("broken.json", b={})
    bundle = make_bundle("busybox", probe(["env"]), annotations=asking("a", "b", "c"))
    before = (bundle.path / "config.json").read_bytes()
    result = runtime_of(vendor.machine).run(bundle)
    assert result.status == 1
    assert "The CDI devices vendor.com/thing=b, vendor.com/thing=c cannot be given" in result.stderr
    assert f"{vendor.specs}/broken.json, line 1: devices[0].containerEdits" in result.stderr
    assert "There are: vendor.com/thing=a." in result.stderr
    assert (bundle.path / "config.json").read_bytes() == before
    # It costs only its own devices, and counts as soon as it is right.
    good = make_bundle("busybox", probe(["env"]), annotations=asking("a"))
    assert variables(runtime_of(vendor.machine).run(good).check().stdout)["A"] == "1"
    vendor.write("broken.json", b={"env": ["B=1"]}, c={"env": ["C=1"]})
    seen = runtime_of(vendor.machine).run(bundle).check().stdout
    assert {"A", "B", "C"} <= variables(seen).keys()


def test_a_network_interface_needs_a_newer_runtime(
    vendor: Vendor, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    vendor.write(a={"netDevices": [{"hostInterfaceName": "none0", "name": "eth1"}]})
    bundle = make_bundle("busybox", probe(["env"]), annotations=asking("a"))
    result = runtime_of(vendor.machine).run(bundle)
    assert result.status == 1
    if "netDevices" in result.stderr:  # Where the runtime knows them, it finds no interface.
        assert "does not name among its features" in result.stderr


def test_spec_files_cost_other_containers_nothing(
    vendor: Vendor, runtime_of: RuntimeOf, make_bundle: MakeBundle
) -> None:
    vendor.write(a={"env": ["A=1"]})
    runtime = runtime_of(vendor.machine)
    runtime.run(make_bundle("busybox", probe(["env"]))).check()
    gpus = make_bundle("busybox", probe(["env"]), env=["NVIDIA_VISIBLE_DEVICES=0"])
    runtime.run(gpus).check()
    assert not Path(vendor.machine.places.cdi).exists()
    runtime.run(make_bundle("busybox", probe(["env"]), annotations=asking("a"))).check()
    assert Path(vendor.machine.places.cdi).exists()
