"""Commands that pages show and do not run are commands; those that texts name exist."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_shell import NOT_RUN, shell_blocks
from doc_support import ROOT, blocks, documents
from rillnode.codecs.next_steps import every_step
from rillnode.node.cli.command import build_parser

pytestmark = pytest.mark.check


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


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every shell block as a file."""
    directory = tmp_path_factory.mktemp("blocks")
    found: list[Path] = []
    for (page, _), block in shell_blocks().items():
        script = directory / f"{page.replace('/', '-')}-{block.line}.sh"
        script.write_text(f"#!/bin/bash\n{block.text}", encoding="utf-8")
        found.append(script)
    return found


def test_a_shell_reads_every_block(scripts: list[Path]) -> None:
    for script in scripts:
        done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.needs("shellcheck")
def test_shellcheck_finds_nothing(scripts: list[Path]) -> None:
    # A block may change the directory without asking whether that went well: a reader sees it.
    own = [
        *ROOT.glob("tests/**/*.sh"),
        *ROOT.glob("benchmarks/*.sh"),
        *(one for one in ROOT.glob(".ci/*") if not one.suffix),
    ]
    done = subprocess.run(
        ["shellcheck", "--exclude=SC2164", *scripts, *own],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_what_blocks_that_are_not_run_name_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "\n".join(shell_blocks()[name].text for name in NOT_RUN)
    asked = {extra for group in re.findall(r"\[([\w,-]+)\]'?", text) for extra in group.split(",")}
    assert asked
    assert asked <= set(project["optional-dependencies"])
    paths = re.findall(r"(?<![\w./-])(?:tests|configs|examples|benchmarks)/[\w./-]+", text)
    assert len(paths) > 5
    assert not [path for path in paths if not (ROOT / path).exists()]
    modules = re.findall(r"python -m (benchmarks\.\w+)", text)
    assert modules
    assert not [one for one in modules if not (ROOT / f"{one.replace('.', '/')}.py").exists()]


def test_commands_that_errors_advise_exist() -> None:
    assert named("\n".join(every_step().values())) <= NAMES
