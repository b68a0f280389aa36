import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rillnode.node.spark import report
from rillnode.node.spark.report import STEPS_MAX, collect, page, table
from rillnode.node.spark.tables import CHAINS, LAG, MINUTES, PUBLISHERS, GoldTable
from rillnode.node.spark.upsert import upsert

START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
EVIL = '<script src="https://evil.example/x.js">"&'


def put(gold: Path, kind: GoldTable, *rows: dict[str, Any]) -> None:
    counts = {column.name: 0 for column in kind.schema if column.type == pa.int64()}
    documents = [
        {**counts, **row, "minute": START + timedelta(minutes=row["minute"])} for row in rows
    ]
    batch = pa.RecordBatch.from_pylist(documents, schema=kind.schema)
    upsert(str(gold / kind.name), kind.slot, pa.Table.from_batches([batch]))


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    put(
        tmp_path, MINUTES,
        {"stream": "a", "minute": 0, "messages": 60, "bytes": 600, "latency_p95_ms": 5.0},
        {"stream": EVIL, "minute": 0, "messages": 120, "bytes": 10, "duplicates": 3},
        {"stream": "a", "minute": 2, "messages": 30, "bytes": 1, "latency_p95_ms": 7.0},
    )  # fmt: skip
    chain = {"stream": "a", "partition": 0, "publisher": "0xa", "chain": "c"}
    put(
        tmp_path, CHAINS,
        {**chain, "minute": 0, "messages": 60, "gaps": 2, "late": 1},
        {**chain, "minute": 2, "messages": 30, "gaps": 1, "duplicates": 4},
        {**chain, "chain": "good", "minute": 2, "messages": 5},
    )  # fmt: skip
    put(
        tmp_path, PUBLISHERS,
        {"stream": "a", "publisher": "0xa", "minute": 0, "messages": 60, "bytes": 600},
        {"stream": "a", "publisher": "0xb", "minute": 2, "messages": 70, "bytes": 1},
        {"stream": "a", "publisher": "0xa", "minute": 2, "messages": 30, "bytes": 1},
    )  # fmt: skip
    lag = {"consumer": "sink/bronze", "partition": 0, "next_index": 100}
    put(
        tmp_path, LAG,
        {**lag, "stream": "a", "minute": 0, "committed_index": 40, "rows_behind": 60},
        {**lag, "stream": "b", "minute": 0, "committed_index": 95, "rows_behind": 5},
        {**lag, "stream": "a", "minute": 2, "committed_index": 99, "rows_behind": 1},
        *(
            {**lag, "consumer": f"c{at}", "stream": "a", "minute": 2, "rows_behind": at}
            for at in range(5)
        ),
    )  # fmt: skip
    return tmp_path


def test_figures_are_those_of_the_tables(gold: Path) -> None:
    figures = collect(str(gold))
    assert (figures.first, figures.last) == (START, START + timedelta(minutes=2))
    assert figures.totals == {
        "messages": 210, "bytes": 611, "malformed": 0, "forged": 0, "duplicates": 3,
        "gaps": 3, "late": 1, "streams": 2, "publishers": 2,
    }  # fmt: skip
    later = START + timedelta(minutes=2)
    assert figures.series["messages/s"] == [(START, 3.0), (later, 0.5)]
    assert figures.series["latency p95"] == [(START, 5.0), (later, 7.0)]
    # The furthest behind at any time, and no more than the plot has colours for.
    assert figures.consumers == {
        "sink/bronze": [(START, 65.0), (later, 1.0)],
        "c4": [(later, 4.0)],
        "c3": [(later, 3.0)],
        "c2": [(later, 2.0)],
    }
    assert [row["stream"] for row in figures.streams] == [EVIL, "a"]
    assert [(row["publisher"], row["messages"]) for row in figures.publishers] == [
        ("0xa", 90),
        ("0xb", 70),
    ]
    (chain,) = figures.chains
    assert (chain["chain"], chain["gaps"], chain["late"], chain["duplicates"]) == ("c", 3, 1, 4)
    own = [row for row in figures.lag if row["consumer"] == "sink/bronze"]
    assert [(row["stream"], row["rows_behind"]) for row in own] == [("a", 1), ("b", 5)]
    assert len(figures.lag) == 7


def test_figures_begin_where_they_are_asked_to(gold: Path) -> None:
    figures = collect(str(gold), START + timedelta(minutes=1))
    assert (figures.first, figures.totals["messages"]) == (START + timedelta(minutes=2), 30)


def test_long_times_are_told_in_longer_steps(tmp_path: Path) -> None:
    put(tmp_path, MINUTES, *({"stream": "a", "minute": at, "messages": 60} for at in range(1000)))
    figures = collect(str(tmp_path))
    assert figures.step == timedelta(minutes=5)
    series = figures.series["messages/s"]
    assert len(series) <= STEPS_MAX
    assert {value for _, value in series} == {1.0}


class _Page(HTMLParser):
    """Collects tags and refuses ones that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}
        if tag not in ("meta",):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.mark.parametrize("empty", [False, True])
def test_the_page_stands_alone_and_names_are_only_text(gold: Path, empty: bool) -> None:
    figures = collect(str(gold / "none" if empty else gold))
    text = page(figures, title=f"Events {EVIL}", made_at=START)
    parser = _Page()
    parser.feed(text)
    parser.close()
    assert "script" not in parser.tags
    assert not re.search(r"url\(|@import|https?://(?!evil)", text)
    assert EVIL not in text
    assert parser.tags.count("svg") == (0 if empty else 6)
    assert ("The gold tables hold nothing yet." in text) == empty


def test_rows_become_a_table() -> None:
    assert table([]) == '<p class="none">none</p>'
    text = table([{"a_b": 1_000, "c": "<"}])
    assert '<th class="number">a b</th><th>c</th>' in text
    assert '<td class="number">1,000</td><td>&lt;</td>' in text


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 1), (-1, 1), (0.3, 0.5), (1, 1), (1.1, 2), (4_999, 5_000), (51, 100)]
)
def test_a_plots_top_is_a_round_number(value: float, ceiling: float) -> None:
    assert report.nice_ceiling(value) == pytest.approx(ceiling)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12.34, "12.3"), (1_234, "1.23k"), (5e6, "5M"), (2e12, "2.00e+12")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert report.short_number(value) == text


def test_long_labels_keep_both_ends() -> None:
    label = report.shortened("a" * 40 + "b" * 40)
    assert (len(label), label[0], label[-1]) == (44, "a", "b")
    assert report.shortened("short") == "short"


@pytest.mark.parametrize(
    ("minutes", "labels"),
    [
        (0, ["10:00"]),
        (3, ["10:00", "10:01", "10:02", "10:03"]),
        (60, ["10:00", "10:12", "10:24", "10:36", "10:48", "11:00"]),
        (2_880, ["01 Mar 10:00", "01 Mar 19:36", "02 Mar 05:12", "02 Mar 14:48", "03 Mar 00:24",
                 "03 Mar 10:00"]),
    ],
)  # fmt: skip
def test_times_below_a_plot_are_whole_minutes(minutes: int, labels: list[str]) -> None:
    series = [(START, 1.0), (START + timedelta(minutes=minutes), 2.0)]
    text = report.lines({"a": series}, unit="events")
    assert re.findall(r'text-anchor="\w+">([^<]+)<', text) == labels
