"""What the verbs print: sentences, JSON and tables."""

from __future__ import annotations

import json
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


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal, or as its content where the output goes to a file."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        # As Text: what stands in brackets is data here, never markup.
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=1000)
        table.expand = False
    console.print(table)
