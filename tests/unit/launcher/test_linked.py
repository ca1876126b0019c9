"""The modules of a call in one file: used while it is right, and never when it is not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import gpushim
import pytest
from gpushim import linked
from gpushim.linetable import with_short_table
from gpushim.link import LATER

PYTHON = "/usr/bin/python3"
KINDS = {"create": "gpushim.create", "run": "gpushim.create", "exec": "gpushim.execute"}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A copy of the package, linked as install links it."""
    source = Path(gpushim.__file__).parent
    shutil.copytree(source, tmp_path / "gpushim", ignore=shutil.ignore_patterns("__pycache__"))
    done = run(f"{tmp_path}/gpushim/link.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    return tmp_path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, "-I", "-S", *words], capture_output=True, text=True, timeout=60)


def loaded(code: Path, command: str) -> tuple[bool, set[str]]:
    """What `load` said, and the modules that were there afterwards."""
    program = (
        f"import sys; sys.path.insert(0, {str(code)!r}); from gpushim.linked import load; "
        f"print(load({str(code)!r}, {command!r})); print(*sys.modules)"
    )
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    said, modules = done.stdout.splitlines()
    return said == "True", set(modules.split())


@pytest.mark.parametrize("command", sorted(KINDS))
def test_a_call_finds_its_modules_made(code: Path, command: str) -> None:
    said, modules = loaded(code, command)
    assert said
    assert {"gpushim.main", KINDS[command]} <= modules


def test_the_modules_work_and_find_the_rest_of_the_package(code: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(code)!r}); from gpushim.linked import load; "
        f"assert load({str(code)!r}, 'create'); import gpushim.oci.edits as edits, gpushim; "
        "import gpushim.lowlevel; assert gpushim.oci.edits is edits; "
        "print(gpushim.__version__, len(edits.Edits().mounts), edits.__file__)"
    )
    done = run("-c", program)
    assert done.stdout.split() == [gpushim.__version__, "0", f"{code}/gpushim/oci/edits.py"]


def test_modules_that_not_all_need_are_made_when_they_are_imported(code: Path) -> None:
    said, modules = loaded(code, "create")
    assert said
    assert not modules & set(LATER)
    program = (
        f"import sys; sys.path.insert(0, {str(code)!r}); from gpushim.linked import load; "
        f"assert load({str(code)!r}, 'create'); import gpushim.cdi.names as names; "
        "import gpushim.request.keys as keys, gpushim.cdi.version; "
        "print(names.__file__, type(keys.__spec__.loader).__name__, "
        "names.is_qualified('a/b=c'), gpushim.cdi.version.__file__)"
    )
    expected = f"{code}/gpushim/cdi/names.py Finder True {code}/gpushim/cdi/version.py"
    assert run("-c", program).stdout.strip() == expected
    with open(code / "gpushim/request/keys.py", "a") as file:
        file.write("# edited\n")
    assert "SourceFileLoader" in run("-c", program).stdout
    (code / "gpushim/request/keys.py").unlink()
    assert "No module named 'gpushim.request.keys'" in run("-c", program).stderr


def test_the_list_of_those_is_right(code: Path) -> None:
    """Each is imported in a function of the create path; one that is made anyway is not on it."""
    program = f"import sys; sys.path.insert(0, {str(code)!r}); import {{}}"
    for name in LATER:
        assert run("-c", program.format(name)).returncode == 0
    texts = "".join(path.read_text() for path in (code / "gpushim").rglob("*.py"))
    for name in set(LATER) - {"gpushim.cdi"}:
        package, _, module = name.rpartition(".")
        assert f"from {name} import" in texts or f"from {package} import {module}" in texts


def test_what_those_import_is_in_the_file_too(code: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(code)!r}); from gpushim.linked import load; "
        f"assert load({str(code)!r}, 'create'); import importlib; "
        f"[importlib.import_module(name) for name in {LATER!r}]; "
        "print(*(name for name, it in sys.modules.items() if name.startswith('gpushim.') "
        "and type(getattr(it.__spec__, 'loader', None)).__name__ == 'SourceFileLoader'))"
    )
    assert run("-c", program).stdout.split() == ["gpushim.linked"]


def test_numbers_stand_in_place_of_errno(code: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(code)!r}); from gpushim.linked import load; "
        f"assert load({str(code)!r}, 'create'); there = 'errno' in sys.modules; "
        "import errno, gpushim.errors as errors, gpushim.oci.rootfs as rootfs; "
        "print(there, errors.why(OSError(errno.EISDIR, '')), rootfs.ENOTDIR == errno.ENOTDIR)"
    )
    assert run("-c", program).stdout.strip() == "False it is a folder True"


def test_an_extension_is_loaded_without_a_search(code: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(code)!r}); from gpushim.linked import load; "
        f"assert load({str(code)!r}, 'create'); import _json, gpushim.oci.jsontext as text; "
        "print(_json.__file__, _json.__spec__.loader is None, text.loads('[1]'))"
    )
    usual = "import _json; print(getattr(_json, '__file__', ''))"
    file = run("-c", usual).stdout.strip()
    if not file:
        assert run("-c", program.replace("_json.__file__", "''")).returncode == 0
        return
    assert run("-c", program).stdout.strip() == f"{file} True [1]"
    # Where it is another file by now, it is found as usual.
    linked_file = next((code / "gpushim/__pycache__").glob("create.*.linked"))
    data = linked_file.read_bytes()
    linked_file.write_bytes(data.replace(file[1:].encode(), b"x" * len(file[1:])))
    assert run("-c", program).stdout.strip() == f"{file} False [1]"


def test_a_source_that_changed_is_not_passed_over(code: Path) -> None:
    with open(code / "gpushim/oci/edits.py", "a") as file:
        file.write("# edited\n")
    assert loaded(code, "create") == (False, loaded(code, "create")[1])
    assert "gpushim.create" not in loaded(code, "create")[1]
    # The file for exec has the module, too.
    assert not loaded(code, "exec")[0]


def test_a_source_that_went_away_is_not_passed_over(code: Path) -> None:
    (code / "gpushim/create.py").unlink()
    assert not loaded(code, "create")[0]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "garbage", "other version"])
def test_a_file_that_is_not_right_is_left_alone(code: Path, damage: str) -> None:
    file = next((code / "gpushim/__pycache__").glob("create.*.linked"))
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        version = sys.hexversion.to_bytes(4, "little")
        assert version in data or sys.version_info[:2] != (3, 11)
        file.write_bytes(
            {
                "empty": b"",
                "cut": data[: len(data) // 2],
                "garbage": b"no byte code",
                "other version": bytes(4) + data[4:],
            }[damage]
        )
    said, modules = loaded(code, "create")
    assert not said
    assert "gpushim.create" not in modules


ODD = (
    """
def plain(a, b):
    if a:
        return [
            each
            for each in b

            if each(a,
                    b)
        ]


"""
    + "\n" * 300
    + """
    return far(a), (
        lambda: 1 / 0
    )
try:
    plain(0, 0)
finally:
    del plain
"""
)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the table has another form")
@pytest.mark.parametrize("text", [ODD, Path(linked.__file__).read_text()], ids=["odd", "module"])
def test_lines_are_the_same_in_the_short_table(text: str) -> None:
    def lines(code: CodeType) -> Iterator[tuple[str, list[int | None]]]:
        found: list[int | None] = []
        for start, end, line in code.co_lines():
            found += [line] * (end - start)
        yield code.co_name, found
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield from lines(each)

    code = compile(text, "file", "exec")
    short = with_short_table(code)
    assert list(lines(short)) == list(lines(code))
    assert len(short.co_linetable) < len(code.co_linetable)


def test_the_entry_takes_the_loader_from_the_file(code: Path, tmp_path: Path) -> None:
    """Without the file it imports it, and the call is the same."""
    entry, call = str(code / "gpushim/entry.py"), ["create", "", "/bin/true", "runc", "", "", "x"]
    words = ["-X", "importtime", entry, *call]
    assert "gpushim.linked" not in run(*words).stderr
    file = next((code / "gpushim/__pycache__").glob("create.*.linked"))
    for damage in (lambda: file.write_bytes(bytes(4) + file.read_bytes()[4:]), file.unlink):
        damage()
        done = run(*words)
        assert "gpushim.linked" in done.stderr
        assert done.returncode == 0, done.stderr
