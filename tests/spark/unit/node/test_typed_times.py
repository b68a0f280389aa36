"""Typed tables by time: late rows, partitions, how long rows are kept, and in how few files."""

import datetime
import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from pipeline_samples import TIME
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.typed.layout import Layout
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.tables import TypedTables
from rillnode.node.spark.typed.work import in_process
from table_readers import READERS, Filter, rows_of, wrong_answers
from typed_samples import Lake, die_after, run

COLUMNS: dict[str, Any] = {"id": "int", "at": "timestamp?", "day": "date?", "op": "string?"}
HOUR = 3_600_000
DAY = 24 * HOUR
NOW = int(time.time() * 1_000)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def entry(key: int, at: int | None = None, **more: Any) -> bytes:
    """An entry with a time in milliseconds."""
    text = None if at is None else _time(at).isoformat()
    return json.dumps({"id": key, "at": text, **more}).encode()


def _time(at: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at / 1_000, datetime.UTC)


def kept(lake: Lake, **settings: Any) -> TypedQuery:
    layout = {one: settings.pop(one) for one in Layout.__struct_fields__ if one in settings}
    settings.setdefault("columns", COLUMNS)
    return lake.table(layout=Layout(**layout), **settings)


def read(lake: Lake, name: str = "t") -> list[dict[str, Any]]:
    """The rows as Delta's readers have them, with what stands in partitions alone."""
    table: Any = DeltaTable(lake.directory / name)
    return sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: (row["id"], row["_index"]))


def drained(query: TypedQuery) -> list[str]:
    done: list[str] = []
    while (text := query.maintain()) is not None:
        done.append(text)
    return done


def test_rows_that_were_received_long_after_their_time_are_late(lake: Lake) -> None:
    lake.push(entry(1, TIME), entry(2, TIME - HOUR), entry(3, TIME - HOUR - 1), entry(4))
    # Nobody is late because another's clock is a day ahead.
    lake.push(entry(5, TIME + DAY))
    lake.push(entry(6, TIME - DAY), entry(7, TIME - 1))
    query = kept(lake, time="at")
    run(query)
    assert (query.figures()["rows_late"], len(lake.rows())) == (2, 7)
    run(kept(lake, time="at"))
    assert kept(lake, time="at").figures()["rows_late"] == 2
    other = kept(lake, name="u", time="at", late_seconds=0.001)
    run(other)
    assert other.figures()["rows_late"] == 3


def test_a_date_ends_with_its_day(lake: Lake) -> None:
    today = _time(TIME).date()
    days = [today, today - datetime.timedelta(days=1), today - datetime.timedelta(days=3)]
    lake.push(*(json.dumps({"id": 1, "day": str(day)}).encode() for day in days))
    query = kept(lake, time="day", late_seconds=86_400)
    run(query)
    assert query.figures()["rows_late"] == 1


@pytest.mark.parametrize("commits", range(4))
def test_a_kill_counts_no_row_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    lake.push(entry(1, TIME - DAY), entry(2, 0))
    lake.push(entry(3, TIME - DAY), b"{", entry(4, TIME - 2 * DAY))
    settings: dict[str, Any] = {
        "time": "at", "partition_by": ("day(at)",), "keep_days": _days_since(TIME - 10 * DAY),
    }  # fmt: skip
    die_after(monkeypatch, commits)
    try:
        run(kept(lake, batch_rows_max=2, **settings))
    except KeyboardInterrupt:
        monkeypatch.undo()
    query = kept(lake, batch_rows_max=2, **settings)
    run(query)
    told = {"rows": 3, "rejects": 1, "rows_late": 3, "rows_expired": 1}
    assert query.figures().items() >= told.items()


def _days_since(at: int) -> float:
    return (NOW - at) / DAY


def test_files_are_parted_and_every_reader_finds_the_rows(lake: Lake) -> None:
    layout: dict[str, Any] = {"partition_by": ("day(at)", "month(day)", "hour(at)", "op")}
    values = ["x", "a/b c%é='\"", "", None, ".."]
    for at, op in enumerate(values):
        lake.push(entry(at, TIME + at * DAY, op=op, day=f"2026-0{at + 1}-07"), entry(9, op=op))
        run(kept(lake, **layout))
    rows = read(lake)
    assert [row["op"] for row in rows if row["id"] != 9] == ["x", values[1], None, None, ".."]
    assert [row["_day_month"] for row in rows if row["id"] != 9] == [
        f"2026-0{month}" for month in range(1, 6)
    ]
    assert [row["_at_day"] for row in rows if row["id"] != 9] == [
        _time(TIME + at * DAY).date() for at in range(5)
    ]
    assert rows[0]["_at_hour"] == _time(TIME).strftime("%Y-%m-%dT%H")
    assert rows[-1]["_at_day"] is None
    before = len(DeltaTable(lake.directory / "t").file_uris())
    list(compact(str(lake.directory / "t")))
    table = DeltaTable(lake.directory / "t")
    assert len(table.file_uris()) < before
    assert read(lake) == rows
    for name in ("delta-rs dataset", "delta-rs table", "delta-rs SQL", "Polars"):
        count = READERS[name](table)
        for column, kind, value, right in (
            ("op", pa.string(), values[1], 2), ("op", pa.string(), "x", 2),
            ("_day_month", pa.string(), "2026-03", 1), ("id", pa.int64(), 9, 5),
        ):  # fmt: skip
            assert count(Filter(column, kind, "=", value)) == right, (name, column)


def test_readers_skip_files_of_partitioned_tables_by_right_statistics(lake: Lake) -> None:
    for at in range(3):
        lake.push(entry(at, TIME, op=f"o{at}"), entry(at, op=f"o{at}"), stream=f"s{at}")
        run(kept(lake, partition_by=("op", "day(_received_at)")))
    table = DeltaTable(lake.directory / "t")
    files: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    assert {file["partition"]["op"] for file in files} == {"o0", "o1", "o2"}
    count = READERS["delta-rs SQL"](table)
    assert count(Filter("_index", pa.int64(), "=", 0)) == 3
    assert count(Filter("_stream", pa.string(), "=", "s1")) == 2
    assert count(Filter("op", pa.string(), ">=", "o1")) == 4


def test_a_value_that_is_too_long_for_a_partition_is_a_reject(lake: Lake) -> None:
    lake.push(entry(1, op="x" * 65), entry(2, op="é" * 32))
    run(kept(lake, partition_by=("op",)))
    (reject,) = lake.rows("t_rejects")
    assert reject["reason"] == "op is longer than the 64 bytes of a partition"
    assert [row["id"] for row in read(lake)] == [2]


def test_a_table_keeps_its_partitions(lake: Lake) -> None:
    lake.push(entry(1, TIME))
    run(kept(lake, partition_by=("day(at)",)))
    with pytest.raises(ConfigError, match=r"partition_by: .*with \['_at_day'\].*another dir"):
        kept(lake).step()


def test_partitioned_tables_get_columns_and_are_widened(lake: Lake) -> None:
    columns = {**COLUMNS, "n": "int"}
    query = kept(lake, partition_by=("day(at)", "op"), evolve="widen", columns=columns)
    lake.push(entry(1, TIME, n=1, op="x"), entry(2, TIME + DAY, n=2))
    run(query)
    lake.push(entry(3, TIME, n=1.5, op="x", site="y"))
    run(query)
    found = [(row["n"], row["op"], row["site"], row["_at_day"].day) for row in read(lake)]
    first = _time(TIME).day
    assert found == [
        (1.0, "x", None, first), (2.0, None, None, _time(TIME + DAY).day), (1.5, "x", "y", first),
    ]  # fmt: skip


def test_a_keyed_row_goes_to_another_partition(lake: Lake) -> None:
    layout: dict[str, Any] = {"key": ("id",), "partition_by": ("day(at)",), "time": "at"}
    for at in range(3):
        lake.push(entry(1, TIME + at * DAY), entry(at + 2, TIME))
        run(kept(lake, **layout))
    assert read(lake)[0]["_at_day"] == _time(TIME + 2 * DAY).date()
    assert len(read(lake)) == 4
    list(compact(str(lake.directory / "t")))
    assert len(read(lake)) == 4


@pytest.mark.parametrize("partition_by", [("day(at)",), ("month(at)",), ()])
def test_rows_are_kept_for_some_days(lake: Lake, partition_by: tuple[str, ...]) -> None:
    ages = [0, 1, 3, 4, 5]
    rows = [entry(age, NOW - age * DAY) for age in ages]
    lake.push(*rows, entry(9), b"{", received_at=NOW - 3 * DAY)
    long = {"time": "at", "partition_by": partition_by}
    run(kept(lake, keep_days=100, **long))
    old = DeltaTable(lake.directory / "t")
    query = kept(lake, keep_days=2, compact_commits=0, **long)
    done = drained(query)
    assert [row["id"] for row in read(lake)] == [0, 1]
    assert lake.rows("t_rejects") == []
    if partition_by == ("day(at)",):
        # A day at a time, and the one without a time.
        assert len(done) == 3 + 1 + 1
    assert rows_of(old).num_rows == 6  # readers of older versions go on
    # What comes when it is too old is counted, and not landed.
    lake.push(entry(10, NOW - 3 * DAY), entry(11, NOW), received_at=NOW)
    run(query)
    assert [row["id"] for row in read(lake)] == [0, 1, 11]
    assert query.figures()["rows_expired"] == 1
    assert drained(query) == []


def test_rows_go_the_next_time_where_another_writer_was_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.push(entry(1, NOW), entry(2, NOW - 5 * DAY))
    run(kept(lake, time="at"))
    query = kept(lake, time="at", keep_days=2, compact_commits=0)

    def late(*_: Any, **__: Any) -> None:
        raise CommitFailedError("another was first")

    monkeypatch.setattr(DeltaTable, "delete", late)
    assert drained(query) == []
    monkeypatch.undo()
    assert len(drained(query)) == 1
    assert [row["id"] for row in read(lake)] == [1]


def test_without_a_time_rows_are_kept_by_their_receipt(lake: Lake) -> None:
    lake.push(entry(1, NOW), received_at=NOW - 3 * DAY)
    lake.push(entry(2, 0), received_at=NOW)
    run(kept(lake))
    query = kept(lake, keep_days=2, compact_commits=0)
    assert len(drained(query)) == 1
    assert [row["id"] for row in read(lake)] == [2]


def test_an_idle_table_is_kept_in_order(lake: Lake) -> None:
    lake.push(*(entry(age, NOW - age * DAY) for age in range(5)))
    run(kept(lake, time="at", partition_by=("day(at)",)))
    config = lake.config(
        columns=COLUMNS, layout=Layout(time="at", partition_by=("day(at)",), keep_days=2)
    )
    tables = TypedTables([config], str(lake.bronze.table), in_process, trigger_seconds=0.01)
    tables.start()
    deadline = time.monotonic() + 30
    while len(read(lake)) != 3:  # whole days go
        assert time.monotonic() < deadline, tables.report()
        time.sleep(0.05)
    tables.finish(time.monotonic() + 10)


def test_a_trickle_of_commits_ends_in_few_files(lake: Lake) -> None:
    query = kept(lake, time="at", partition_by=("day(at)",), compact_commits=4)
    commits = 12
    reader = None
    for at in range(commits):
        lake.push(entry(at, TIME + (at % 2) * DAY))
        run(query)
        query.maintain()
        if at == 6:
            reader = DeltaTable(lake.directory / "t")
    drained(query)
    table = DeltaTable(lake.directory / "t")
    assert len(table.file_uris()) <= 2 + 4
    assert [row["id"] for row in read(lake)] == list(range(commits))
    assert reader is not None
    assert rows_of(reader).num_rows == 7
    files = set((lake.directory / "t").rglob("*.parquet"))
    live = {Path(uri) for uri in table.file_uris()}
    assert len(files) > len(live)  # kept for readers of older versions
    long_ago = time.time() - 30 * 86_400
    for path in files - live:
        os.utime(path, (long_ago, long_ago))
    for log in (lake.directory / "t" / "_delta_log").glob("*.json"):
        _age(log)
    done: list[str | None] = []
    for at in range(commits, commits + 6):
        lake.push(entry(at, TIME))
        run(query)
        done.append(query.maintain())
    assert any("removed" in text and "removed 0" not in text for text in done if text)
    assert not any(path.exists() for path in files - live)
    assert [row["id"] for row in read(lake)] == list(range(commits + 6))


def _age(log: Path) -> None:
    """Let removals have been made long ago."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "remove" in line:
            line["remove"]["deletionTimestamp"] -= 30 * DAY
    log.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.long
def test_every_reader_finds_the_rows_by_every_column_after_rows_have_gone(lake: Lake) -> None:
    lake.push(*(entry(age, NOW - age * DAY, op=f"o{age}") for age in range(4)))
    run(kept(lake, time="at"))
    drained(kept(lake, time="at", keep_days=1.5, compact_commits=0))
    list(compact(str(lake.directory / "t")))
    assert wrong_answers(str(lake.directory / "t")) == []


ENDS = (
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999Z", "2262-04-12T00:00:00Z",
)  # fmt: skip
OUTSIDE = ("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01")
"""Times of no zone's years that are in UTC before the first or after the last one."""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"time": "at", "late_seconds": 1e300},
        {"key": ("at",), "time": "at"},
        *({"partition_by": (f"{unit}(at)",)} for unit in ("day", "hour", "month")),
        {"partition_by": ("day",), "time": "day"},
    ],
)
def test_the_ends_of_time_are_kept_and_what_is_beyond_is_rejected(
    lake: Lake, settings: dict[str, Any]
) -> None:
    columns = {"id": "int", "at": "timestamp", "day": "date", "more": [{"at": "timestamp"}]}
    for number, said in enumerate((*ENDS, *OUTSIDE)):
        one = {"id": number, "at": said, "day": said[:10]}
        more = [{"at": ENDS[0]}, {"at": said if number % 2 else ENDS[1]}]
        lake.push(json.dumps({**one, "more": more}).encode())
    run(kept(lake, columns=columns, **settings))
    assert [row["id"] for row in read(lake)] == [*range(len(ENDS))]
    found = {row["at"].isoformat() for row in read(lake)}
    assert found == {datetime.datetime.fromisoformat(one).isoformat() for one in ENDS}
    reasons = [row["reason"] for row in lake.read("t_rejects")]
    assert reasons == ["in UTC the time is not in the years 1 to 9999 - at $.at"] * len(OUTSIDE)


@pytest.mark.parametrize("layout", [{"time": "at"}, {"time": "at", "partition_by": ("day(at)",)}])
def test_only_what_is_too_old_goes_whatever_times_there_are(
    lake: Lake, layout: dict[str, Any]
) -> None:
    columns = {"id": "int", "at": "timestamp"}
    for number, said in enumerate(ENDS):
        lake.push(json.dumps({"id": number, "at": said}).encode(), received_at=NOW)
    run(kept(lake, columns=columns, **layout))
    query = kept(lake, columns=columns, keep_days=30, **layout)
    lake.push(json.dumps({"id": 9, "at": ENDS[0]}).encode(), received_at=NOW)
    run(query)
    drained(query)
    assert [row["id"] for row in read(lake)] == [1, 4]
    assert query.figures()["rows_expired"] == 1
