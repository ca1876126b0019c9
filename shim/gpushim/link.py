"""Puts the modules of each kind of runtime call into the one file that `gpushim.linked` loads.

Run by install with the interpreter of the create path: `python -I -S link.py CODE`, since byte
code is that interpreter's own. CODE is the directory that holds the package.
"""

from __future__ import annotations

import ast
import importlib
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
    from gpushim.linked import path_of

    target = path_of(code, kind)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = f"{target}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(marshal.dumps((sys.hexversion, [_part(code, it) for it in recorder.done])))
    os.chmod(temporary, 0o644)
    os.replace(temporary, target)
    return target


def _part(code: str, module: ModuleType) -> Part:
    path = module.__file__ or ""
    source = os.stat(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # Docstrings are for readers of the source; without them a fifth less is read in each call.
    tree = Bare().visit(ast.parse(text, path))
    body = compile(tree, path, "exec", dont_inherit=True, optimize=2)
    is_package = hasattr(module, "__path__")
    relative = os.path.relpath(path, code)
    return module.__name__, is_package, relative, (source.st_size, source.st_mtime_ns), body


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    for each in MODULES:
        print(link(sys.argv[1], each))
