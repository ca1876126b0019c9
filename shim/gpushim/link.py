"""Puts the modules of each kind of runtime call into the one file that `gpushim.linked` loads.

Run by install with the interpreter of the create path: `python -I -S link.py CODE`, since byte
code is that interpreter's own. CODE is the directory that holds the package.
"""

from __future__ import annotations

import ast
import errno
import importlib
import importlib.util
import marshal
import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

    from gpushim.linked import Extension, Part, Stamp

MODULES = {
    "exec": ("gpushim.execute", "gpushim.main"),
    "create": ("gpushim.create", "gpushim.main"),
}

# What the create path imports inside functions and many containers need: those of CUDA images,
# those that ask by counts, UUIDs, labels, tickets or CDI names, those among others with leases,
# those with limits, and those for which NVML is asked. Who needs none pays for the names alone.
LATER = (
    "gpushim.allocate.attribution",
    "gpushim.allocate.cgroup_of",
    "gpushim.allocate.circumstances",
    "gpushim.allocate.keptout",
    "gpushim.allocate.liveness",
    "gpushim.allocate.names",
    "gpushim.allocate.picks",
    "gpushim.allocate.placement",
    "gpushim.allocate.processes",
    "gpushim.allocate.profiles",
    "gpushim.allocate.queue",
    "gpushim.allocate.realuse",
    "gpushim.allocate.ticket",
    "gpushim.allocate.ticketfiles",
    "gpushim.allocate.tickets",
    "gpushim.cdi",
    "gpushim.cdi.names",
    "gpushim.cdi.resolve",
    "gpushim.cdi.state",
    "gpushim.host.deviceuse",
    "gpushim.host.drm",
    "gpushim.host.ldsocache",
    "gpushim.host.libraryorder",
    "gpushim.host.nics",
    "gpushim.host.nvml_quick",
    "gpushim.host.pcitree",
    "gpushim.inject.compat",
    "gpushim.inject.compatnote",
    "gpushim.inject.cudadevices",
    "gpushim.inject.drm",
    "gpushim.inject.features",
    "gpushim.inject.injected",
    "gpushim.inject.nccl",
    "gpushim.limits.cgroups",
    "gpushim.limits.classic",
    "gpushim.limits.defaults",
    "gpushim.limits.limits",
    "gpushim.limits.numa",
    "gpushim.limits.numberlist",
    "gpushim.limits.present",
    "gpushim.limits.security",
    "gpushim.limits.settings",
    "gpushim.limits.shares",
    "gpushim.limits.shm",
    "gpushim.limits.unified",
    "gpushim.redeeming",
    "gpushim.request.dockerrecord",
    "gpushim.request.extras",
    "gpushim.request.keys",
    "gpushim.request.keyvalues",
    "gpushim.request.requirements",
    "gpushim.request.swarm",
    "gpushim.request.ticketed",
)

# Extension modules that each call takes, where they are no part of the interpreter itself.
EXTENSIONS = ("_json",)

# How large a piece of the file is, about: what is read at once and let go of again.
_PIECE = 32 << 10


class Bare(ast.NodeTransformer):
    """Takes out what only a type checker reads, and errno: its numbers take its place.

    To make that module, with all the numbers that there are, takes as long as to make five of ours.
    """

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Import(self, node: ast.Import) -> ast.Import | None:
        return None if node.names[0].name == "errno" else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | list[ast.Assign] | None:
        if node.module == "errno":
            return [ast.copy_location(_assigned(alias.name), node) for alias in node.names]
        return None if node.module == "__future__" else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "errno":
            return ast.copy_location(ast.Constant(getattr(errno, node.attr)), node)
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.If | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        self.generic_visit(node)
        return node


def _assigned(name: str) -> ast.Assign:
    """NAME = its number."""
    target = ast.Name(name, ast.Store())
    made = ast.Assign([target], ast.Constant(getattr(errno, name)), lineno=0)
    return ast.fix_missing_locations(made)


class Recorder:
    """A finder (importlib.abc) that notes in which order the modules of gpushim are done."""

    def __init__(self) -> None:
        self.done: list[ModuleType] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "gpushim":
            return None
        spec = PathFinder.find_spec(name, path)
        loader = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def record(module: ModuleType) -> None:
                execute(module)
                self.done.append(module)

            loader.exec_module = record  # type: ignore[method-assign]
        return spec


def link(code: str, kind: str) -> str:
    """Writes the file for one kind of call and returns its path. Raises OSError if it can't."""
    recorder = Recorder()
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpushim"]:
        del sys.modules[name]
    sys.meta_path.insert(0, recorder)
    try:
        for name in MODULES[kind]:
            importlib.import_module(name)
    finally:
        sys.meta_path.remove(recorder)
    from gpushim import linked

    made = [
        _source(code, it.__name__, it.__file__ or "", hasattr(it, "__path__"))
        for it in recorder.done
    ]
    later = []
    for name in LATER if kind == linked.CREATE else ():
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin, name
        is_package = spec.submodule_search_locations is not None
        later.append(_source(code, name, spec.origin, is_package))
    loader = _source(code, linked.__name__, linked.__file__ or "", False)
    target = linked.path_of(code, kind)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = f"{target}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(_file(loader, made, later))
    os.chmod(temporary, 0o644)
    os.replace(temporary, target)
    return target


class Source:
    """A module as it is now: `part` as in the file, `stamp` of its source, `body` its code."""

    __slots__ = ("body", "part", "stamp")

    def __init__(self, part: Part, stamp: Stamp, body: CodeType) -> None:
        self.part = part
        self.stamp = stamp
        self.body = body


def _source(code: str, name: str, path: str, is_package: bool) -> Source:
    status = os.stat(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # Docstrings are for readers of the source; without them a fifth less is read in each call.
    tree = Bare().visit(ast.parse(text, path))
    body = compile(tree, path, "exec", dont_inherit=True, optimize=2)
    if sys.version_info >= (3, 11):
        from gpushim.linetable import with_short_table

        body = with_short_table(body)
    part = (name, is_package, os.path.relpath(path, code))
    return Source(part, (status.st_size, status.st_mtime_ns), body)


def _pieces(bodies: list[CodeType]) -> list[tuple[bytes, int]]:
    """(marshalled tuple of code objects, how many they are) of each piece of the file."""
    pieces = []
    some: list[CodeType] = []
    for body in bodies:
        some.append(body)
        data = marshal.dumps(tuple(some))
        if len(data) > _PIECE or body is bodies[-1]:
            pieces.append((data, len(some)))
            some = []
    return pieces


def _file(loader: Source, made: list[Source], later: list[Source]) -> bytes:
    """The whole file, as `gpushim.linked` describes it."""
    from gpushim.linked import NUMBER

    pieces = _pieces([source.body for source in made])
    data = b"".join(piece for piece, _ in pieces)
    entries = {}
    for source in later:
        name, is_package, path = source.part
        body = marshal.dumps(source.body)
        entries[name] = (is_package, path, source.stamp, (len(data), len(body)))
        data += body
    index = marshal.dumps(
        (
            [(source.part[2], source.stamp) for source in [loader, *made]],
            [source.part for source in made],
            [(len(piece), count) for piece, count in pieces],
            marshal.dumps(entries) if entries else b"",
            _extensions(),
            len(data),
        )
    )
    own = marshal.dumps(loader.body)
    numbers = (sys.hexversion, len(own), len(index))
    return b"".join(each.to_bytes(NUMBER, "little") for each in numbers) + own + index + data


def _extensions() -> list[Extension]:
    found = []
    for name in EXTENSIONS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.has_location and spec.origin:
            status = os.stat(spec.origin)
            stamp = (status.st_size, status.st_mtime_ns)
            found.append((name, os.path.relpath(spec.origin, "/"), stamp))
    return found


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    for each in MODULES:
        print(link(sys.argv[1], each))
