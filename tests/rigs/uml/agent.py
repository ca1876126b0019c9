"""The guest's end of the line: it runs what it is told to and says what came of it.

    agent.py TTY

Each line from the host is a JSON object (argv, input, environment, timeout), each answer one, too
(returncode, stdout, stderr, or timeout). It needs nothing but the guest's own Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tty
from typing import Any


def answer(order: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            order["argv"],
            input=order["input"],
            env={**os.environ, **order["environment"]},
            capture_output=True,
            timeout=order["timeout"],
            encoding="utf-8",
            errors="surrogateescape",
        )
    except subprocess.TimeoutExpired:
        return {"timeout": True}
    except OSError as error:
        return {"returncode": 127, "stdout": "", "stderr": f"{order['argv'][0]}: {error}"}
    return {"returncode": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def main() -> None:
    line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    tty.setraw(line)
    with open(line, "rb") as orders, open(os.dup(line), "wb") as answers:
        answers.write(b"ready\n")
        answers.flush()
        for text in orders:
            answers.write(json.dumps(answer(json.loads(text))).encode() + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
