"""The documentation is true: blocks run, links lead somewhere, figures are those of the code."""

import re
import tomllib
from pathlib import Path

import pytest

from doc_support import ROOT, Block, blocks, documents, matches, running
from rillnode.codecs import limits, native
from rillnode.node.config import parse_config

DOCUMENTS = documents()
RUNNABLE = [
    page for page in DOCUMENTS if {"python", "console"} & {block.language for block in blocks(page)}
]
SPARK_PAGES = [ROOT / "docs" / name for name in ("tutorials/flights.md", "how-to/notebook.md")]
SPARK_SECONDS = 900
LANGUAGES = {"python", "console", "toml", "text", "sh", "javascript"}
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(language: str) -> list[Block]:
    return [block for page in DOCUMENTS for block in blocks(page) if block.language == language]


@pytest.mark.parametrize("page", [page for page in RUNNABLE if page not in SPARK_PAGES], ids=name)
def test_blocks_run_and_print_what_they_show(page: Path, tmp_path: Path) -> None:
    with running(tmp_path) as runner:
        runner.run(page)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("page", SPARK_PAGES, ids=name)
def test_blocks_that_start_spark_run(page: Path, tmp_path: Path) -> None:
    with running(tmp_path, SPARK_SECONDS) as runner:
        runner.run(page)


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_every_block_says_its_language(page: Path) -> None:
    unknown = {block.line: block.language for block in blocks(page)}
    assert set(unknown.values()) <= LANGUAGES, unknown


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    """Not every Markdown knows them otherwise, the one that makes the site among them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    glued = re.findall(r"^(?!- |\d+\. |\||  |\n).+\n(?:- |\d+\. |\|).*", text, re.M)
    assert not glued


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


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / target).resolve()
        for target, _ in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    assert linked == {page for page in ROOT.glob("docs/**/*.md") if page != index}


def test_the_site_has_every_page_in_its_menu() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert set(re.findall(r": ([\w/.-]+\.md)$", text, re.MULTILINE)) == pages


def test_words_of_the_glossary_are_in_order() -> None:
    page = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z][^|]*?) \| (?!is \|)", page, re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(words)


def anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings}


@pytest.mark.parametrize("block", blocks_of("toml"), ids=lambda block: f"line {block.line}")
def test_configurations_are_valid(block: Block, tmp_path: Path) -> None:
    text = block.text if "name" in tomllib.loads(block.text) else f'name = "doc"\n{block.text}'
    assert parse_config(text, tmp_path / "node.toml")


def test_make_targets_exist() -> None:
    asked = {
        words[1]
        for block in blocks_of("sh")
        for words in (line.split() for line in block.text.splitlines())
        if words[:1] == ["make"]
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert asked <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_limits_are_those_of_the_code() -> None:
    page = (ROOT / "docs/explanation/runtime-semantics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| ([\d,]+) \|", page, re.MULTILINE)
    assert rows
    for limit, value in rows:
        assert getattr(limits, limit) == int(value.replace(",", "")), limit


def test_every_native_protocol_is_described() -> None:
    source = Path(str(native.__file__)).read_text(encoding="utf-8")
    page = (ROOT / "docs/protocols/noise-link.md").read_text(encoding="utf-8")
    names = set(re.findall(r'"(rillnode_\w+)"', source))
    assert names
    assert names == set(re.findall(r"`(rillnode_\w+)`", page))


def test_every_dependency_is_named_with_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    wanted = {
        re.split(r"[\[<>=,~! ]", one)[0].lower() for one in (*project["dependencies"], *extras)
    }
    page = (ROOT / "THIRD-PARTY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE)) - {"package"}
    assert named == wanted - {"rillnode"}


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
