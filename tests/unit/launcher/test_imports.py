"""What a create imports: little, and nothing that is slow.

Each name here costs every container with GPUs its time. A new one is a decision: measure it, then
add it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.launcher.machine import Machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the fake host needs root")

SLOW = {
    *("re", "json", "typing", "enum", "dataclasses", "pathlib", "subprocess", "collections"),
    *("argparse", "logging", "tempfile", "shutil", "ctypes", "hashlib", "sqlite3", "tomllib"),
    *("contextlib", "functools", "signal", "select", "socket", "random", "struct", "array"),
    *("pynvml", "jsonschema", "pyroute2", "yaml", "rich", "gpushim_specs", "site", "stat"),
}

# What comes on top of a bare interpreter.
CREATE = {
    "__future__",
    "_blake2",
    "_json",
    "_stat",
    "binascii",
    "errno",
    "fcntl",
    "gpushim",
    "gpushim.allocate",
    "gpushim.allocate.book",
    "gpushim.allocate.choose",
    "gpushim.allocate.filter",
    "gpushim.allocate.grant",
    "gpushim.allocate.lease",
    "gpushim.allocate.leasefiles",
    "gpushim.allocate.leaselock",
    "gpushim.allocate.wish",
    "gpushim.asker",
    "gpushim.asking",
    "gpushim.booking",
    "gpushim.config",
    "gpushim.create",
    "gpushim.decision",
    "gpushim.errors",
    "gpushim.granting",
    "gpushim.host",
    "gpushim.host.devicenodes",
    "gpushim.host.fingerprint",
    "gpushim.host.model",
    "gpushim.host.procfiles",
    "gpushim.host.statefiles",
    "gpushim.inject",
    "gpushim.inject.container",
    "gpushim.inject.environment",
    "gpushim.inject.gpus",
    "gpushim.inject.keptcaches",
    "gpushim.inject.landing",
    "gpushim.inject.loadercache",
    "gpushim.injection",
    "gpushim.limits",
    "gpushim.limits.wanted",
    "gpushim.log",
    "gpushim.main",
    "gpushim.oci",
    "gpushim.oci.apply",
    "gpushim.oci.bundle",
    "gpushim.oci.edits",
    "gpushim.oci.enginelog",
    "gpushim.oci.entries",
    "gpushim.oci.files",
    "gpushim.oci.handover",
    "gpushim.oci.invocation",
    "gpushim.oci.jsonpatch",
    "gpushim.oci.jsontext",
    "gpushim.oci.rootentry",
    "gpushim.oci.rootfs",
    "gpushim.oci.rootkind",
    "gpushim.places",
    "gpushim.records",
    "gpushim.request",
    "gpushim.request.gather",
    "gpushim.request.nvidia",
    "gpushim.request.read",
    "gpushim.request.request",
    "gpushim.request.wanted",
    "gpushim.snapshot",
}

# What merging the loader cache of an image takes, which is kept for its next container.
FIRST_OF_AN_IMAGE = {"_struct", "gpushim.host.ldsocache", "gpushim.host.libraryorder"}


def test_create_with_gpus(machine: Machine) -> None:
    bundle = machine.bundle("NVIDIA_VISIBLE_DEVICES=0,1")
    first = machine.imports("create", "--bundle", str(bundle), "c1")
    assert "GPU-" in (bundle / "config.json").read_text()
    assert not first & SLOW
    assert CREATE <= first <= CREATE | FIRST_OF_AN_IMAGE
    assert machine.imports("create", "--bundle", str(bundle), "c2") == CREATE


def test_create_that_asks_for_nothing(machine: Machine) -> None:
    bundle = machine.bundle("NVIDIA_VISIBLE_DEVICES=void")
    found = machine.imports("create", "--bundle", str(bundle), "c1")
    assert not found & SLOW
    assert found <= CREATE


def test_exec(machine: Machine, tmp_path: Path) -> None:
    bundle = machine.bundle("NVIDIA_VISIBLE_DEVICES=0")
    root = tmp_path / "state"
    (tmp_path / "process").write_text('{"env":[]}')
    machine.imports("--root", str(root), "create", "--bundle", str(bundle), "c1")
    words = ["--root", str(root), "exec", "--process", str(tmp_path / "process"), "c1"]
    found = machine.imports(*words)
    assert "GPU-" in (tmp_path / "process").read_text()
    assert not found & SLOW
    assert found <= CREATE | {"gpushim.execute"}
