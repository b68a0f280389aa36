import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline_samples import Query, rows
from rillnode.node.pipeline import maintenance
from rillnode.node.pipeline.files import locked
from rillnode.node.pipeline.maintenance import LiveFile, Maintenance, live_files, plan_merges


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
    query.run(5, rows(50, 10))
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


def test_a_file_that_another_job_has_merged_is_left_alone(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for batch in range(4):
        query.run(batch, rows(batch * 10, 10))
    table = DeltaTable(query.table)
    work = begun_with_the_table(query, commits=1)
    assert plan_merges(live_files(table))
    with locked(query.table / "_maintenance.lock", seconds=0):
        assert work.step(table) is None  # it has its plan now, but is not alone
    finish_round(query, commits=1)
    assert query.indexes() == list(range(40))
    assert work.step(table) == "nothing is left to merge of 4 files"
    assert query.indexes() == list(range(40))
