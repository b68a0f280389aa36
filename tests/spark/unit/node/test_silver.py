"""Silver, step by step: decoded, once, and once only whatever is lost."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from chained_tables import Pipeline, in_process
from pipeline_samples import TIME, Bronze, rows, streamr_text
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark import silver as silver_module
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.bronze import read_file, share_files
from rillnode.node.spark.delta_log import LogFile, live_files
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.silver import KEYS, Seen, keys_of
from rillnode.node.spark.tables import SILVER_SCHEMA

MINUTE_MS = 60_000


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path, Bronze(tmp_path))


class KilledError(BaseException):
    """Ends a step as the end of its process would."""


def kill(*_: object, **__: object) -> None:
    raise KilledError


def message(at: int) -> bytes:
    return streamr_text(id=["s", 0, TIME + at, 0, "0xABcd", "chain"])


def test_steps_follow_bronze_and_a_new_process_goes_on(pipeline: Pipeline) -> None:
    query = pipeline.query(batch_rows_max=15)
    assert not query.step()  # without bronze there is nothing
    for batch in range(3):
        pipeline.bronze.run(batch, rows(batch * 10, 10))
    assert query.step()
    assert pipeline.indexes() == list(range(20))
    assert (query.step(), query.step()) == (True, False)
    for batch in range(3, 6):
        pipeline.bronze.run(batch, rows(batch * 10, 10))
    assert query.step()
    assert pipeline.indexes() == list(range(40))
    query = pipeline.query(batch_rows_max=15)
    assert [query.step(), query.step(), query.step()] == [True, True, False]
    assert pipeline.indexes() == list(range(60))


def test_a_step_without_rows_still_says_how_far_it_has_come(pipeline: Pipeline) -> None:
    pipeline.bronze.run(0, rows(0, 10))
    pipeline.run()
    DeltaTable(pipeline.bronze.table).delete()
    query = pipeline.query()
    assert (query.step(), query.step()) == (True, False)
    assert pipeline.indexes() == list(range(10))


def test_after_a_delete_nothing_is_lost_nothing_comes_twice_and_nothing_comes_back(
    pipeline: Pipeline,
) -> None:
    """Of what silver has not read yet, it takes only what bronze still has."""
    pipeline.bronze.run(0, rows(0, 10))
    pipeline.run(batch_rows_max=15)
    for batch in range(1, 4):
        pipeline.bronze.run(batch, rows(batch * 10, 10))
    # Some rows that were read, some that were not, and some of a file that was merged meanwhile.
    DeltaTable(pipeline.bronze.table).delete("index >= 5 AND index < 13")
    list(compact(pipeline.bronze.location))
    DeltaTable(pipeline.bronze.table).delete("index = 25")
    pipeline.bronze.run(4, rows(40, 2))
    pipeline.run(batch_rows_max=15)
    kept = {*range(10), *range(13, 42)} - {25}
    assert pipeline.indexes() == sorted(kept)
    assert pipeline.bronze.indexes() == sorted(kept - set(range(5, 10)))


def test_deleted_rows_of_ranges_that_were_lost_are_told_apart_too(pipeline: Pipeline) -> None:
    """They have no time."""
    builder = BatchBuilder()
    for stream in ("s", "t"):
        builder.add_gap(stream, 0, 0, 5)
    pipeline.bronze.run(0, rows(5, 1))
    pipeline.run()
    pipeline.bronze.run(1, builder.finish())
    DeltaTable(pipeline.bronze.table).delete("stream = 't'")
    pipeline.run()
    assert [(row["stream"], row["event_id"]) for row in pipeline.rows()] == [
        ("s", "#0"),
        ("s", "#5"),
    ]


def test_rows_are_written_in_order_and_with_when_they_landed(pipeline: Pipeline) -> None:
    pipeline.bronze.run(0, rows(0, 5, stream="b"), rows(0, 3, stream="a"))
    query = pipeline.query()
    query.step()
    (name,) = DeltaTable(pipeline.silver).file_uris()
    written = pq.read_table(name).to_pylist()
    assert len(written) == 8
    # In order within a file of bronze; files of the same millisecond come in any order.
    for stream, count in (("b", 5), ("a", 3)):
        assert [row["index"] for row in written if row["stream"] == stream] == list(range(count))
    assert query.position is not None
    assert {row["landed_at"].timestamp() * 1000 for row in written} == {query.position.time_ms}


@pytest.mark.needs("streamr")
def test_of_rows_in_several_files_and_tasks_the_first_ones_stay(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.node.spark.bronze.TASK_ROWS_MIN", 1)
    pipeline.land(*(b"%d" % at for at in range(5)))
    pipeline.land(*(message(at) for at in range(3)))
    pipeline.land(*(message(at) for at in range(2, 5)))
    pipeline.run()
    assert pipeline.indexes() == [*range(8), 9, 10]
    on_disk = {path.name for path in pipeline.silver.glob("*.parquet")}
    assert on_disk == {file.path for file in live_files(DeltaTable(pipeline.silver))}
    assert sum(file.rows for file in live_files(DeltaTable(pipeline.silver))) == 10


@pytest.mark.needs("streamr")
@pytest.mark.parametrize("moment", ["commit", "settle"])
def test_a_step_that_is_cut_off_is_made_again_and_knows_no_event_of_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    pipeline.land(message(1), message(2))
    pipeline.run()
    pipeline.land(message(2), message(3))
    monkeypatch.setattr(silver_module, moment, kill)
    with pytest.raises(KilledError):
        pipeline.run()
    monkeypatch.undo()
    pipeline.run()
    assert pipeline.indexes() == [0, 1, 3]
    pipeline.land(message(3))
    pipeline.run()
    assert pipeline.indexes() == [0, 1, 3]


@pytest.mark.needs("streamr")
def test_without_what_was_remembered_nothing_is_missing(pipeline: Pipeline) -> None:
    for at in range(4):
        pipeline.land(message(10 * at), message(10 * at + 1))
    pipeline.run(batch_rows_max=3)
    assert pipeline.indexes() == list(range(8))
    shutil.rmtree(pipeline.silver / "_checkpoints")
    pipeline.land(message(200), message(0))
    pipeline.run()
    assert pipeline.indexes() == list(range(10))
    # A table that is made anew has all of it once more.
    checkpoint = pipeline.silver / "_checkpoints"
    checkpoint.rename(pipeline.bronze.table / "kept")
    shutil.rmtree(pipeline.silver)
    pipeline.silver.mkdir()
    (pipeline.bronze.table / "kept").rename(checkpoint)
    pipeline.run()
    assert pipeline.indexes() == list(range(9))


def test_what_is_damaged_says_what_to_do(pipeline: Pipeline) -> None:
    pipeline.land(b"no message")
    file = pipeline.silver / "_checkpoints" / "silver" / "seen.duckdb"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 10_000)
    with pytest.raises(StoreError, match=r"seen\.duckdb: .*Remove it") as failed:
        pipeline.run()
    assert failed.value.code == "spark.checkpoint"
    assert not list(pipeline.silver.glob("*.parquet"))
    file.unlink()
    pipeline.run()
    assert pipeline.indexes() == [0]


def test_files_of_a_step_that_failed_are_removed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.node.spark.bronze.TASK_ROWS_MIN", 1)
    pipeline.bronze.run(0, rows(0, 5), rows(5, 5))

    def fails(tasks: Sequence[bytes]) -> list[bytes]:
        in_process(tasks[:1])
        assert len(list(pipeline.silver.glob("*.parquet"))) == 1
        raise StoreError("spark.log", "gone")

    with pytest.raises(StoreError, match="gone"):
        pipeline.query(fails).step()
    assert not list(pipeline.silver.glob("*.parquet"))


def test_a_second_process_that_makes_the_same_step_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.bronze.run(0, rows(0, 5))

    def slow(tasks: Sequence[bytes]) -> list[bytes]:
        done = in_process(tasks)
        pipeline.run()
        return done

    pipeline.query(slow).step()
    assert pipeline.indexes() == list(range(5))
    assert len(list(pipeline.silver.glob("*.parquet"))) == 1


def test_a_file_of_keys_that_is_not_there_stops_a_step_before_its_tasks(pipeline: Pipeline) -> None:
    pipeline.bronze.run(0, rows(0, 5))
    pipeline.key_files = {"streamr": "/nowhere/streamr.keys"}
    with pytest.raises(ConfigError, match="nowhere"):
        pipeline.query(kill).step()  # type: ignore[arg-type]


def keys(*numbers: int) -> pa.Table:
    documents = [{"file": "f", "row": at, "a": one, "b": -one} for at, one in enumerate(numbers)]
    return pa.Table.from_pylist(documents, KEYS)


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_an_event_is_known_from_the_step_after_it_until_it_is_old(
    tmp_path: Path, is_on_disk: bool
) -> None:
    directory = tmp_path if is_on_disk else None
    memory = Seen(directory)

    def repeated(step: int, made: int | None, at_ms: int, *numbers: int) -> list[int]:
        told = {"step": step, "made": made, "at_ms": at_ms, "since_ms": at_ms - MINUTE_MS}
        return sorted(memory.repeated(keys(*numbers), **told).get("f", []))  # type: ignore[arg-type]

    assert repeated(1, None, 0, 7, 8, 7) == [2]
    assert repeated(2, None, 0, 7) == []  # that step was never made
    assert repeated(3, 2, 1_000, 7, 8, 9) == [0]
    if is_on_disk:
        memory.close()
        memory = Seen(directory)
    assert repeated(4, 3, MINUTE_MS, 7, 8) == [0, 1]
    assert repeated(5, 4, MINUTE_MS + 500, 7, 8) == [1]  # the first one came more than that before
    assert repeated(6, None, MINUTE_MS + 500, 7, 8) == []
    memory.close()


def test_an_event_is_told_by_its_name_and_by_what_it_says() -> None:
    def told(**row: Any) -> tuple[int, int]:
        document = {"kind": "streamr", "stream": "s", "partition": 0, "event_id": "#0", **row}
        (found,) = keys_of(pa.RecordBatch.from_pylist([document], SILVER_SCHEMA), 0).to_pylist()
        return found["a"], found["b"]

    assert told(content="a") == told(content="a", index=7) == told(data=b"a")
    assert told() == told(content="")
    different = [
        told(content="a"), told(content="b"), told(content="a", stream="t"),
        told(content="a", partition=1), told(content="a", event_id="#1"),
        told(content="0a", event_id="#"), told(content="a", stream="s#", event_id="0"),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_nothing_is_remembered_of_entries_that_bronze_has_once() -> None:
    kinds = ["bytes"] * 3 + ["streamr"] * 2 + ["bytes"] + ["gap"] + ["bytes"] * 2
    documents = [
        {"kind": kind, "stream": "s", "partition": 0, "event_id": f"#{at}"}
        for at, kind in enumerate(kinds)
    ]
    found = keys_of(pa.RecordBatch.from_pylist(documents, SILVER_SCHEMA), 10)
    assert found.column("row").to_pylist() == [13, 14, 16]
    assert keys_of(pa.RecordBatch.from_pylist(documents[:3], SILVER_SCHEMA), 0).num_rows == 0


def test_files_are_shared_out_in_order() -> None:
    files = [LogFile(str(at), count, None, None) for at, count in enumerate([4_000] * 6)]
    shares = [[file.path for file in task] for task in share_files(files, 2)]
    assert shares == [["0", "1", "2"], ["3", "4", "5"]]
    assert len(share_files(files, 100)) == 6
    assert len(share_files(files[:1], 100)) == 1
    assert share_files([], 2) == []


def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="pipeline replay"):
        list(read_file(str(tmp_path / "gone.parquet")))
