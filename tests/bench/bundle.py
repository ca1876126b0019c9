"""Bundles as an engine makes them: a spec, and a root that no container has used yet."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.harness import base_config

from .measure import BenchError

PROBE = "/usr/local/bin/probe"
REQUEST = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
_MNT_DETACH = 2  # sys/mount.h
_libc = ctypes.CDLL(None, use_errno=True)


def plain_spec() -> dict[str, Any]:
    """The spec of a container that asks for no GPU and waits to be killed."""
    return base_config([PROBE, "sleep", "3600"], cgroups="")


def gpu_spec(rootfs: Path, fixture: str) -> dict[str, Any]:
    """The spec of one that asks for every GPU, with a hook that gives it the driver's params."""
    spec = base_config([PROBE, "sleep", "3600"], cgroups="", env=REQUEST)
    spec["hooks"] = {"createContainer": [{"path": fixture, "args": ["procdriver", str(rootfs)]}]}
    return spec


def count_spec(rootfs: Path, fixture: str, gpus: int) -> dict[str, Any]:
    """The spec of one that asks for a number of GPUs, whichever."""
    spec = gpu_spec(rootfs, fixture)
    spec["process"]["env"] = [
        entry for entry in spec["process"]["env"] if not entry.startswith("NVIDIA_VISIBLE")
    ] + [f"GPUSHIM_GPUS={gpus}"]
    return spec


def label_spec(rootfs: Path, fixture: str, containers: Path) -> dict[str, Any]:
    """The spec of a container of Docker's that asks for every GPU by a label.

    Nothing of that is in it: the label is in Docker's own record, beside the files that it mounts.
    """
    spec = gpu_spec(rootfs, fixture)
    spec["process"]["env"] = [
        entry for entry in spec["process"]["env"] if not entry.startswith("NVIDIA_VISIBLE")
    ]
    for name in ("resolv.conf", "hostname", "hosts"):
        mount = {"destination": f"/etc/{name}", "type": "bind", "source": f"{containers}/ID/{name}"}
        spec["mounts"].append({**mount, "options": ["rbind", "rprivate"]})
    return spec


def cdi_spec(rootfs: Path, fixture: str, gpus: int) -> dict[str, Any]:
    """The spec of one that asks for every GPU by CDI names in an annotation."""
    spec = gpu_spec(rootfs, fixture)
    spec["process"]["env"] = [
        entry for entry in spec["process"]["env"] if not entry.startswith("NVIDIA_VISIBLE")
    ]
    names = ",".join(f"nvidia.com/gpu={index}" for index in range(gpus))
    spec["annotations"] = {"cdi.k8s.io/bench": names}
    return spec


def large_spec(rootfs: Path, fixture: str) -> dict[str, Any]:
    """A spec of 4 MB that asks for every GPU, large in all of its parts that can be.

    The kernel takes 2 MB of variables at most, and each mount costs runc a millisecond; what makes
    a spec as large as this in practice are annotations and system call filters.
    """
    spec = gpu_spec(rootfs, fixture)
    spec["process"]["env"] += [
        f"SERVICE_{n}_ADDRESS=tcp://10.0.{n % 256}.1:{n}/" + "x" * 320 for n in range(5000)
    ]
    spec["linux"]["seccomp"] = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [
            {"names": [f"call_{n}"], "action": "SCMP_ACT_ALLOW", "args": []} for n in range(8000)
        ],
    }
    spec["mounts"] += [
        {
            "destination": f"/srv/data/{number}",
            "type": "bind",
            "source": f"/var/lib/engine/volumes/{number:064x}/_data",
            "options": ["rbind", "rprivate", "rw"],
        }
        for number in range(500)
    ]
    spec["annotations"] = {f"example.org/label-{n}": f"value {n} " + "x" * 150 for n in range(8000)}
    return spec


class Bundle:
    """A bundle whose root is an overlay on an image, as an engine's is.

    records: where Docker's own records of containers are kept, one of which is made for each
    container; None for another engine's.
    """

    def __init__(self, path: Path, image: Path, records: Path | None = None) -> None:
        self.path = path
        self.rootfs = path / "rootfs"
        self.records = records
        self._image = image
        self._layers = path / "layers"
        self.spec: dict[str, Any] = {}
        self._text = b""
        self.rootfs.mkdir(parents=True)

    def fill(self, spec: dict[str, Any]) -> None:
        """Decide on the spec that each container begins with."""
        self.spec = spec
        self._text = json.dumps(spec).encode()

    def renew(self, container: str) -> None:
        """Bring everything into the state before a container's create, whoever used it before."""
        _libc.umount2(os.fsencode(self.rootfs), _MNT_DETACH)
        shutil.rmtree(self._layers, ignore_errors=True)
        for name in ("upper", "work"):
            (self._layers / name).mkdir(parents=True)
        options = (
            f"lowerdir={self._image},upperdir={self._layers}/upper,workdir={self._layers}/work"
        )
        target = os.fsencode(self.rootfs)
        if _libc.mount(b"overlay", target, b"overlay", 0, os.fsencode(options)) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise BenchError(f"No overlay can be mounted on {self.rootfs}: {reason}.")
        for name in ("config.json.gpushim", "config.json.gpushim-orig", "init.pid", "log.json"):
            (self.path / name).unlink(missing_ok=True)
        text = self._text.replace(
            b'"cgroupsPath": ""', b'"cgroupsPath": "/%s"' % container.encode()
        )
        if self.records is not None:
            text = text.replace(b"/ID/", b"/%s/" % container.encode())
            self._record(self.records / container, container)
        (self.path / "config.json").write_bytes(text)

    def _record(self, directory: Path, container: str) -> None:
        """What Docker 28 keeps of a container that was given a label, in its essentials."""
        directory.mkdir(parents=True)
        config = {
            "ID": container,
            "Name": "/bench",
            "Config": {"Env": self.spec["process"]["env"], "Labels": {"gpushim.gpus": "all"}},
        }
        (directory / "config.v2.json").write_text(json.dumps(config, separators=(",", ":")))
        host = {"Binds": None, "DeviceRequests": None, "CgroupParent": ""}
        (directory / "hostconfig.json").write_text(json.dumps(host, separators=(",", ":")))
        for name in ("resolv.conf", "hostname", "hosts"):
            (directory / name).write_text("")

    def read(self) -> dict[str, Any]:
        """Return config.json as it is now."""
        spec: dict[str, Any] = json.loads((self.path / "config.json").read_bytes())
        return spec
