import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline_samples import Query, rows
from rillnode.node.spark import maintenance
from rillnode.node.spark.maintenance import LiveFile, Maintenance, live_files, plan_merges
from rillnode.node.spark.parquet import TableFile, write_files


def sizes(*values: int) -> list[LiveFile]:
    return [LiveFile(str(at), size, at) for at, size in enumerate(values)]


def test_consecutive_small_files_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TARGET_BYTES", 100)
    monkeypatch.setattr(maintenance, "FILES_MAX", 4)
    groups = plan_merges(sizes(10, 20, 90, 30, 30, 30, 30, 60, 5, 1, 1, 1, 1, 1))
    assert [[file.size for file in group] for group in groups] == [
        [10, 20],
        [30, 30, 30],
        [5, 1, 1, 1],
        [1, 1],
    ]


def test_nothing_is_planned_for_few_or_large_files() -> None:
    assert plan_merges([]) == []
    assert plan_merges(sizes(1)) == []
    assert plan_merges(sizes(1 << 30, 1 << 30)) == []


def begun_with_the_table(query: Query, commits: int) -> Maintenance:
    work = Maintenance(str(query.table), commits)
    work.step(DeltaTable(query.table, version=0))
    return work


def finish_round(query: Query, commits: int) -> list[str]:
    table = DeltaTable(query.table)
    work = begun_with_the_table(query, commits)
    done: list[str] = []
    while text := work.step(table):
        done.append(text)
    return done


def test_a_round_merges_files_and_changes_no_rows(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for batch in range(6):
        query.run(batch, rows(batch * 10, 10))
    done = finish_round(query, commits=6)
    assert done[0].startswith("merged 6 files of the table into 1")
    assert query.indexes() == list(range(60))
    assert len(live_files(DeltaTable(query.table))) == 1
    query.run(6, rows(60, 10))
    assert query.indexes() == list(range(70))


def test_no_round_begins_early_or_when_it_is_off(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 10))
    assert finish_round(query, commits=3) == []
    assert finish_round(query, commits=0) == []


def test_only_old_unused_files_are_removed(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 10))
    checkpoint = query.table / "_checkpoints" / "bronze" / "metadata"
    checkpoint.parent.mkdir(parents=True)
    fresh, old = query.table / "fresh.parquet", query.table / "old.parquet"
    for path in (checkpoint, fresh, old):
        path.write_bytes(b"x")
    long_ago = time.time() - 30 * 86_400
    for path in (checkpoint, old):
        os.utime(path, (long_ago, long_ago))
    assert finish_round(query, commits=1)[-1].startswith("removed 1 files")
    assert (checkpoint.exists(), fresh.exists(), old.exists()) == (True, True, False)


def filled(directory: Path) -> Query:
    """A table of four files with ten rows each."""
    query = Query(directory)
    for batch in range(4):
        query.run(batch, rows(batch * 10, 10))
    return query


def assert_merged_already(query: Query, table: DeltaTable, files: list[LiveFile]) -> None:
    work = Maintenance(str(query.table), 1)
    assert work.merge(table, files) == "nothing is left to merge of 4 files"
    assert query.indexes() == list(range(40))


def test_a_file_that_another_job_has_merged_is_left_alone(tmp_path: Path) -> None:
    query = filled(tmp_path)
    table = DeltaTable(query.table)
    files = live_files(table)
    finish_round(query, commits=1)
    assert_merged_already(query, table, files)


def test_of_two_merges_of_the_same_files_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before either has changed it."""
    query = filled(tmp_path)
    table = DeltaTable(query.table)
    beside(monkeypatch, lambda: finish_round(query, commits=1))
    assert_merged_already(query, table, live_files(table))
    assert len(list(query.table.glob("*.parquet"))) == 5, "what was not added is removed"


def test_merges_of_other_files_and_new_rows_stop_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = filled(tmp_path)
    table = DeltaTable(query.table)
    first, last = live_files(table)[:2], live_files(table)[2:]
    other = Maintenance(str(query.table), 1)

    def meanwhile() -> None:
        assert other.merge(DeltaTable(query.table), last).startswith("merged 2 files")
        query.run(4, rows(40, 10))

    beside(monkeypatch, meanwhile)
    work = Maintenance(str(query.table), 1)
    assert work.merge(table, first) == "merged 2 files of the table into 1"
    assert query.indexes() == list(range(50))
    assert len(live_files(DeltaTable(query.table))) == 3


def beside(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Do something while the next merge writes its file."""

    def write(table: str, batches: Iterable[pa.RecordBatch], below: str) -> Iterator[TableFile]:
        monkeypatch.setattr(maintenance, "write_files", write_files)
        meanwhile()
        yield from write_files(table, batches, below=below)

    monkeypatch.setattr(maintenance, "write_files", write)
