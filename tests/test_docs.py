"""The documents say what is so: links lead somewhere, commands exist, sentences are the code's."""

from __future__ import annotations

import argparse
import ast
import re
from functools import cache
from pathlib import Path

import pytest
from gpushim import config_keys
from gpushim.admin import cli

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Where this project happens to be worked on is nobody's business.
FORBIDDEN = re.compile(r"/w[o]rk/|pyenv|\bTODO\b|\bTBD\b", re.IGNORECASE)


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    plain = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    lines = path.read_text().splitlines()
    return {anchor(line.lstrip("#")) for line in lines if line.startswith("#")}


def code(path: Path) -> list[str]:
    """All that a document has in code style: lines of blocks and text in backquotes."""
    text = path.read_text()
    blocks = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return blocks + [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        file, _, fragment = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        assert other.is_file(), f"{target} in {path.name}"
        assert not fragment or fragment in anchors(other), f"{target} in {path.name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_no_words_that_do_not_belong_here(path: Path) -> None:
    found = FORBIDDEN.search(path.read_text())
    assert not found, f"{found and found.group()} in {path.name}"


def test_every_document_can_be_reached() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in ROOT.glob("docs/*.md"):
        assert f"docs/{path.name}" in readme, f"README.md does not lead to {path.name}"


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The verbs of a command line, or the actions of a verb; empty for one that has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_commands_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    known = verbs(cli.parser())
    assert known
    for line in code(path):
        words = line.partition("#")[0].split()
        for position, word in enumerate(words):
            rest = words[position + 1 :]
            if word == "make" and position == 0 and rest:
                assert rest[0] in targets, line
            if word.rpartition("/")[2] == "gpushimctl" and rest and rest[0][:1].isalpha():
                assert rest[0] in known, line
                parser, options = known[rest[0]], rest[1:]
                actions = verbs(parser)
                if actions and options:
                    assert options[0] in actions, line
                    parser, options = actions[options[0]], options[1:]
                # What is behind two dashes is another program's.
                for option in options[: options.index("--")] if "--" in options else options:
                    known_here = parser._option_string_actions
                    assert not option.startswith("--") or option in known_here, line


def test_keys_in_documents_exist() -> None:
    """`name = value` in a document is a key of the configuration."""
    names = {key.name for key in config_keys.KEYS}
    for path in DOCUMENTS:
        for text in code(path):
            found = re.fullmatch(r"([a-z-]+) = (true|false|\".*\")", text)
            assert not found or found.group(1) in names, f"{text} in {path.name}"


@cache
def sentences() -> str:
    """All texts of the code, with a NUL for each value that an f-string puts in."""
    found = [(ROOT / "shim/gpushim/launcher.sh").read_text().replace("\\\n", "")]
    for path in sorted(ROOT.glob("shim/gpushim/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "\0" for part in node.values
                )
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def quoted() -> list[str]:
    """The sentences that troubleshooting.md explains: a list's items in backquotes."""
    text = (ROOT / "docs/troubleshooting.md").read_text()
    return list(re.findall(r"^\* `([^`]+)`\\$", text, re.MULTILINE))


def test_there_are_sentences_to_look_at() -> None:
    assert len(quoted()) > 30


@pytest.mark.parametrize("sentence", quoted())
def test_sentences_are_those_of_the_code(sentence: str) -> None:
    """What stands between the dots has to be in the code, word for word."""
    variables = r"(NVIDIA_VISIBLE_DEVICES|CUDA_VISIBLE_DEVICES|/etc/ld\.so\.conf\.d)"
    for part in re.split(rf"\.\.\.|{variables}", sentence):
        fragment = (part or "").strip(" ,.;:=()'")
        if fragment and not re.fullmatch(variables, fragment):
            assert fragment in sentences(), fragment
