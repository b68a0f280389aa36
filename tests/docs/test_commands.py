"""Commands that pages show and do not run are commands; those that texts name exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_support import ROOT, blocks, documents
from rillnode.node.cli import build_parser
from rillnode.node.cli.failures import NEXT_STEPS

PARSER = build_parser()
NAMES = {command.prog for command in PARSER.walk()}
NOUNS = {name.rpartition(" ")[0] for name in NAMES if name.count(" ") == 2}
_INLINE = re.compile(r"`(rillnode(?: [a-z]+)*)")


def shown(page: Path) -> Iterator[list[str]]:
    """The `rillnode` commands of a page's `sh` blocks, as words."""
    for block in blocks(page):
        if block.language != "sh":
            continue
        lexer = shlex.shlex(block.text.replace("\\\n", " "), posix=True, punctuation_chars="|&;\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
        words: list[str] = []
        for token in [*lexer, "\n"]:
            if set(token) <= set("|&;\n"):
                if words[:1] == ["rillnode"]:
                    yield words[1:]
                words = []
            else:
                words.append(token)


def named(text: str) -> set[str]:
    """The commands that a text names in backquotes, without their arguments."""
    found: set[str] = set()
    for command in _INLINE.findall(text):
        words = command.split()
        found.add(" ".join(words[: 3 if " ".join(words[:2]) in NOUNS else 2]))
    return found


SHOWN = [
    pytest.param(words, id=f"{page.relative_to(ROOT)}: {' '.join(words[:2])}")
    for page in documents()
    for words in shown(page)
]


@pytest.mark.parametrize("words", SHOWN)
def test_commands_that_are_not_run_can_be_read(words: list[str]) -> None:
    PARSER.parse_args(words)


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_pages_name_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert named(text) <= NAMES


def test_commands_that_errors_advise_exist() -> None:
    assert named("\n".join(NEXT_STEPS.values())) <= NAMES
