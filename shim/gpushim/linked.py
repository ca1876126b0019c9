"""The modules of a runtime call, loaded from one file in place of some forty.

Finding, checking and opening each module by itself takes a good part of gpushim's time in a
create, so install has `gpushim.link` put their code objects into one file for each kind of call.
Modules that many containers need and not all are in it as bytes that nobody looks at until they
are imported. It is used only while every source file is as it was then; without it, or with another
interpreter, modules are imported as usual.

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

    # (module name, whether it is a package, path of its source beneath the code directory,
    #  (size, mtime in nanoseconds) of that, code object)
    Part = tuple[str, bool, str, tuple[int, int], CodeType]
    # module name -> the same without the name, the code object marshalled
    Later = dict[str, tuple[bool, str, tuple[int, int], bytes]]

EXEC = "exec"
CREATE = "create"


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
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            data = posix.read(descriptor, posix.fstat(descriptor).st_size)
        finally:
            posix.close(descriptor)
        version, parts, later = marshal.loads(data)
        if version != sys.hexversion:
            return False
        for part in parts:
            if not _is_unchanged(code, part[2], part[3]):
                return False
    except (OSError, ValueError, EOFError, TypeError, IndexError):
        return False
    for part in parts:
        _make(code, part)
    if later:
        sys.meta_path.insert(0, Finder(code, later))
    return True


def _is_unchanged(code: str, path: str, stamp: "tuple[int, int]") -> bool:
    """Raises OSError where there is no such source."""
    source = posix.stat(f"{code}/{path}")
    return (source.st_size, source.st_mtime_ns) == stamp


class Finder:
    """Finds the modules that are in the file as bytes.

    A finder and loader as importlib.abc has them; what it does not find is for the usual ones.
    """

    __slots__ = ("code", "later")

    def __init__(self, code: str, later: "Later") -> None:
        self.code = code
        self.later = later

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
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
        exec(marshal.loads(self.later[module.__name__][3]), module.__dict__)


def _make(code: str, part: "Part") -> None:
    """Makes one module; those that it imports came before it, so its imports find them made."""
    name, is_package, path, _, body = part
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
