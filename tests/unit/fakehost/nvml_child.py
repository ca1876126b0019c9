"""Run in a process of its own: the real pynvml against the library of a fake host.

    python nvml_child.py LIBRARY < program

The program sees `nvml` (pynvml, initialised) and whatever it assigns to `answer` is printed as
JSON. The library is loaded by its path first, so that pynvml's own look-up by soname finds it.
"""

from __future__ import annotations

import ctypes
import json
import sys

import pynvml as nvml


def main() -> None:
    ctypes.CDLL(sys.argv[1])
    names: dict[str, object] = {"nvml": nvml, "answer": None}
    try:
        nvml.nvmlInit()
        exec(sys.stdin.read(), names)
    except nvml.NVMLError as error:
        names["answer"] = {"error": error.value}
    print(json.dumps(names["answer"]))


main()
