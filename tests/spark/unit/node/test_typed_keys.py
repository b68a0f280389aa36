"""Typed tables with a key: one row for each, the latest, in whatever order entries come."""

import itertools
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from pipeline_samples import TIME
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark import bronze
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.typed import keys, tables as running
from rillnode.node.spark.typed.layout import Expectation, Layout
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.tables import TypedTables
from rillnode.node.spark.typed.work import in_process
from table_readers import wrong_answers
from typed_samples import Lake, die_after, run

COLUMNS: dict[str, Any] = {"id": "int?", "at": "timestamp?", "op": "string?", "n": "int?"}
LAYOUT = Layout(key=("id",), delete_when="op = 'D'")
TIMED = Layout(key=("id",), delete_when="op = 'D'", time="at")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def entry(key: Any, n: Any = None, at: int | None = None, **more: Any) -> bytes:
    """An entry of a key, with a value and the hour of its time."""
    time = None if at is None else f"2026-01-01T{at:02}:00:00Z"
    return json.dumps({"id": key, "n": n, "at": time, **more}).encode()


def keyed(lake: Lake, layout: Layout = LAYOUT, **settings: Any) -> TypedQuery:
    settings.setdefault("columns", COLUMNS)
    return lake.table(layout=layout, **settings)


def state(lake: Lake) -> dict[Any, Any]:
    """What the table says of each key; none is there twice."""
    rows = lake.rows()
    found = {row["id"]: row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def superseded(lake: Lake, layout: Layout = LAYOUT) -> object:
    return keyed(lake, layout).figures()["rows_superseded"]


def test_the_latest_entry_of_each_key_is_its_row(lake: Lake) -> None:
    lake.push(entry(1, 1), entry(2, 2), entry(1, 3))
    run(keyed(lake))
    assert state(lake) == {1: 3, 2: 2}
    lake.push(entry(2, 4), entry(3, 5))
    lake.push(entry(2, 6))
    run(keyed(lake))
    assert state(lake) == {1: 3, 2: 6, 3: 5}
    assert (superseded(lake), keyed(lake).figures()["rows"]) == (0, 3)


def test_a_key_is_deleted_and_may_come_again(lake: Lake) -> None:
    lake.push(entry(1, 1), entry(2, 2), entry(3, 3), entry(1, op="D"))
    run(keyed(lake))
    assert state(lake) == {2: 2, 3: 3}
    lake.push(entry(2, op="D"), entry(9, op="D"), entry(3, 4, op="I"))
    run(keyed(lake))
    assert state(lake) == {3: 4}
    lake.push(entry(1, 5), entry(2, 6))
    run(keyed(lake))
    assert state(lake) == {1: 5, 2: 6, 3: 4}
    assert superseded(lake) == 0


def test_the_later_index_of_a_partition_is_later_whatever_its_time(lake: Lake) -> None:
    lake.push(entry(1, 1, at=9), entry(1, 2, at=8))
    run(keyed(lake, TIMED))
    assert (state(lake), superseded(lake, TIMED)) == ({1: 2}, 0)


@pytest.mark.parametrize(
    ("order", "batch"),
    [
        pytest.param(order, batch, marks=() if at % 5 == 0 else pytest.mark.long)
        for at, (order, batch) in enumerate(
            itertools.product(itertools.permutations(range(3)), (1, 100))
        )
    ],
)
def test_across_partitions_the_later_time_is_later_in_whatever_order_they_come(
    lake: Lake, order: tuple[int, ...], batch: int
) -> None:
    times = {0: 9, 1: 11, 2: 10}
    for partition in order:
        lake.push(entry(1, partition, at=times[partition]), partition=partition)
    run(keyed(lake, TIMED, batch_rows_max=batch))
    assert state(lake) == {1: 1}
    after = order[order.index(1) + 1 :]
    before = order[: order.index(1)]
    assert superseded(lake, TIMED) == len(after) + (before == (2, 0))


def test_without_a_time_the_later_receipt_is_later_then_the_partition(lake: Lake) -> None:
    lake.push(entry(1, 1), received_at=TIME + 2, partition=0)
    lake.push(entry(1, 2), received_at=TIME + 1, partition=1)
    lake.push(entry(2, 3), received_at=TIME, partition=2)
    lake.push(entry(2, 4), received_at=TIME, partition=1)
    run(keyed(lake))
    assert (state(lake), superseded(lake)) == ({1: 1, 2: 3}, 2)


def test_an_entry_without_a_time_is_as_old_as_its_receipt(lake: Lake) -> None:
    lake.push(entry(1, 1, at=9), partition=0)
    lake.push(entry(1, 2), received_at=TIME, partition=1)
    run(keyed(lake, TIMED))
    is_later = TIME > 1_767_258_000_000  # nine o'clock
    assert state(lake) == {1: 2 if is_later else 1}


@pytest.mark.parametrize(
    ("seed", "batches"),
    [(0, (1, 100)), *(pytest.param(s, (1, 3, 100), marks=pytest.mark.long) for s in (0, 3, 9))],
)
def test_a_table_is_the_same_in_whatever_order_partitions_are_read(
    tmp_path: Path, seed: int, batches: tuple[int, ...]
) -> None:
    drawn = random.Random(seed)
    logs = {
        partition: [
            (drawn.randrange(4), number, drawn.randrange(24), drawn.choice("UUUD"))
            for number in range(partition * 100, partition * 100 + 12)
        ]
        for partition in range(3)
    }
    wanted: dict[int, int] = {}
    for key in range(4):
        latest = [
            (max(at for _, at, _ in mine), partition, *mine[-1])
            for partition, log in logs.items()
            if (mine := [(number, at, op) for one, number, at, op in log if one == key])
        ]
        *_, number, _, op = max(latest, default=(0, 0, 0, 0, "D"))
        if op != "D":
            wanted[key] = number
    for attempt, batch in enumerate(batches):
        lake = Lake(tmp_path / str(attempt))
        left: dict[int, list[tuple[int, int, int, str]]]
        left = {partition: list(log) for partition, log in logs.items()}
        while left:
            partition = drawn.choice(list(left))
            items = [left[partition].pop(0) for _ in range(min(3, len(left[partition])))]
            lake.push(
                *(entry(key, number, at=at, op=op) for key, number, at, op in items),
                partition=partition,
            )
            left = {one: log for one, log in left.items() if log}
            if drawn.random() < 0.3:
                run(keyed(lake, TIMED, batch_rows_max=batch))
        run(keyed(lake, TIMED, batch_rows_max=batch))
        assert state(lake) == wanted


def test_files_that_tasks_give_in_any_order_are_merged_by_the_order_in_their_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bronze, "TASK_ROWS_MIN", 1)
    lake.push(entry(1, 1, at=9))
    lake.push(entry(1, 2, at=5))  # later in the log, so its time is at least the other one's
    given: list[int] = []

    def backwards(works: Sequence[bytes]) -> list[bytes]:
        given.append(len(works))
        return in_process(works)[::-1]

    run(keyed(lake, TIMED, engine=backwards, tasks_max=2))
    assert given == [2]
    lake.push(entry(1, 3, at=7), partition=1)
    run(keyed(lake, TIMED))
    assert (state(lake), superseded(lake, TIMED)) == ({1: 2}, 1)


@pytest.mark.parametrize("batch", [1, 100])
def test_what_was_deleted_does_not_come_back_by_an_older_entry(lake: Lake, batch: int) -> None:
    lake.push(entry(1, 1, at=9), partition=0)
    lake.push(entry(1, at=11, op="D"), partition=1)
    lake.push(entry(1, 3, at=10), partition=2)
    run(keyed(lake, TIMED, batch_rows_max=batch))
    assert (state(lake), superseded(lake, TIMED)) == ({}, 1)
    lake.push(entry(1, 4, at=10), partition=0)
    run(keyed(lake, TIMED))
    assert (state(lake), superseded(lake, TIMED)) == ({}, 2)
    lake.push(entry(1, 5, at=12), partition=2)
    run(keyed(lake, TIMED))
    assert state(lake) == {1: 5}


def test_a_key_that_is_null_is_a_reject_that_says_so(lake: Lake) -> None:
    layout = Layout(key=("id", "op"))
    lake.push(entry(None, 1, op="x"), entry(1, 2), entry(1, 3, op="x"), b'{"n":4,"op":"x"}')
    run(keyed(lake, layout))
    assert [(row["_index"], row["reason"]) for row in lake.rows("t_rejects")] == [
        (0, "the key id is null"), (1, "the key op is null"), (3, "the key id is null"),
    ]  # fmt: skip
    assert lake.places() == [2]


@pytest.mark.parametrize(
    ("commits", "batch"),
    [
        pytest.param(commits, batch, marks=() if (commits % 2) == (batch > 2) else pytest.mark.long)
        for commits in range(5)
        for batch in (2, 100)
    ],
)
def test_a_kill_between_two_commits_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, commits: int, batch: int
) -> None:
    lake.push(entry(1, 1, at=1), entry(2, 2, at=1), entry(4, 9, at=9))
    run(keyed(lake, TIMED))
    lake.push(entry(1, 3, at=3), entry(None), entry(2, at=3, op="D"))
    lake.push(entry(2, 5, at=2), entry(None), entry(4, 5, at=5), partition=1)
    lake.push(entry(3, 6, at=4), entry(1, 7, at=4), partition=2)
    die_after(monkeypatch, commits)
    # Where there were fewer commits nobody was killed.
    with suppress(KeyboardInterrupt):
        run(keyed(lake, TIMED, batch_rows_max=batch))
    monkeypatch.undo()
    run(keyed(lake, TIMED, batch_rows_max=batch))
    assert state(lake) == {1: 7, 3: 6, 4: 9}
    assert len(lake.rows("t_rejects")) == 2
    assert superseded(lake, TIMED) == 2


@pytest.mark.parametrize("stage", ["_merge", "_remember"])
def test_a_kill_within_a_merge_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    lake.push(entry(1, 1), entry(2, 2))
    run(keyed(lake))
    lake.push(entry(1, op="D"), entry(2, 3), entry(None))
    real = getattr(keys.Keyed, stage)

    def dying(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(keys.Keyed, stage, dying)
    with pytest.raises(KeyboardInterrupt):
        run(keyed(lake))
    monkeypatch.undo()
    run(keyed(lake))
    assert (state(lake), superseded(lake)) == ({2: 3}, 0)
    assert len(lake.rows("t_rejects")) == 1


def test_a_merge_that_another_writer_was_before_is_made_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.push(entry(1, 1), entry(2, 2))
    run(keyed(lake))
    lake.push(entry(1, 3))
    real = vars(keys.Keyed)["_merge"]
    others = iter([1])

    def late(*args: Any) -> None:
        if next(others, None):
            DeltaTable(lake.directory / "t").delete("id = 2")
        real(*args)

    monkeypatch.setattr(keys.Keyed, "_merge", late)
    run(keyed(lake))
    assert state(lake) == {1: 3}

    def never(*args: Any) -> None:
        raise CommitFailedError("another")

    lake.push(entry(1, 4))
    monkeypatch.setattr(keys.Keyed, "_merge", never)
    with pytest.raises(StoreError, match="written by others all the time"):
        run(keyed(lake))
    monkeypatch.undo()
    run(keyed(lake))
    assert state(lake) == {1: 4}


def test_rejects_that_are_landed_again_obey_the_order(lake: Lake) -> None:
    small = Expectation(name="small", sql="n < 100", action="reject")
    lake.push(entry(1, 500, at=9), entry(1, 3, at=8), entry(2, 500, at=9, op="D"))
    lake.push(entry(3, 1, at=9), entry(4, 500, at=9))
    lake.push(entry(2, 1, at=8), entry(3, 500, at=8), partition=1)
    run(keyed(lake, TIMED, expect=(small,)))
    assert state(lake) == {1: 3, 2: 1, 3: 1}
    assert keyed(lake, TIMED).retry() == (4, 0)
    assert (state(lake), superseded(lake, TIMED)) == ({1: 3, 3: 1, 4: 500}, 2)
    assert keyed(lake, TIMED).retry() == (0, 0)


def test_columns_come_and_widen_under_a_key(lake: Lake) -> None:
    query = keyed(lake, evolve="widen")
    lake.push(entry(1, 1), entry(2, 2))
    run(query)
    lake.push(entry(1, 1.5, site="x", pos={"lat": 1}), entry(1.5, 3))
    run(query)
    rows = {row["id"]: (row["n"], row["site"], row["pos"]) for row in lake.rows()}
    assert rows == {1: (1.5, "x", {"lat": 1}), 2: (2.0, None, None)}
    # A key keeps its kind.
    reasons = [row["reason"] for row in lake.rows("t_rejects")]
    assert reasons == ["Expected int | null, got float - at $.id"]
    lake.push(entry(2, 3, site="y"))
    run(keyed(lake, evolve="widen"))
    assert {row["id"]: row["site"] for row in lake.rows()} == {1: "x", 2: "y"}


def test_keys_of_several_columns_and_any_names(lake: Lake) -> None:
    columns = {"Id": "string", "größe.x": "date", "v": "int"}
    layout = Layout(key=("Id", "größe.x", "_stream"), delete_when="v < 0")
    for value in (1, 2):
        lake.push(json.dumps({"Id": "a'\"b", "größe.x": "2026-01-01", "v": value}).encode())
        run(keyed(lake, layout, columns=columns))
    lake.push(b'{"Id":"c","gr\xc3\xb6\xc3\x9fe.x":"2026-01-01","v":1}', stream="other")
    lake.push(b'{"Id":"c","gr\xc3\xb6\xc3\x9fe.x":"2026-01-02","v":-1}', stream="other")
    run(keyed(lake, layout, columns=columns))
    assert [(row["Id"], row["v"]) for row in lake.rows()] == [("c", 1), ("a'\"b", 2)]


@pytest.mark.parametrize(("kind", "one", "other"), [
    ("string", "a", "A"), ("int", -(2**63), 2**63 - 1), ("bool", True, False),
    ("decimal", "1.10", "1.11"), ("binary", "AAE=", "AAI="), ("date", "2026-01-01", "0001-01-01"),
    ("timestamp", "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00Z"),
    ("timestamp_ms", 1_700_000_000_001, 1_700_000_000_000),
])  # fmt: skip
def test_keys_of_each_kind_are_told_apart(lake: Lake, kind: str, one: Any, other: Any) -> None:
    query = keyed(lake, Layout(key=("id",)), columns={"id": kind, "n": "int?"})
    lake.push(entry(one, 1), entry(other, 2))
    run(query)
    lake.push(entry(one, 3), entry(other, 4))
    run(query)
    assert sorted(row["n"] for row in lake.rows()) == [3, 4]


def test_a_column_of_the_key_may_part_the_files(lake: Lake) -> None:
    layout = Layout(key=("id", "op"), delete_when="n < 0", partition_by=("op",))
    query = keyed(lake, layout)
    lake.push(entry(1, 1, op="x"), entry(1, 2, op="y"), entry(1, 3))
    run(query)
    lake.push(entry(1, 4, op="x"), entry(1, -1, op="y"), entry(2, 5, op="y"))
    run(query)
    table: Any = DeltaTable(lake.directory / "t")
    found = {(row["id"], row["op"], row["n"]) for row in table.to_pyarrow_table().to_pylist()}
    assert found == {(1, "x", 4), (2, "y", 5)}
    assert len(lake.rows("t_rejects")) == 1


def test_a_table_keeps_the_key_that_it_was_made_with(lake: Lake) -> None:
    lake.push(entry(1, 1))
    run(keyed(lake))
    for layout in (Layout(), Layout(key=("id", "n"))):
        with pytest.raises(ConfigError, match=r"key: .*was made with \['id'\].*another dir"):
            keyed(lake, layout).step()


@pytest.mark.parametrize(("layout", "why"), [
    (Layout(key=("no",)), "key: the schema has no column 'no'"),
    (Layout(key=("id",), delete_when="op ="), "delete_when: "),
    (Layout(key=("id",), delete_when="missing = 1"), "delete_when: "),
    (Layout(key=("id",), delete_when="id + 1"), "delete_when: it is a BIGINT"),
    (Layout(key=("id",), time="n"), "time: column 'n' is int, and a time is"),
])  # fmt: skip
def test_the_job_says_what_a_table_cannot_be(lake: Lake, layout: Layout, why: str) -> None:
    lake.push(entry(1, 1))
    with pytest.raises(ConfigError) as failed:
        keyed(lake, layout).step()
    assert (failed.value.code, why in failed.value.text) == ("table.layout", True)


def test_what_was_deleted_is_kept_in_few_files_and_not_for_ever(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_FILES_MAX", 3)
    query = keyed(lake, TIMED)
    for at in range(10):
        lake.push(entry(at, at=9, op="D"))
        run(query)
    directory = lake.directory / "t" / "_deletes"
    assert len(list(directory.glob("*.parquet"))) <= 4
    for at in range(10):
        lake.push(entry(at, 1, at=8), partition=1)
    run(keyed(lake, TIMED))
    assert (state(lake), superseded(lake, TIMED)) == ({}, 10)
    monkeypatch.setattr(keys, "REMEMBER_DAYS", -1)
    lake.push(entry(11, at=9, op="D"))
    run(query)
    assert list(directory.glob("*.parquet")) == []


@pytest.mark.long
def test_every_reader_finds_the_rows_of_a_keyed_table_once_its_files_are_merged(
    lake: Lake,
) -> None:
    query = keyed(lake, TIMED)
    for at in range(4):
        lake.push(entry(at, at, at=at), entry(0, at, at=at), entry(None, op="x"))
        run(query)
    list(compact(str(lake.directory / "t")))
    assert wrong_answers(str(lake.directory / "t")) == []
    assert state(lake) == {0: 3, 1: 1, 2: 2, 3: 3}


def test_what_comes_after_a_merge_is_merged_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MERGE_PAUSES", 1e9)
    monkeypatch.setattr(running, "MERGE_PAUSE_MAX", 3.0)
    config = lake.config(columns=COLUMNS, layout=LAYOUT)
    tables = TypedTables([config], str(lake.bronze.table), in_process, trigger_seconds=0.01)
    lake.push(entry(0, 0))
    tables.start()
    deadline = time.monotonic() + 60

    def until(rows: int) -> None:
        while len(lake.rows()) < rows:
            assert time.monotonic() < deadline, tables.report()
            time.sleep(0.02)

    until(1)
    before = DeltaTable(lake.directory / "t").version()
    for at in range(1, 6):
        lake.push(entry(at, at))
    until(6)
    tables.finish(time.monotonic() + 10)
    assert state(lake) == {at: at for at in range(6)}
    assert DeltaTable(lake.directory / "t").version() - before <= 2


def test_a_row_of_another_writer_is_older_than_any_entry(lake: Lake) -> None:
    lake.push(entry(1, 1, at=9), entry(2, 2, at=9))
    run(keyed(lake, TIMED))
    lake.write(pa.table({"id": [3, None], "n": [30, 31]}))
    lake.push(entry(3, 3, at=1), entry(4, 4), entry(1, 5))
    run(keyed(lake, TIMED))
    found = sorted((row["n"], row["id"]) for row in lake.read("t"))
    assert found == [(2, 2), (3, 3), (4, 4), (5, 1), (31, None)]


def test_a_second_row_of_a_key_is_one_clear_error_until_it_is_deleted(lake: Lake) -> None:
    lake.push(entry(1, 1), entry(2, 2))
    run(keyed(lake))
    lake.write(pa.table({"id": [1], "n": [9]}))
    lake.push(entry(2, 3))
    run(keyed(lake))  # other keys go on
    lake.push(entry(1, 4))
    query = keyed(lake)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"two rows of the key id = 1, .* delete it") as failed:
            query.step()
        assert failed.value.code == "table.key"
    DeltaTable(lake.directory / "t").delete("n = 9")
    run(query)
    assert state(lake) == {1: 4, 2: 3}
