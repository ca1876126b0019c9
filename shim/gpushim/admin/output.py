"""What the verbs print: sentences, JSON and tables."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any


def say(sentence: str) -> None:
    """A line on standard output."""
    print(sentence, flush=True)


def warn(sentence: str) -> None:
    """A line on standard error; the verb goes on."""
    print(f"gpushimctl: {sentence}", file=sys.stderr, flush=True)


def print_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=2, ensure_ascii=True)
    sys.stdout.write("\n")
    sys.stdout.flush()


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], first: int = 1) -> None:
    """A table for the width at hand: COLUMNS or the terminal's, and any width in a file."""
    width = shutil.get_terminal_size((0, 0)).columns
    print("\n".join(table(headings, rows, first, width)), flush=True)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], first: int, width: int
) -> list[str]:
    """The lines of a table whose cells are never cut.

    Where it is wider than `width` (0 for any width), each row takes two lines: the first columns,
    `first` in number, and the others.
    """
    lines = _aligned([headings, *rows])
    if not width or max(map(len, lines)) <= width:
        return lines
    upper = _aligned([row[:first] for row in (headings, *rows)])
    lower = _aligned([row[first:] for row in (headings, *rows)])
    return [
        line for pair in zip(upper, lower, strict=True) for line in (pair[0], "     " + pair[1])
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
