"""The newest warnings."""

import logging
from collections.abc import Iterator

import pytest

from rillnode.node.http.recent import WARNINGS_MAX, RecentWarnings


@pytest.fixture
def recent() -> Iterator[RecentWarnings]:
    handler = RecentWarnings()
    handler.start()
    yield handler
    handler.stop()


def test_warnings_are_kept_the_newest_first(recent: RecentWarnings) -> None:
    logger = logging.getLogger("rillnode.node.test")
    for number in range(WARNINGS_MAX + 5):
        logger.warning("odd", extra={"number": number})
    logger.info("even")
    kept = recent.document()["warnings"]
    assert len(kept) == WARNINGS_MAX
    assert (kept[0]["event"], kept[0]["level"]) == ("odd", "warning")
    assert kept[0]["number"] == WARNINGS_MAX + 4
    assert kept[0]["logger"] == "rillnode.node.test"


def test_bytes_are_counted_and_never_shown(recent: RecentWarnings) -> None:
    logging.getLogger("rillnode.codecs.test").error("bad", extra={"data": b"secret"})
    assert recent.document()["warnings"][0]["data"] == "<6 bytes>"


def test_nothing_is_kept_after_the_end() -> None:
    handler = RecentWarnings()
    handler.start()
    handler.stop()
    logging.getLogger("rillnode.node.test").warning("odd")
    assert handler.document()["warnings"] == []


def test_who_has_configured_no_logs_still_reads_them(
    recent: RecentWarnings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("rillnode"), "handlers", [recent])
    another = RecentWarnings()
    another.start()
    logging.getLogger("rillnode.node.test").warning("odd")
    assert capsys.readouterr().err.count("odd") == 1
    logging.getLogger("rillnode").addHandler(logging.NullHandler())
    logging.getLogger("rillnode.node.test").warning("odd")
    assert capsys.readouterr().err == ""
    assert len(another.document()["warnings"]) == 2
