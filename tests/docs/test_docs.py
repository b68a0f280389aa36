"""The documentation is true: blocks run, links lead somewhere, figures are those of the code.

Programs of README and of the tutorials go on where they stopped when they run again; one page shows
that in the quick part.
"""

import re
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from deleted_rooms import rooms_in
from doc_shell import LONG, NOT_RUN, STAGES, Name, name_of, shell_blocks
from doc_support import COMMAND_SECONDS, ROOT, Block, Runner, blocks, documents, matches, running
from rillnode.codecs import limits
from rillnode.node.config import parse_config

DOCUMENTS = documents()
SPARK_PAGES = [ROOT / "docs" / name for name in ("tutorials/flights.md", "tutorials/tables.md")]
SLOW_PAGES = [
    ROOT / "docs" / name
    for name in (
        "how-to/simulate.md",
        "explanation/simulation.md",
        "tutorials/find-a-mistake.md",
        "tutorials/simulate.md",
    )
]
"""They simulate at length; README does so in short."""

LONG_SECONDS = 3_600
SHELL_BLOCKS = shell_blocks()
LANGUAGES = {"python", "console", "toml", "text", "sh", "javascript"}
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(language: str) -> list[Block]:
    return [block for page in DOCUMENTS for block in blocks(page) if block.language == language]


def runs(page: Path, skipped: dict[Name, str]) -> bool:
    """Whether a page has anything to run beside what is skipped."""
    return any(
        block.language in ("python", "console")
        or (block.language == "sh" and name_of(name(page), block) not in skipped)
        for block in blocks(page)
    )


Printed = Callable[[int], str]
"""What a program prints in a round; each program of a page runs once in a round, in order."""

PROGRAMS: dict[str, tuple[Printed, ...]] = {
    "README.md": (
        # The page itself shows the second run as well.
        lambda nth: f"order {nth} is taken\ncooking {nth} three pears\n",
        lambda nth: f"stored at {nth}\n",
    ),
    "docs/tutorials/embed.md": (
        # Beside what each round stores, the page has run app.py a second time.
        lambda nth: "stored at {0}\n...\n{0} {{...}}\n".format(2001 * (nth - 1) + 1),
        lambda nth: f"1000 stored\nthe next entry gets {2001 * nth + 1}\n",
        lambda nth: f"processed 2001\nsaved position {2001 * nth + 1}\n",
    ),
    "docs/tutorials/simulate.md": (lambda nth: "600 orders, cooked in 63.5 minutes\ntrace ...\n",),
    "docs/tutorials/standalone.md": (
        lambda nth: "1000 readings are stored\n",
        lambda nth: "1000 readings processed\n",
    ),
}


RUN_AGAIN = "docs/tutorials/embed.md"
"""The page whose programs the quick part runs again."""


def run_again(runner: Runner, page: Path) -> None:
    """Run a page's programs again, in the place where they ran before."""
    programs = [block for block in blocks(page) if block.language == "python"]
    for program, text in zip(programs, PROGRAMS[name(page)], strict=True):
        runner.python(program, text(2), f"{page}:{program.line}, run 2")


def run(
    page: Path, directory: Path, skipped: dict[Name, str], seconds_max: float, *, again: bool
) -> None:
    """Set a page's stage and run its blocks, and perhaps its programs again."""

    def wanted(block: Block) -> bool:
        return name_of(name(page), block) not in skipped

    with ExitStack() as stack, running(directory, seconds_max) as runner:
        if any(block.language == "sh" and wanted(block) for block in blocks(page)):
            set_stage = STAGES.get(name(page))
            if set_stage is not None:
                set_stage(runner, stack)
        runner.run(page, wanted)
        if again:
            run_again(runner, page)


SKIPPED_BY_DEFAULT = NOT_RUN | LONG
FURTHER_PROGRAMS = {"curl": "\n$ curl ", "jq": "| jq "}
"""What pages run that `make setup` does not install, and how their commands have it."""


def needed(page: Path) -> list[pytest.MarkDecorator]:
    """The marks of a page whose commands need more than is always there."""
    text = page.read_text("utf-8")
    programs = [one for one, used in FURTHER_PROGRAMS.items() if used in text]
    return [pytest.mark.needs(one) for one in (*programs, *rooms_in(page.name))]


QUICK_PAGES = [
    pytest.param(one, marks=needed(one))
    for one in DOCUMENTS
    if one not in SPARK_PAGES + SLOW_PAGES and runs(one, SKIPPED_BY_DEFAULT)
]
LONG_PAGES = sorted({*SLOW_PAGES, *(ROOT / page for page, _ in LONG)})


@pytest.mark.parametrize("page", QUICK_PAGES, ids=name)
def test_blocks_run_and_print_what_they_show(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path, SKIPPED_BY_DEFAULT, COMMAND_SECONDS, again=name(page) == RUN_AGAIN)


@pytest.mark.long
@pytest.mark.parametrize("page", sorted(PROGRAMS.keys() - {RUN_AGAIN}))
def test_programs_go_on_where_they_stopped(page: str, tmp_path: Path) -> None:
    run(ROOT / page, tmp_path, SKIPPED_BY_DEFAULT, COMMAND_SECONDS, again=True)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("page", SPARK_PAGES + LONG_PAGES, ids=name)
def test_blocks_that_take_minutes_run(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path, NOT_RUN, LONG_SECONDS, again=False)


@pytest.mark.check
def test_each_block_that_is_left_out_is_there() -> None:
    assert not [one for one in SKIPPED_BY_DEFAULT if one not in SHELL_BLOCKS]
    assert not [page for page in STAGES if page not in map(name, DOCUMENTS)]


@pytest.mark.check
@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_block_says_its_language(page: Path) -> None:
    unknown = {block.line: block.language for block in blocks(page)}
    assert set(unknown.values()) <= LANGUAGES, unknown


@pytest.mark.check
@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_block_begins_and_ends(page: Path) -> None:
    """A block that has lost its first line is prose to readers, and is not run any more."""
    begun = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if fence := re.match(r" *```(.*)", line):
            assert begun != bool(fence[1]), line
            begun = not begun
    assert not begun


@pytest.mark.check
@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    """Not every Markdown knows them otherwise, the one that makes the site among them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    glued = re.findall(r"^(?!- |\d+\. |\||  |\n).+\n(?:- |\d+\. |\|).*", text, re.M)
    assert not glued


@pytest.mark.check
@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in _LINK.findall(text):
        if target.startswith(("https://", "http://")):
            continue
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), f"{target}#{anchor}"


@pytest.mark.check
def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / target).resolve()
        for target, _ in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    assert linked == {page for page in ROOT.glob("docs/**/*.md") if page != index}


@pytest.mark.check
def test_the_site_has_every_page_in_its_menu() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert set(re.findall(r": ([\w/.-]+\.md)$", text, re.MULTILINE)) == pages


@pytest.mark.check
def test_words_of_the_glossary_are_in_order() -> None:
    page = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z][^|]*?) \| (?!is \|)", page, re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(words)


def anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    of_headings = {
        re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-")
        for one in _HEADING.findall(text)
    }
    return of_headings.union(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.check
@pytest.mark.parametrize("block", blocks_of("toml"), ids=lambda block: f"line {block.line}")
def test_configurations_are_valid(block: Block, tmp_path: Path) -> None:
    text = block.text if "name" in tomllib.loads(block.text) else f'name = "doc"\n{block.text}'
    assert parse_config(text, tmp_path / "node.toml")


@pytest.mark.check
def test_make_targets_exist() -> None:
    asked = {
        words[1]
        for block in blocks_of("sh")
        for words in (line.split() for line in block.text.splitlines())
        if words[:1] == ["make"]
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert asked <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.check
def test_limits_are_those_of_the_code() -> None:
    page = (ROOT / "docs/explanation/runtime-semantics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| ([\d,]+) \|", page, re.MULTILINE)
    assert rows
    for limit, value in rows:
        assert getattr(limits, limit) == int(value.replace(",", "")), limit


@pytest.mark.check
def test_every_dependency_is_named_with_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    wanted = {
        re.split(r"[\[<>=,~! ]", one)[0].lower() for one in (*project["dependencies"], *extras)
    }
    page = (ROOT / "THIRD-PARTY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE)) - {"package"}
    assert named == wanted - {"rillnode"}


@pytest.mark.check
def test_changelog_names_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ('{"id":"..."}\n', '{"id":"77aa"}\n', True),
        ("a\n", "a\nb\n", False),
        ("", "", True),
        ("", "a\n", False),
    ],
)
def test_comparison_of_outputs(expected: str, actual: str, same: bool) -> None:
    assert matches(expected, actual) is same
