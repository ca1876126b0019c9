"""Imports go downwards only; who may import whom is one list."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "shim"

# Each row imports from the rows above it and from itself, never from one below.
ORDER = [
    ["errors", "log", "config", "places"],
    [
        "config_kinds",
        "config_keys_allocate",
        "config_keys_share",
        "config_keys",
        "config_schema",
        "config_file",
        "lowlevel",
        "launcher_settings",
    ],
    ["oci"],
    ["request"],
    ["host"],
    ["cdi"],
    ["snapshot", "renew"],
    ["refresh"],
    ["records", "refusals"],
    ["allocate"],
    ["limits"],
    ["inject"],
    [
        "asker",
        "asking",
        "maximum",
        "redeeming",
        "booking",
        "granting",
        "injection",
        "decision",
        "create",
        "execute",
        "restore",
        "main",
        "linked",
        "linetable",
        "entry",
        "link",
    ],
    ["engines"],
    ["observe"],
    ["admin"],
]
RANK = {name: rank for rank, row in enumerate(ORDER) for name in row}
CREATE_PATH = [
    "asking",
    "granting",
    "injection",
    "decision",
    "create",
    "execute",
    "restore",
    "main",
]


class Import:
    """One imported module: its full name, and whether merely loading the file imports it."""

    def __init__(self, name: str, line: int, at_load: bool) -> None:
        self.name, self.line, self.at_load = name, line, at_load


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path) -> dict[str, Path]:
    return {module_name(p, root): p for p in sorted(root.rglob("*.py"))}


def is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def targets(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    """Name the modules of one statement; ``from a import b`` may mean a or a.b, so both."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = package[: len(package) - node.level + 1] if node.level else []
    prefix = ".".join([*base, *([node.module] if node.module else [])])
    return [prefix, *(f"{prefix}.{alias.name}" for alias in node.names)]


def imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """Find every import of a source text, also those in functions and for types alone."""
    package = module.split(".") if is_package else module.split(".")[:-1]

    def walk(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in targets(node, package):
                yield Import(name, node.lineno, at_load)
            return
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for statement in node.body:
                yield from walk(statement, False)
            for statement in node.orelse:
                yield from walk(statement, at_load)
            return
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, at_load and not inside)

    return walk(ast.parse(source), True)


def imports_of(name: str, path: Path) -> list[Import]:
    return list(imports(path.read_text(), name, path.name == "__init__.py"))


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def violations(module: str, found: list[Import], known: set[str]) -> list[str]:
    """Say which of a module's imports go upwards."""
    bad = []
    for item in found:
        top = layer(item.name)
        if item.name.split(".")[0] == "gpushim_hooks":
            bad.append(f"{module}:{item.line} imports {item.name}: hooks call gpushim, never back")
        elif item.name.split(".")[0] != "gpushim" or f"gpushim.{top}" not in known:
            continue  # another distribution, or a plain name from gpushim/__init__.py
        elif module == "gpushim" or RANK.get(top, 0) > RANK.get(layer(module), len(ORDER)):
            bad.append(f"{module}:{item.line} imports {item.name}, which lies above it")
    return bad


def test_every_module_has_its_place() -> None:
    unplaced = {layer(m) for m in modules(SHIM) if m != "gpushim"} - RANK.keys()
    assert not unplaced, f"give these a place in ORDER: {sorted(unplaced)}"


def test_imports_go_downwards() -> None:
    known = modules(SHIM)
    bad = [v for m, p in known.items() for v in violations(m, imports_of(m, p), set(known))]
    assert not bad, "\n".join(bad)


def create_path() -> dict[str, list[Import]]:
    """Return the modules that loading those of the create path loads, with their imports."""
    known = modules(SHIM)
    found: dict[str, list[Import]] = {}
    todo = [f"gpushim.{name}" for name in CREATE_PATH]
    while todo:
        name = todo.pop()
        if name in found or name not in known:
            continue
        found[name] = imports_of(name, known[name])
        todo += [i.name for i in found[name] if i.at_load]
        todo.append(name.rpartition(".")[0])  # a package's __init__ is loaded with its modules
    return found


def test_schemas_are_never_on_the_create_path() -> None:
    """Not even inside a function: validation is for refresh, which is another process."""
    bad = [
        f"{module}:{item.line}"
        for module, found in create_path().items()
        for item in found
        if item.name.split(".")[0] == "gpushim_specs"
    ]
    assert not bad, bad


def test_create_path_loads_the_standard_library_only() -> None:
    bad = [
        f"{module}:{item.line} loads {item.name}"
        for module, found in create_path().items()
        for item in found
        if item.at_load and item.name.split(".")[0] not in {*sys.stdlib_module_names, "gpushim"}
    ]
    assert not bad, bad


def test_hooks_are_short() -> None:
    long = [p.name for p in ROOT.glob("hooks/**/*.py") if len(p.read_text().splitlines()) >= 80]
    assert not long, f"logic belongs in gpushim: {long}"


KNOWN = {"gpushim", "gpushim.oci", "gpushim.host", "gpushim.create", "gpushim.oci.bundle"}


@pytest.mark.parametrize(
    "source",
    [
        "import gpushim.create",
        "from gpushim.create import main",
        "from gpushim import create",
        "from .. import create",
        "from ..create import main",
        "def f():\n    from gpushim import create",
        "if TYPE_CHECKING:\n    import gpushim.create",
        "import gpushim_hooks.prestart",
    ],
)
def test_an_upward_import_is_found(source: str) -> None:
    assert violations(
        "gpushim.oci.bundle", list(imports(source, "gpushim.oci.bundle", False)), KNOWN
    )


@pytest.mark.parametrize(
    "source",
    [
        "from . import bundle",
        "from gpushim import __version__",
        "from ..oci import bundle",
        "import os.path",
        "import gpushimx.create",
    ],
)
def test_a_downward_import_is_allowed(source: str) -> None:
    assert not violations("gpushim.host", list(imports(source, "gpushim.host", True)), KNOWN)


def test_load_time_imports_are_told_from_later_ones() -> None:
    source = (
        "import a\nif typing.TYPE_CHECKING:\n    import b\nelse:\n    import c\n"
        "def f():\n    import d\nclass K:\n    import e\ntry:\n    import g\nexcept E:\n    pass\n"
    )
    found = {i.name: i.at_load for i in imports(source, "gpushim.x", False)}
    assert found == {"a": True, "b": False, "c": True, "d": False, "e": True, "g": True}
