"""Bundles for low-level runtimes: one small configuration that all tests start from."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests import images
from tests.harness import workspace

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE = "/usr/local/bin/probe"
FIRST_UID = 100000
_UIDS = 65536

# Docker's default set, so that what works here works there.
CAPABILITIES = [
    f"CAP_{name}"
    for name in (
        *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID"),
        *("SETFCAP", "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
    )
]

Root = Literal["overlay", "copy"]


def _mount(destination: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}


def base_config(
    args: Sequence[str] = (PROBE, "ids"),
    *,
    env: Sequence[str] = (),
    mounts: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    readonly: bool = False,
    userns: bool = False,
    cgroups: str | None = None,
) -> dict[str, Any]:
    """Return a config.json like an engine's, without a terminal.

    ``cgroups`` is the container's cgroup path; without one there are no device rules
    either, which is the only way crun works where it may not load a device filter.
    """
    linux: dict[str, Any] = {
        "namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")],
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    }
    if cgroups is not None:
        linux["cgroupsPath"] = cgroups
        linux["resources"] = {"devices": [{"allow": False, "access": "rwm"}]}
    if userns:
        linux["namespaces"].append({"type": "user"})
        mapping = {"containerID": 0, "hostID": FIRST_UID, "size": _UIDS}
        linux["uidMappings"] = [mapping]
        linux["gidMappings"] = [dict(mapping)]
    kinds = ("bounding", "effective", "permitted")
    config: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": [PATH, *env],
            "cwd": "/",
            "capabilities": {kind: list(CAPABILITIES) for kind in kinds},
            "noNewPrivileges": False,
        },
        "root": {"path": "rootfs", "readonly": readonly},
        "hostname": "test",
        "mounts": [
            _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
            _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666"),
            _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
            _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
            _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            *(dict(m) for m in mounts),
        ],
        "linux": linux,
    }
    if annotations is not None:
        config["annotations"] = dict(annotations)
    return config


class Bundle:
    """A bundle directory with a root file system of its own, and the id of its container.

    With ``root="overlay"`` (the default) the root is an overlay on the template, as an
    engine's is: quick to make and private.  With ``"copy"`` it is a plain directory,
    which a runtime must take for one that others may share.  A path shares that root.
    Change ``config`` freely and call ``write`` before the runtime sees it.
    """

    def __init__(
        self,
        image: str = "busybox",
        args: Sequence[str] = (PROBE, "ids"),
        *,
        root: Root | Path = "overlay",
        cgroups: bool = True,
        userns: bool = False,
        directory: Path | None = None,
        **options: Any,
    ) -> None:
        self.id = f"test-{secrets.token_hex(6)}"
        if directory is None:
            directory = workspace.make("bundle", Path("/var/tmp"))
        self.path = directory
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o711)
        path = f"/gpushim-test/{self.id}" if cgroups else None
        self.config = base_config(args, userns=userns, cgroups=path, **options)
        self.rootfs = self.path / "rootfs"
        if isinstance(root, Path):
            self.rootfs = root
            self.config["root"]["path"] = str(root)
        elif root == "copy":
            images.copy(image, self.rootfs)
        else:
            self._overlay(images.image(image), metadata_only=userns)
        if userns and not isinstance(root, Path):
            self._give_away()
        self.write()

    def _overlay(self, template: Path, metadata_only: bool) -> None:
        # The upper layer is a tmpfs, because the bundle itself may lie on an overlay.
        layers = self.path / "layers"
        for directory in (layers, self.rootfs):
            directory.mkdir()
        _run("mount", "-n", "-t", "tmpfs", "-o", "mode=755", "layers", layers)
        for name in ("upper", "work"):
            (layers / name).mkdir()
        options = f"lowerdir={template},upperdir={layers}/upper,workdir={layers}/work"
        if metadata_only:
            # A changed owner then copies no file contents.
            options += ",metacopy=on"
        _run("mount", "-n", "-t", "overlay", "-o", options, "overlay", self.rootfs)

    def _give_away(self) -> None:
        """Make the container's root user the owner, as an engine's remapping does."""
        for directory, _, files in os.walk(self.rootfs):
            for path in (Path(directory), *(Path(directory, name) for name in files)):
                info = path.lstat()
                os.chown(
                    path, info.st_uid + FIRST_UID, info.st_gid + FIRST_UID, follow_symlinks=False
                )
                if not path.is_symlink():
                    path.chmod(info.st_mode & 0o7777)  # chown takes setuid bits away

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    def write(self) -> None:
        """Write config.json from ``config``."""
        self.config_path.write_text(json.dumps(self.config))

    def read(self) -> dict[str, Any]:
        """Return config.json as it is on the disk now."""
        config: dict[str, Any] = json.loads(self.config_path.read_bytes())
        return config

    def close(self) -> None:
        """Unmount and remove the bundle; its container must be gone."""
        workspace.remove(self.path)

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
