"""Changes of hardware and driver: hot plug, MIG layout, upgrade, unloading, nodes that vanish."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import driverfiles, render, state, store
from .description import Description, Gpu, GpuSpec
from .render import MODULES, STORE
from .state import Load, Running
from .topology import Function
from .tree import Link, Node, Tree, change_tree, make_node

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class DriverControl:
    """The part of FakeHost that changes what is there."""

    root: Path
    description: Description
    running: Running
    gpus: list[Gpu]
    functions: list[Function]

    if TYPE_CHECKING:

        def _changing(self) -> AbstractContextManager[None]: ...
        def _redescribe(self, description: Description, libraries: bool = True) -> None: ...
        def _respecify(self, index: int, spec: GpuSpec) -> None: ...

    def hotplug(self, spec: GpuSpec) -> Gpu:
        """Adds a GPU. Others keep their minors; indexes follow the bus ids."""
        with self._changing():
            specs = [gpu.spec() for gpu in self.gpus]
            buses = {gpu.bus for gpu in self.gpus}
            minors = {gpu.minor for gpu in self.gpus}
            bus = spec.bus or next(
                f"0000:{number:02x}:00.0"
                for number in range(0xF0, 0, -1)
                if f"0000:{number:02x}:00.0" not in buses
            )
            minor = next(n for n in range(256) if n not in minors)
            spec = replace(
                spec,
                bus=bus,
                minor=minor if spec.minor is None else spec.minor,
                numa=0 if spec.numa is None else spec.numa,
                switch=-1 if spec.switch is None else spec.switch,
                links=spec.links or (),
            )
            self._redescribe(replace(self.description, gpus=[*specs, spec]))
            added = next(gpu for gpu in self.gpus if gpu.bus == bus.lower())
            if spec.memory_used:
                self.running.loads[added.uuid] = Load(used=spec.memory_used)
            return added

    def unplug(self, index: int) -> None:
        """Takes a GPU away with all its files; handles that programs have say that it is lost."""
        with self._changing():
            specs = [gpu.spec() for gpu in self.gpus if gpu.index != index]
            self._redescribe(replace(self.description, gpus=specs))

    def set_mig_layout(self, index: int, profiles: list[str] | tuple[str, ...] | None) -> None:
        """The MIG instances of a GPU, such as ["3g.40gb", "1g.10gb"]; None turns MIG off."""
        with self._changing():
            wanted = None if profiles is None else tuple(profiles)
            self._respecify(index, replace(self.gpus[index].spec(), mig=wanted))

    def set_broken(self, index: int, broken: bool = True) -> None:
        """Whether NVML fails to give a handle for a GPU."""
        with self._changing():
            self._respecify(index, replace(self.gpus[index].spec(), broken=broken))

    def set_modify_device_files(self, value: int) -> None:
        """The module's parameter of that name, as params shows it."""
        with self._changing():
            self._redescribe(replace(self.description, modify_device_files=value))

    def upgrade_driver(self, version: str, userspace_only: bool = False) -> None:
        """Installs another version of the driver.

        With userspace_only the old kernel module stays loaded, as it does until a reboot: NVML
        then says that library and module differ.
        """
        with self._changing():
            kernel = self.description.kernel_driver or self.description.driver
            before = self._userspace()
            after = replace(
                self.description,
                driver=version,
                cuda=None,
                kernel_driver=kernel if userspace_only else None,
            )
            self._redescribe(after, libraries=False)
            change_tree(self.root, before, self._userspace())
            if self.description.ldcache:
                store.run_ldconfig(self.root)

    def load_new_module(self) -> None:
        """What a reboot does after upgrade_driver(..., userspace_only=True)."""
        with self._changing():
            self._redescribe(replace(self.description, kernel_driver=None))

    def _userspace(self) -> Tree:
        carried = state.library_state(self.description, self.gpus, self.functions)
        return driverfiles.userspace_tree(self.description, carried)

    def unload_driver(self, delay: float = 0, udev: bool = False, refuse: bool = False) -> None:
        """The state before the driver is loaded: none of its files in /proc, /sys or /dev.

        The fake modprobe brings it back after `delay` seconds for each module, or fails with
        `refuse`. As on most hosts that makes no nodes, which are nvidia-modprobe's to make;
        with `udev` a rule makes them at once.
        """
        with self._changing():
            loaded = store.loaded_modules(self.root)
            before = render.system_tree(self.description, self.gpus, self.functions, loaded)
            after = render.system_tree(self.description, self.gpus, self.functions, ())
            change_tree(self.root, before, after)
            directory = self.root / STORE
            for name, wanted in (
                ("load-delay", f"{delay:g}" if delay else ""),
                ("udev", "1" if udev else ""),
                ("refuse-nvidia", "1" if refuse else ""),
            ):
                with contextlib.suppress(FileNotFoundError):
                    (directory / name).unlink()
                if wanted:
                    (directory / name).write_text(wanted)

    def load_driver(self) -> None:
        """Loads all modules and makes all nodes, as at boot."""
        for name in ("load-delay", "refuse-nvidia"):
            with contextlib.suppress(FileNotFoundError):
                (self.root / STORE / name).unlink()
        for module in MODULES:
            subprocess.run([str(self.root / "usr/sbin/modprobe"), module], check=True)
        for path, entry in self._nodes().items():
            if not os.path.lexists(self.root / path):
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                if isinstance(entry, Node):
                    make_node(str(self.root / path), entry)
                elif isinstance(entry, Link):
                    os.symlink(entry.target, self.root / path)

    def _nodes(self) -> Tree:
        tree = render.system_tree(self.description, self.gpus, self.functions, MODULES)
        return {path: entry for path, entry in tree.items() if path.startswith("dev/")}

    def remove_node(self, name: str) -> None:
        """Takes a node away: nvidia-uvm, nvidia0, nvidia-caps/nvidia-cap1."""
        (self.root / "dev" / name).unlink()

    def restore_node(self, name: str) -> None:
        """Makes a node again that should be there."""
        entry = self._nodes()[f"dev/{name}"]
        if not isinstance(entry, Node):
            raise ValueError(f"{name} is no device node of this host")
        make_node(str(self.root / "dev" / name), entry)
