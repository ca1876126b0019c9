"""What the demo prints, and which of its expectations held."""

from __future__ import annotations

import textwrap

_WIDTH = 79


class Report:
    """Lines for people; `failed` holds the expectations that did not hold."""

    def __init__(self) -> None:
        self.held = 0
        self.failed: list[str] = []

    def title(self, text: str) -> None:
        self._print(f"\n{text}\n{'-' * len(text)}")

    def say(self, text: str) -> None:
        """A paragraph, wrapped."""
        self._print(textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False))

    def fact(self, name: str, value: str) -> None:
        """A name and what is known of it, in two columns."""
        indent = " " * 12
        self._print(
            textwrap.fill(
                f"{name:12}{value}",
                _WIDTH,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )

    def command(self, *words: str) -> None:
        self._print("$ " + " ".join(words))

    def show(self, text: str) -> None:
        """A program's output, indented; lines of words are wrapped, those of a table are not."""
        for line in text.splitlines():
            if len(line) < _WIDTH - 2 or line.lstrip()[:1] in ("|", "+"):
                self._print("  " + line)
                continue
            indent = "  " + line[: len(line) - len(line.lstrip())]
            self._print(
                textwrap.fill(
                    line.strip(),
                    _WIDTH,
                    initial_indent=indent,
                    subsequent_indent=indent + "    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )

    def expect(self, what: str, held: bool, saw: str = "") -> None:
        """An expectation in words; `saw` is printed only where it did not hold."""
        if held:
            self.held += 1
            self._print(f"  ok      {what}")
            return
        self.failed.append(what)
        self._print(f"  FAILED  {what}")
        if saw:
            self._print(textwrap.indent(saw.rstrip("\n"), "          saw: "))

    def verdict(self) -> int:
        """Prints what came of it; the exit status."""
        if not self.failed:
            self._print(f"\nAll {self.held} expectations held.")
            return 0
        self._print(f"\n{len(self.failed)} of {self.held + len(self.failed)} did not hold:")
        for what in self.failed:
            self._print(f"  {what}")
        return 1

    def _print(self, text: str) -> None:
        print(text, flush=True)
