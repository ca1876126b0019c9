# fmt: off
# ruff: noqa: E402, E702, I001
import sys
sys.path.insert(0, sys.argv[0][: -len("/gpushim/entry.py")])
from gpushim.linked import load; load(sys.path[0], sys.argv[1])
from gpushim.main import main; main(sys.argv[2:])
