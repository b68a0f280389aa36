"""The page about security names a test for each threat, and these tests are there."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.check


TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "explanation" / "security.md"
_CITED = re.compile(r"`([a-z_/]+/test_\w+\.py)(?:::(test_\w+))?`")


def rows() -> list[str]:
    """The threats: rows of the tables below that heading, without those that head them."""
    threats = PAGE.read_text().partition("\n## Threats\n")[2]
    lines = [line for line in threats.splitlines() if line.startswith("|")]
    return [line for line in lines if not re.match(r"\| who |\|-", line)]


def test_each_threat_has_a_test() -> None:
    assert len(rows()) > 30
    assert [row for row in rows() if not _CITED.search(row.rpartition("| ")[2])] == []


def test_each_test_is_there() -> None:
    for file, name in _CITED.findall(PAGE.read_text()):
        source = (TESTS / file).read_text()
        assert not name or f"def {name}(" in source, (file, name)
