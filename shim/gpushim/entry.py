import sys

sys.path.insert(0, sys.argv[0][: -len("/gpushim/entry.py")])
from gpushim.main import main

main(sys.argv[1:])
