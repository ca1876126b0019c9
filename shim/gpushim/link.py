"""Puts the modules of each kind of runtime call into the one file that `gpushim.linked` loads.

Run by install with the interpreter of the create path: `python -I -S link.py CODE`, since byte
code is that interpreter's own. CODE is the directory that holds the package.
"""

from __future__ import annotations

import ast
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
    from types import ModuleType

    from gpushim.linked import Part

MODULES = {
    "exec": ("gpushim.execute", "gpushim.main"),
    "create": ("gpushim.create", "gpushim.main"),
}

# What the create path imports inside functions and many containers need: those of CUDA images,
# those that ask by UUIDs, labels or CDI names. Each costs all others a little, since it is read.
LATER = (
    "gpushim.allocate.names",
    "gpushim.cdi",
    "gpushim.cdi.names",
    "gpushim.inject.compat",
    "gpushim.inject.compatnote",
    "gpushim.request.dockerrecord",
    "gpushim.request.keys",
    "gpushim.request.keyvalues",
    "gpushim.request.requirements",
)


class Bare(ast.NodeTransformer):
    """Takes out what only a type checker reads."""

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

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module == "__future__" else node

    def visit_If(self, node: ast.If) -> ast.If | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        self.generic_visit(node)
        return node


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
    from gpushim.linked import CREATE, path_of

    made = [
        _part(code, it.__name__, it.__file__ or "", hasattr(it, "__path__")) for it in recorder.done
    ]
    later = {}
    for name in LATER if kind == CREATE else ():
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin, name
        is_package = spec.submodule_search_locations is not None
        _, *facts, body = _part(code, name, spec.origin, is_package)
        later[name] = (*facts, marshal.dumps(body))
    target = path_of(code, kind)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = f"{target}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(marshal.dumps((sys.hexversion, made, later)))
    os.chmod(temporary, 0o644)
    os.replace(temporary, target)
    return target


def _part(code: str, name: str, path: str, is_package: bool) -> Part:
    source = os.stat(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # Docstrings are for readers of the source; without them a fifth less is read in each call.
    tree = Bare().visit(ast.parse(text, path))
    body = compile(tree, path, "exec", dont_inherit=True, optimize=2)
    relative = os.path.relpath(path, code)
    return name, is_package, relative, (source.st_size, source.st_mtime_ns), body


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    for each in MODULES:
        print(link(sys.argv[1], each))
