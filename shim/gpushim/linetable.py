"""Which line each piece of byte code is of, in as few bytes as the interpreter understands."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

# Kinds of entries in a table of lines.
_LINE_ONLY = 13
_NO_LINE = 15


def with_short_table(code: CodeType) -> CodeType:
    """The same code with a table of lines alone, a third as long as the compiler's without columns.

    From CPython 3.11 on (Objects/locations.md): an entry is a byte that says how it goes on and for
    how many units of code it holds, eight at most, and here the difference to the line before.
    """
    lines: list[tuple[int | None, int]] = []
    for start, end, line in code.co_lines():
        units = (end - start) // 2
        if lines and lines[-1][0] == line:
            units += lines.pop()[1]
        lines.append((line, units))
    table = bytearray()
    last = code.co_firstlineno
    for line, units in lines:
        for done in range(0, units, 8):
            kind = _NO_LINE if line is None else _LINE_ONLY
            table.append(0x80 | kind << 3 | min(units - done, 8) - 1)
            if line is not None:
                table += _signed(line - last)
                last = line
    constants = tuple(
        with_short_table(each) if isinstance(each, type(code)) else each for each in code.co_consts
    )
    return code.replace(co_consts=constants, co_linetable=bytes(table))


def _signed(number: int) -> bytes:
    """A number in groups of six bits, the lowest first, its sign in the lowest of all."""
    rest = -number << 1 | 1 if number < 0 else number << 1
    found = bytearray()
    while rest >= 64:
        found.append(64 | rest & 63)
        rest >>= 6
    found.append(rest)
    return bytes(found)
