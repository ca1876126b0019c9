"""A fake host in a directory: building it, and controlling it while it is in use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from . import compiler, driverfiles, libraries, render, state, store
from .description import Description, Gpu, GpuSpec, resolve
from .driver_control import DriverControl
from .load_control import LoadControl
from .render import MODULES, STORE
from .state import Load, Running
from .tree import change_tree, text, write_file, write_tree


class FakeHost(LoadControl, DriverControl):
    """A host that `build` made, or that an earlier process did (`FakeHost.open`)."""

    def __init__(self, root: Path, description: Description, running: Running) -> None:
        self.root = root
        self.driver_root = root
        self.dev_root = root / "dev"
        self.proc_root = root / "proc"
        self.sys_root = root / "sys"
        self.helpers = [root / "usr/bin", root / "usr/sbin"]
        self._set(description, running)

    @classmethod
    def open(cls, root: Path | str) -> FakeHost:
        """The host that lies in a directory."""
        path = Path(os.path.realpath(root))
        return cls(path, *store.load(path))

    def _set(self, description: Description, running: Running) -> None:
        self.description = description
        self.running = running
        self.gpus: list[Gpu] = resolve(description)
        self.functions = render.pci_functions(description, self.gpus)

    @property
    def library_directory(self) -> Path:
        """Where the 64-bit libraries are."""
        return self.root / libraries.LAYOUTS[self.description.layout][0]

    @property
    def nvml(self) -> Path:
        """The absolute path of libnvidia-ml.so.1, by which real pynvml can be made to use it."""
        return self.library_directory / "libnvidia-ml.so.1"

    @property
    def lock_path(self) -> Path:
        """A file that is locked during each change."""
        return self.root / STORE / "lock"

    def gpu(self, index: int) -> Gpu:
        """The GPU at a place in the order of bus ids."""
        return self.gpus[index]

    def toml(self) -> str:
        """The section of gpushim's configuration that makes it use this host."""
        helpers = ", ".join(f'"{helper}"' for helper in self.helpers)
        return (
            "[host]\n"
            f'driver-root = "{self.driver_root}"\n'
            f'dev-root = "{self.dev_root}"\n'
            f'proc-root = "{self.proc_root}"\n'
            f'sys-root = "{self.sys_root}"\n'
            f"helpers = [{helpers}]\n"
            "load-driver = true\n"
            'driver-wait = "10s"\n'
        )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One change: what other processes have set meanwhile is read first."""
        with store.locked(self.root):
            self._set(*store.load(self.root))
            yield
            store.save(self.root, self.description, self.running)
            self._write_state()

    def _write_state(self) -> None:
        content = state.state_text(self.description, self.gpus, self.functions, self.running)
        write_file(self.root / STORE / "state", content.encode())

    def _redescribe(self, description: Description, libraries: bool = True) -> None:
        """Brings /proc, /sys and /dev to another description; the driver's files stay."""
        loaded = store.loaded_modules(self.root)
        before = render.system_tree(self.description, self.gpus, self.functions, loaded)
        self._set(description, self.running)
        after = render.system_tree(self.description, self.gpus, self.functions, loaded)
        change_tree(self.root, before, after)
        if libraries:
            self._update_libraries()

    def _update_libraries(self) -> None:
        """Puts the present GPUs into the libraries as what a container sees.

        That is done in place and with the old times: on a real host no file of the driver changes
        when a GPU comes or goes, and nothing under test may notice one.
        """
        content = state.library_state(self.description, self.gpus, self.functions).encode()
        for stem in ("libnvidia-ml", "libcuda"):
            path = self.library_directory / f"{stem}.so.{self.description.driver}"
            data = path.read_bytes()
            place = data.index(compiler.STATE_MARK) + len(compiler.STATE_MARK)
            room = compiler.STATE_SIZE - len(compiler.STATE_MARK)
            times = os.stat(path)
            with open(path, "r+b") as file:
                file.seek(place)
                file.write(content.ljust(room, b"\0"))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _respecify(self, index: int, spec: GpuSpec) -> None:
        specs = [gpu.spec() for gpu in self.gpus]
        specs[index] = spec
        self._redescribe(replace(self.description, gpus=specs))


def build(path: Path | str, description: Description | None = None) -> FakeHost:
    """Makes a host in a directory, which is created and must have no host in it yet."""
    wanted = description or Description()
    os.makedirs(path, exist_ok=True)
    root = Path(os.path.realpath(path))
    if (root / STORE).exists():
        raise FileExistsError(f"there is a fake host in {root} already")
    gpus = resolve(wanted)
    given: Sequence[GpuSpec] = () if isinstance(wanted.gpus, int) else wanted.gpus
    used = {spec.bus: spec.memory_used for spec in given}
    functions = render.pci_functions(wanted, gpus)
    running = Running(
        loads={gpu.uuid: Load(used=used.get(gpu.bus, 0)) for gpu in gpus if used.get(gpu.bus)}
    )
    carried = state.library_state(wanted, gpus, functions)
    tree = driverfiles.distribution_tree(wanted)
    tree |= driverfiles.userspace_tree(wanted, carried)
    tree |= render.system_tree(wanted, gpus, functions, MODULES)
    tree[f"{STORE}/lock"] = text("")
    tree[f"{STORE}/state"] = text(state.state_text(wanted, gpus, functions, running))
    write_tree(root, tree)
    settled = replace(wanted, gpus=[gpu.spec() for gpu in gpus], minors="same")
    store.save(root, settled, running)
    if wanted.ldcache:
        store.run_ldconfig(root)
    return FakeHost(root, settled, running)
