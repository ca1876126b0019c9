"""The demo's stage: a machine with GPUs, a dockerd of its own, and gpushim installed into it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import images
from tests.fakehost import FakeHost, build, preset
from tests.harness import PrivateDockerd, workspace

_REAL_GPUS = Path("/proc/driver/nvidia/gpus")
# The first of these that can be built here; each has a shell, glibc's loader and ldconfig.
_IMAGES = ("debian", "ubuntu-like", "debian13")


class Gpu:
    """A GPU of this machine: index, minor of its node, UUID, model."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.index: int = data["index"]
        self.minor: int = data["minor"]
        self.uuid: str = data["uuid"]
        self.model: str = data["model"]
        self.usable: bool = data["health"] == "ok" and bool(data["uuid"])


class Stage:
    """All that the demo made; `close` ends and removes it.

    root: of the private installation; host: the fake host, None on a machine with GPUs; engine:
    the private dockerd; image: tag of the glibc image in it; gpus: as `gpushimctl inventory` tells.
    """

    def __init__(self) -> None:
        self.base = workspace.make("demo", Path("/var/tmp"))
        self.root = self.base / "root"
        self.root.mkdir()
        self.host: FakeHost | None = None
        self.engine: PrivateDockerd | None = None
        self.image = ""
        self.image_name = ""
        self.daemon_json = b""
        self.gpus: list[Gpu] = []

    def find_machine(self) -> None:
        """Real GPUs if there are any, else a fake host with eight."""
        if not (_REAL_GPUS.is_dir() and any(_REAL_GPUS.iterdir())):
            # The containers' /proc is the kernel's own, which has no params file of NVIDIA's that
            # could be covered.
            self.host = build(self.base / "host", preset("dgx_a100", modify_device_files=0))

    def start_engine(self) -> None:
        """Raises EngineUnavailable, ImageUnavailable or RuntimeError with the reason."""
        self.image_name = _buildable()
        self.engine = PrivateDockerd()
        self.engine.start()
        self.image = self.engine.import_image(self.image_name, tag=f"{self.image_name}:demo")
        self.daemon_json = self.engine.config_path.read_bytes()

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs gpushimctl on the private installation."""
        command = [sys.executable, "-I", "-m", "gpushim.admin.cli", "--root", str(self.root)]
        return subprocess.run(
            [*command, *arguments], capture_output=True, encoding="utf-8", timeout=120
        )

    def install(self) -> subprocess.CompletedProcess[str]:
        """Installs gpushim into the private dockerd and nowhere else."""
        assert self.engine is not None
        configuration = self.base / "config.toml"
        configuration.write_text(self.host.toml() if self.host else "")
        pid_file = self.engine.run / "docker.pid"
        done = self.ctl(
            "install",
            *("--config", str(self.engine.config_path)),
            *("--pidfile", str(pid_file)),
            *("--config-from", str(configuration)),
        )
        found = self.ctl("inventory", "--json")
        if found.returncode == 0:
            self.gpus = [Gpu(data) for data in json.loads(found.stdout)["gpus"]]
        return done

    def docker(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        assert self.engine is not None
        return self.engine.docker(*arguments, timeout=timeout)

    @property
    def nodes(self) -> Path:
        """The directory that holds the machine's device nodes."""
        return self.host.dev_root if self.host else Path("/dev")

    def number(self, gpu: Gpu) -> tuple[int, int]:
        """Major and minor of a GPU's node."""
        number = os.stat(self.nodes / f"nvidia{gpu.minor}").st_rdev
        return os.major(number), os.minor(number)

    def short(self, text: str) -> str:
        """`text` with the demo's own long paths made short."""
        text = text.replace(str(self.root), "ROOT").replace(str(self.base), "DEMO")
        if self.engine is not None:
            text = text.replace(str(self.engine.base), "DOCKER")
            text = text.replace(str(self.engine.run), "RUN")
        return text

    def log_line(self, container: str) -> dict[str, Any]:
        """The line of gpushim's own log about a container; empty if there is none."""
        path = self.root / "var/log/gpushim/gpushim.log"
        for line in reversed(path.read_text().splitlines() if path.exists() else []):
            entry: dict[str, Any] = json.loads(line)
            if entry.get("id") == container:
                return entry
        return {}

    def close(self) -> list[str]:
        """Ends and removes everything; what is still there, which should be nothing."""
        left: list[str] = []
        directories = [self.base]
        steps: list[Callable[[], None]] = []
        if self.engine is not None:
            directories += [self.engine.base, self.engine.run]
            steps.append(self.engine.stop)
        steps.append(lambda: workspace.remove(self.base))
        for step in steps:
            try:
                step()
            except Exception as error:
                left.append(f"{type(error).__name__}: {error}")
        if self.engine is not None:
            left += [f"process {pid}" for pid in self.engine.processes()]
        return left + [str(directory) for directory in directories if directory.exists()]


def _buildable() -> str:
    """The name of a glibc image that this machine's mirror has."""
    reasons = []
    for name in _IMAGES:
        try:
            images.image(name)
        except images.ImageUnavailable as reason:
            reasons.append(str(reason))
        else:
            return name
    raise images.ImageUnavailable("; ".join(dict.fromkeys(reasons)))
