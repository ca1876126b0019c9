"""The modules of a runtime call, loaded from one file in place of some forty.

Finding, checking and opening each module by itself takes a good part of gpushim's time in a
create, so install has `gpushim.link` put their code objects into one file for each kind of call.
Modules that many containers need and not all are in it, too, and are read when they are imported.
It is used only while every source file is as it was then; without it, or with another interpreter,
modules are imported as usual.

Annotations are not postponed here, which would load another module.
"""

import gc
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

    # (size, mtime in nanoseconds) of a source
    Stamp = tuple[int, int]
    # (module name, whether it is a package, path of its source beneath the code directory)
    Part = tuple[str, bool, str]
    # module name -> whether it is a package, path, stamp, (place behind the index, length) of its
    # code
    Later = dict[str, tuple[bool, str, Stamp, tuple[int, int]]]
    # ((path of each source beneath the code directory, stamp), parts, (length, how many parts) of
    #  each piece, Later once more marshalled, (name, file, stamp) of each extension, length of all
    #  that follows)
    Extension = tuple[str, str, Stamp]
    Index = tuple[
        list[tuple[str, Stamp]],
        list[Part],
        list[tuple[int, int]],
        bytes,
        list[Extension],
        int,
    ]

EXEC = "exec"
CREATE = "create"

# The file begins with three numbers of four bytes: the interpreter's version, the length of this
# module's code, which `entry` takes from there, and that of the index, which comes next. Behind it
# are the pieces: each is a tuple of code objects, marshalled.
NUMBER = 4
HEAD = 3 * NUMBER


def path_of(code: str, kind: str) -> str:
    """Where the file for a kind of call lies; byte code is one interpreter's own."""
    return f"{code}/gpushim/__pycache__/{kind}.{sys.implementation.cache_tag}.linked"


def load(code: str, command: str) -> bool:
    """Makes the modules that `command` needs, those of the package beneath `code`.

    False if the file is not there or no longer right: then no module has been made.
    """
    # What is made from here on lives until the exec, and a large spec is a great many objects.
    gc.disable()
    try:
        path = path_of(code, EXEC if command == EXEC else CREATE)
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return False
    try:
        start, (_, parts, pieces, later, extensions, _) = _checked(code, file)
    except (OSError, ValueError, EOFError, TypeError):
        posix.close(file)
        return False
    for name, path, stamp in extensions:
        _load_extension(name, path, stamp)
    place = made = 0
    for length, count in pieces:
        # Piece by piece, since memory that is used again costs less than new.
        bodies = marshal.loads(posix.pread(file, length, start + place))
        place += length
        for number in range(count):
            _make(code, parts[made + number], bodies[number])
        made += count
    if later:
        sys.meta_path.insert(0, Finder(code, later, file, start))
    else:
        posix.close(file)
    return True


def _checked(code: str, file: int) -> "tuple[int, Index]":
    """Where what follows the index begins, and the index.

    Raises ValueError, EOFError, TypeError or OSError for what is no whole file of this interpreter,
    or not that of the sources as they are.
    """
    head = posix.read(file, HEAD)
    version, own, length = (int.from_bytes(head[at : at + NUMBER], "little") for at in (0, 4, 8))
    if version != sys.hexversion:
        raise ValueError("version")
    index: Index = marshal.loads(posix.pread(file, length, HEAD + own))
    start = HEAD + own + length
    if posix.fstat(file).st_size != start + index[-1]:
        raise ValueError("length")
    for source, stamp in index[0]:
        if not _is_unchanged(code, source, stamp):
            raise ValueError(source)
    return start, index


def _is_unchanged(code: str, path: str, stamp: "Stamp") -> bool:
    """Raises OSError where there is no such source."""
    source = posix.stat(f"{code}/{path}")
    return (source.st_size, source.st_mtime_ns) == stamp


def _load_extension(name: str, path: str, stamp: "Stamp") -> None:
    """Loads an extension module of the interpreter's, where it was when the file was made.

    To find it takes as long as to load it. Whatever is amiss, it is imported as usual.
    """
    import _imp

    try:
        if name not in sys.modules and _is_unchanged("", path, stamp):
            make: Any = type(sys.__spec__)
            spec: ModuleSpec = make(name, None, origin=f"/{path}")
            module = _imp.create_dynamic(spec)
            module.__spec__, module.__file__ = spec, spec.origin
            _imp.exec_dynamic(module)
            sys.modules[name] = module
    except (OSError, ImportError):
        pass


class Finder:
    """Finds the modules that are in the file as bytes.

    A finder and loader as importlib.abc has them; what it does not find is for the usual ones.
    """

    __slots__ = ("code", "file", "later", "marshalled", "start")

    def __init__(self, code: str, later: bytes, file: int, start: int) -> None:
        self.code = code
        self.marshalled = later
        self.later: Later = {}
        self.file = file
        self.start = start

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        if not name.startswith("gpushim."):
            return None
        if not self.later:
            # Many a create needs none of them.
            self.later = marshal.loads(self.marshalled)
        if name not in self.later:
            return None
        is_package, source, stamp, _ = self.later[name]
        try:
            if not _is_unchanged(self.code, source, stamp):
                return None
        except OSError:
            return None
        file = f"{self.code}/{source}"
        make: Any = type(sys.__spec__)
        spec: ModuleSpec = make(name, self, origin=file, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [file.rpartition("/")[0]]
        return spec

    def create_module(self, spec: "ModuleSpec") -> None:
        """None has the import system make it."""

    def exec_module(self, module: "ModuleType") -> None:
        place, length = self.later[module.__name__][3]
        body = marshal.loads(posix.pread(self.file, length, self.start + place))
        exec(body, module.__dict__)


def _make(code: str, part: "Part", body: "CodeType") -> None:
    """Makes one module; those that it imports came before it, so its imports find them made."""
    name, is_package, path = part
    if name in sys.modules:
        return
    parent, _, last = name.rpartition(".")
    module = type(sys)(name)
    module.__file__ = f"{code}/{path}"
    module.__package__ = name if is_package else parent
    if is_package:
        # A module that is not among the parts is found as usual.
        module.__path__ = [module.__file__.rpartition("/")[0]]
    sys.modules[name] = module
    exec(body, module.__dict__)
    if parent:
        setattr(sys.modules[parent], last, module)
