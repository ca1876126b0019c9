# fmt: off
# ruff: noqa: E401, E402, E701, E702, I001
# All of this is compiled in each call. The loader comes out of the file that it is to load, if that
# is of this interpreter: to import it would take as long as a tenth of what follows.
import marshal, posix, sys
sys.path.insert(0, sys.argv[0][: -len("/gpushim/entry.py")])
try:
    kind = "exec" if sys.argv[1] == "exec" else "create"
    path = f"{sys.path[0]}/gpushim/__pycache__/{kind}.{sys.implementation.cache_tag}.linked"
    file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    data = posix.read(file, 1 << 13); posix.close(file)
    if data[:4] != sys.hexversion.to_bytes(4, "little"): raise ValueError
    loader = vars(type(sys)("gpushim.linked"))
    exec(marshal.loads(data[12:]), loader); load = loader["load"]
except Exception:
    from gpushim.linked import load
load(sys.path[0], sys.argv[1])
from gpushim.main import main; main(sys.argv[2:])
