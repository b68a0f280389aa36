"""The page: one small document, and nothing from elsewhere."""

import re

from rillnode.node.http.page import Page
from rillnode.node.http.plain import tables

TEXT = Page().html({})


def test_it_is_one_small_document() -> None:
    assert len(TEXT.encode()) < 90_000
    assert "page.css" not in TEXT  # its parts are in it
    assert "/*script" not in TEXT
    assert not re.findall(r"<(?:script|img|iframe|style)\s", TEXT)  # no attribute, so no source
    assert re.findall(r"<link [^>]*href=\"(?!data:)", TEXT) == []
    assert "style=" not in TEXT  # the policy would not have it
    assert not re.findall(r"\son[a-z]+=", TEXT)


def test_its_policy_allows_its_own_script_and_style_only() -> None:
    directives = dict(part.split(" ", 1) for part in Page().policy.split("; "))
    assert directives["default-src"] == "'none'"
    for name in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", directives[name])
    assert directives["connect-src"] == "'self'"
    assert directives["frame-ancestors"] == "'none'"


def test_tables_without_script_escape_what_they_show() -> None:
    row = {"name": "<img src=x>", "next_index": 1_234_567, "worst_lag": None}
    page = Page().html({"streams": {"streams": [row]}})
    assert "<img src=x>" not in page
    assert "&lt;img src=x&gt;" in page
    assert "1,234,567" in page
    assert "<!--tables-->" not in page


def test_empty_tables_say_what_to_type() -> None:
    text = tables({})
    assert "rillnode stream push sensors --create" in text
    assert "[[peer]]" in text
