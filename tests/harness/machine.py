"""A machine with GPUs and gpushim installed on it: what tests of GPU containers start from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.fakehost import Description, FakeHost, build, preset
from tests.harness.installed import Installed


class Machine:
    """A fake host and a private installation that uses it.

    ``host`` and ``installed`` are both; ``launcher`` is what stands in for runc. Without a
    ``description`` it is a DGX A100, whose minors are not its indices, and whose driver lets no
    program make nodes (a container's /proc has no params file that could be covered).
    """

    def __init__(
        self, path: Path, description: Description | None = None, configuration: str = ""
    ) -> None:
        wanted = description or preset("dgx_a100", modify_device_files=0)
        self.host: FakeHost = build(path / "host", wanted)
        self.installed = Installed(path / "root", self.host.toml() + configuration)
        self.places = self.installed.places
        self.launcher = self.installed.launcher

    def node(self, index: int) -> str:
        """The name of a GPU's node."""
        return f"nvidia{self.host.gpus[index].minor}"

    def uuids(self, *indices: int) -> str:
        """The UUIDs of GPUs, as NVIDIA_VISIBLE_DEVICES has them."""
        return ",".join(self.host.gpus[index].uuid for index in indices)

    def number(self, name: str) -> tuple[int, int]:
        """Major and minor of a node."""
        device = os.stat(self.host.dev_root / name).st_rdev
        return os.major(device), os.minor(device)

    def records(self) -> list[str]:
        """The ids of the containers that gpushim has a record of."""
        directory = Path(self.places.containers)
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []

    def log_lines(self) -> list[dict[str, Any]]:
        """gpushim's own log."""
        return [json.loads(line) for line in self.installed.log.splitlines()]

    def forget(self) -> None:
        """Removes the kept inventory, so that the next create needs a refresh."""
        Path(self.places.snapshot).unlink(missing_ok=True)

    def configure(self, text: str = "") -> None:
        """Replaces what the configuration has beside the places of the host, if it is another."""
        file = Path(self.places.config)
        wanted = self.host.toml() + text
        if file.read_text() == wanted:
            return
        new = file.with_suffix(".new")
        new.write_text(wanted)
        new.replace(file)
