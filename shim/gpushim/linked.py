"""The modules of a runtime call, loaded from one file in place of some forty.

Finding, checking and opening each module by itself takes a good part of gpushim's time in a
create, so install has `gpushim.link` put their code objects into one file for each kind of call.
It is used only while every source file is as it was then; without it, or with another
interpreter, modules are imported as usual.

Annotations are not postponed here, which would load another module.
"""

import gc
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

    # (module name, whether it is a package, path of its source beneath the code directory,
    #  (size, mtime in nanoseconds) of that, code object)
    Part = tuple[str, bool, str, tuple[int, int], CodeType]

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
        version, parts = marshal.loads(data)
        if version != sys.hexversion:
            return False
        for part in parts:
            source = posix.stat(f"{code}/{part[2]}")
            if (source.st_size, source.st_mtime_ns) != part[3]:
                return False
    except (OSError, ValueError, EOFError, TypeError, IndexError):
        return False
    for part in parts:
        _make(code, part)
    return True


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
