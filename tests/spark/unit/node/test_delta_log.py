import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from pipeline_samples import Query, rows
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta_log import LiveTable, Position, TableLog, open_table, saved_position
from rillnode.node.spark.maintenance import compact


def fill(query: Query, batches: range) -> None:
    for batch in batches:
        query.run(batch, rows(batch * 10, 10))


def start_of(query: Query) -> Position:
    return Position(str(DeltaTable(query.table).metadata().id))


def read(log: TableLog, start: Position, rows_max: int | None = None) -> list[list[int]]:
    """Numbers of rows of the files of every step until there is nothing more."""
    steps: list[list[int]] = []
    while (end := log.plan(start, rows_max)) != start:
        steps.append([file.rows for file in log.files_between(start, end)])
        start = end
    return steps


def test_the_whole_content_comes_first_and_then_what_is_added(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(4))
    log = TableLog(str(query.table))
    first = log.plan(start_of(query), 20)
    assert first[1:4] == (4, 4, 2)
    second = log.plan(first, 100)
    assert second[1:4] == (4, 4, 4)
    assert log.plan(second, 100) == second
    fill(query, range(4, 6))
    third = log.plan(second, 15)
    assert third[1:4] == (4, 5, 4)
    assert [file.rows for file in log.files_between(second, third)] == [10]
    assert read(log, start_of(query), 20) == [[10, 10], [10, 10], [10, 10]]
    assert third.time_ms >= second.time_ms > 0


def test_a_table_that_is_kept_open_is_as_of_now_whatever_others_do(tmp_path: Path) -> None:
    query = Query(tmp_path)
    live = LiveTable(str(query.table))
    assert live.open() is None
    fill(query, range(2))
    table = live.open()
    assert table is not None
    assert (live.open(), table.count()) == (table, 20)
    fill(query, range(2, 4))
    assert (live.open(), table.count()) == (table, 40)
    fill(query, range(4, 8))
    table.update_incremental()  # as who commits with it does
    assert (live.open(), table.count()) == (table, 80)
    shutil.rmtree(query.table)
    assert live.open() is None


@pytest.mark.parametrize("batches", [1, 3, 7])
def test_a_table_that_was_made_anew_is_another(tmp_path: Path, batches: int) -> None:
    query = Query(tmp_path)
    fill(query, range(3))
    log = TableLog(str(query.table))
    old = log.open()
    assert old is not None
    end = log.plan(start_of(query), None)
    shutil.rmtree(tmp_path)
    again = Query(tmp_path)
    fill(again, range(batches))
    new = log.open()
    assert new is not None
    assert new.metadata().id != old.metadata().id
    assert read(log, start_of(again)) == [[10] * batches]
    with pytest.raises(ConfigError, match="was made anew"):
        log.plan(end, None)


def test_merged_files_are_read_once(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(3))
    log = TableLog(str(query.table))
    middle = log.plan(start_of(query), 10)
    assert len(list(compact(str(query.table)))) == 1
    fill(query, range(3, 4))
    assert read(log, middle) == [[10, 10, 10]]
    assert read(log, start_of(query)) == [[30, 10]]
    # As of then there were three files, and one of them was read.
    assert len(log.files_at(middle)) == 1
    assert [file.rows for file in log.files_at(log.plan(middle, None))] == [30, 10]


def test_a_position_goes_through_a_table(tmp_path: Path) -> None:
    position = Position("t", 3, 7, 2, 1_700_000_000_000)
    query = Query(tmp_path)
    query.run(0, rows(0, 1))
    table = DeltaTable(query.table)
    assert saved_position(table, "t") == Position("t")
    properties = position.transactions()
    assert [(one.app_id, one.version) for one in properties][:2] == [
        ("t.base", 3),
        ("t.version", 7),
    ]
    assert saved_position(None, "t") == Position("t")


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(3))
    log = TableLog(str(query.table))
    end = log.plan(start_of(query), None)
    with pytest.raises(ConfigError, match="was made anew"):
        log.plan(end._replace(table="other"), None)
    table = DeltaTable(query.table)
    old = table.get_add_actions().column("path")[0].as_py()
    new = AddAction("new.parquet", 1, {}, 0, data_change=True, stats="{}")
    table.create_write_transaction(
        [RemoveAction(old, data_change=True, deletion_timestamp=0), new], "append", table.schema()
    )
    with pytest.raises(StoreError, match=r"version 4 of .* rewrites rows .*pipeline replay"):
        log.plan(end, None)
    # Who begins now gets the table as it is, also where its last version is such a one.
    assert sorted(*read(log, start_of(query))) == [0, 10, 10]


def test_a_log_that_was_shortened_too_far_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(3))
    log = TableLog(str(query.table))
    middle = log.plan(start_of(query), 10)
    base = log.plan(middle, None)
    fill(query, range(3, 4))
    end = log.plan(base, None)
    fill(query, range(4, 6))
    DeltaTable(query.table).create_checkpoint()
    for version in range(6):
        (query.table / "_delta_log" / f"{version:020}.json").unlink()
    log = TableLog(str(query.table))
    with pytest.raises(StoreError, match=r"no longer has version 5.*pipeline replay"):
        log.plan(end, None)
    with pytest.raises(StoreError, match="no longer has version 3"):
        log.plan(middle, None)
    assert read(log, start_of(query)) == [[10, 10, 10, 10, 10, 10]]


def test_a_base_that_was_read_is_needed_no_more(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(3))
    log = TableLog(str(query.table))
    base = log.plan(start_of(query), None)
    fill(query, range(3, 4))
    end = log.plan(base, None)
    DeltaTable(query.table).create_checkpoint()
    for version in range(4):
        (query.table / "_delta_log" / f"{version:020}.json").unlink()
    fill(query, range(4, 5))
    assert read(TableLog(str(query.table)), end) == [[10]]


def test_removed_rows_are_not_followed(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(2))
    log = TableLog(str(query.table))
    end = log.plan(start_of(query), None)
    DeltaTable(query.table).delete()
    after = log.plan(end, None)
    assert after.version == end.version + 1
    assert log.files_between(end, after) == []


def test_a_delete_of_some_rows_of_a_file_adds_none(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(2))
    log = TableLog(str(query.table))
    end = log.plan(start_of(query), None)
    DeltaTable(query.table).delete("index >= 5 AND index < 12")
    after = log.plan(end, None)
    assert after.version == end.version + 1
    assert log.files_between(end, after) == []
    assert [file.rows for file in log.files_at(after)] in ([5, 8], [8, 5], [13])
    fill(query, range(2, 3))
    assert read(log, end) == [[10]]
    assert sum(map(sum, read(log, start_of(query)))) == 23


@pytest.mark.parametrize("change", ["update", "overwrite"])
def test_a_change_of_rows_is_refused(tmp_path: Path, change: str) -> None:
    query = Query(tmp_path)
    fill(query, range(2))
    log = TableLog(str(query.table))
    end = log.plan(start_of(query), None)
    if change == "update":
        DeltaTable(query.table).update({"publisher": "'nobody'"}, predicate="index < 5")
    else:
        changed: Any = rows(7, 1)
        write_deltalake(query.table, changed, mode="overwrite")
    with pytest.raises(StoreError, match=r"rewrites rows \((UPDATE|WRITE)\)"):
        log.plan(end, None)


def test_what_is_left_of_a_file_is_looked_for_where_it_may_be(tmp_path: Path) -> None:
    query = Query(tmp_path)
    fill(query, range(2))
    log = TableLog(str(query.table))
    files = log.files_between(start_of(query), log.plan(start_of(query), None))
    assert log.files_left(files) == ([], [])
    DeltaTable(query.table).delete("index < 5")
    gone, holders = log.files_left(files)
    assert gone == files[:1]
    assert {file.rows for file in holders} == {5, 10}
    DeltaTable(query.table).delete()
    assert log.files_left(files) == (files, [])


def test_without_a_table_there_is_nothing(tmp_path: Path) -> None:
    log = TableLog(str(tmp_path / "none"))
    assert log.plan(Position(""), None) == Position("")
    assert open_table(str(tmp_path / "none")) is None
    assert log.files_at(Position("")) == []
