from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import upsert as upserting
from rillnode.node.spark.delta_log import Position, saved_position
from rillnode.node.spark.derived import LagNotes
from rillnode.node.spark.tables import GOLD, LAG, PUBLISHERS, GoldTable
from rillnode.node.spark.upsert import read_rows, upsert

START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


def publishers(*rows: tuple[str, str, int, int]) -> pa.Table:
    """Rows of (stream, publisher, minute after START, messages)."""
    documents = [
        {
            "stream": stream,
            "publisher": publisher,
            "minute": START + timedelta(minutes=minute),
            "messages": messages,
            "bytes": 10 * messages,
        }
        for stream, publisher, minute, messages in rows
    ]
    batch = pa.RecordBatch.from_pylist(documents, schema=PUBLISHERS.schema)
    return pa.Table.from_batches([batch])


def held(location: Path) -> list[tuple[str, str, int, int]]:
    rows: list[dict[str, Any]] = read_rows(str(location), PUBLISHERS).to_pylist()
    return [
        (
            row["stream"],
            row["publisher"],
            (row["minute"] - START) // timedelta(minutes=1),
            row["messages"],
        )
        for row in rows
    ]


def test_rows_of_a_slot_are_replaced_and_others_stay(tmp_path: Path) -> None:
    first = [("a", "p", 0, 1), ("a", "q", 0, 2), ("b", "p", 0, 3), ("a", "p", 1, 4)]
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(*first))
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(("a", "r", 0, 9), ("a", "p", 2, 5)))
    assert sorted(held(tmp_path)) == [
        ("a", "p", 1, 4),
        ("a", "p", 2, 5),
        ("a", "r", 0, 9),
        ("b", "p", 0, 3),
    ]


def test_only_files_around_the_replaced_minutes_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "FILE_ROWS_MAX", 3)
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(*(("a", "p", at, at) for at in range(8))))
    before = set(DeltaTable(tmp_path).file_uris())
    assert len(before) == 3
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(("a", "p", 7, 70), ("a", "p", 8, 8)))
    after = set(DeltaTable(tmp_path).file_uris())
    assert len(before & after) == 2
    assert [row[3] for row in held(tmp_path)] == [0, 1, 2, 3, 4, 5, 6, 70, 8]
    some = read_rows(
        str(tmp_path), PUBLISHERS, START + timedelta(minutes=2), START + timedelta(minutes=4)
    )
    assert some.column("messages").to_pylist() == [2, 3, 4]


def test_a_transaction_says_how_far_the_table_has_come_also_without_rows(tmp_path: Path) -> None:
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(("a", "p", 0, 1)))
    position = Position("source", 1, 5, 2, 77)
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(), position.transactions())
    assert saved_position(DeltaTable(tmp_path), "source") == position
    assert held(tmp_path) == [("a", "p", 0, 1)]


def test_replaced_files_are_removed_after_some_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "TIDY_COMMITS", 2)
    monkeypatch.setattr(upserting, "KEEP_HOURS", 0)
    for messages in range(4):
        upsert(str(tmp_path), PUBLISHERS.slot, publishers(("a", "p", 0, messages)))
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert held(tmp_path) == [("a", "p", 0, 3)]


def test_an_old_table_gets_the_new_columns(tmp_path: Path) -> None:
    old = GoldTable("publishers", PUBLISHERS.slot, PUBLISHERS.columns[:4])
    rows = publishers(("a", "p", 0, 1), ("b", "p", 5, 2))
    narrow = pa.Table.from_batches(
        [
            pa.RecordBatch.from_pylist(
                [{name: row[name] for name in old.schema.names} for row in rows.to_pylist()],
                schema=old.schema,
            )
        ]
    )
    upsert(str(tmp_path), old.slot, narrow)
    upsert(str(tmp_path), PUBLISHERS.slot, publishers(("a", "p", 5, 7)))
    assert [row[3] for row in held(tmp_path)] == [1, 7, 2]
    names = [field.name for field in DeltaTable(tmp_path).schema().fields]
    assert names == PUBLISHERS.schema.names


def test_another_table_is_left_alone(tmp_path: Path) -> None:
    other = pa.schema([pa.field("minute", pa.string())])
    DeltaTable.create(str(tmp_path), Schema.from_arrow(other))
    with pytest.raises(ConfigError, match="other columns"):
        upsert(str(tmp_path), PUBLISHERS.slot, publishers(("a", "p", 0, 1)))


def test_every_table_has_its_slot_among_its_columns() -> None:
    for table in GOLD:
        assert set(table.slot) <= set(table.schema.names)
        assert "minute" in table.slot


def test_the_last_lag_of_every_minute_is_kept(tmp_path: Path) -> None:
    notes = LagNotes(str(tmp_path))
    notes.write()
    assert not (tmp_path / "_delta_log").exists()
    for second, end in ((5, 10), (50, 30), (65, 40)):
        committed = {"a": {("s", 0): end, ("gone", 0): 7}, "b": {("t", 1): 9}}
        notes.note(committed, {("s", 0): 100, ("t", 1): 5}, START + timedelta(seconds=second))
        notes.write()
    rows = read_rows(str(tmp_path), LAG).to_pylist()
    assert [
        (row["consumer"], row["stream"], row["partition"], row["minute"], row["rows_behind"])
        for row in rows
    ] == [
        ("a", "s", 0, START, 70),
        ("b", "t", 1, START, 0),
        ("a", "s", 0, START + timedelta(minutes=1), 60),
        ("b", "t", 1, START + timedelta(minutes=1), 0),
    ]


def test_of_too_many_consumers_the_furthest_behind_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.node.spark.derived.LAG_ROWS_MAX", 2)
    notes = LagNotes(str(tmp_path))
    notes.note({name: {("s", 0): int(name)} for name in "3142"}, {("s", 0): 9}, START)
    notes.write()
    rows = read_rows(str(tmp_path), LAG).to_pylist()
    assert sorted(row["rows_behind"] for row in rows) == [7, 8]
