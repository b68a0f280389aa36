"""The silver query's reader and writer, as Spark calls them, without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadMaxRows

from pipeline_samples import make_block, rows
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.bronze import read_file, share_files
from rillnode.node.spark.delta_log import LogFile, live_files
from rillnode.node.spark.frames import SILVER_STRUCT
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.silver import (
    KEY_SCHEMA,
    KEY_STRUCT,
    Silver,
    kept_rows,
    settle,
    write_candidates,
)
from rillnode.node.spark.tables import SILVER_SCHEMA
from silver_chain import Chain


def test_batches_follow_bronze_and_a_new_checkpoint_goes_on(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    start = chain.reader().initialOffset()
    assert chain.run(start) == start  # without bronze there is nothing
    for batch in range(3):
        chain.bronze.run(batch, rows(batch * 10, 10))
    # Begun before bronze was there, and as a query that begins now.
    assert start["table"] == ""
    first = chain.run(start)
    assert chain.indexes() == list(range(20))
    assert chain.run(first) != first
    assert chain.indexes() == list(range(30))
    chain.bronze.run(3, rows(30, 5))
    chain.run(chain.reader().initialOffset())
    assert chain.indexes() == list(range(35))
    end = chain.reader().initialOffset()
    assert chain.run(end) == end


def test_a_batch_without_rows_still_says_how_far_it_has_come(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    end = chain.run(chain.reader().initialOffset())
    DeltaTable(chain.bronze.table).delete()
    after = chain.run(end)
    assert after["version"] == end["version"] + 1
    assert chain.reader().initialOffset() == after
    assert chain.indexes() == list(range(10))


def test_after_a_delete_nothing_is_lost_nothing_comes_twice_and_nothing_comes_back(
    tmp_path: Path,
) -> None:
    """Of what silver has not read yet, it takes only what bronze still has."""
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    position = chain.run(chain.reader().initialOffset())
    for batch in range(1, 4):
        chain.bronze.run(batch, rows(batch * 10, 10))
    # Some rows that were read, some that were not, and some of a file that was merged meanwhile.
    DeltaTable(chain.bronze.table).delete("index >= 5 AND index < 13")
    list(compact(str(chain.bronze.table)))
    DeltaTable(chain.bronze.table).delete("index = 25")
    chain.bronze.run(4, rows(40, 2))
    while (end := chain.run(position)) != position:
        position = end
    kept = {*range(10), *range(13, 42)} - {25}
    assert chain.indexes() == sorted(kept)
    assert chain.bronze.indexes() == sorted(kept - set(range(5, 10)))


def test_deleted_rows_of_ranges_that_were_lost_are_told_apart_too(tmp_path: Path) -> None:
    """They have no time."""
    chain = Chain(tmp_path)
    builder = BatchBuilder()
    for stream in ("s", "t"):
        builder.add_gap(stream, 0, 0, 5)
    chain.bronze.run(0, rows(5, 1), builder.finish())
    position = chain.reader().latestOffset(chain.reader().initialOffset(), ReadMaxRows(15))
    DeltaTable(chain.bronze.table).delete("stream = 't'")
    (task,) = chain.reader().partitions(chain.reader().initialOffset(), position)
    found = pa.Table.from_batches(list(chain.reader().read(task)))
    assert sorted(
        zip(found.column("stream").to_pylist(), found.column("event_id").to_pylist(), strict=True)
    ) == [
        ("s", "#0"),
        ("s", "#5"),
    ]


def test_no_batch_begins_while_the_query_is_drained(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    start = chain.reader().initialOffset()
    chain.drain_file.touch()
    assert chain.run(start) == start


def test_a_query_for_the_present_ends_with_it(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    reader = chain.reader()
    reader.prepareForTriggerAvailableNow()
    chain.bronze.run(1, rows(10, 10))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert end["version"] == 1


def test_rows_are_written_in_order_and_with_when_they_landed(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 5, stream="b"), rows(0, 3, stream="a"))
    end = chain.run(chain.reader().initialOffset())
    (name,) = DeltaTable(chain.silver).file_uris()
    written = pq.read_table(name).to_pylist()
    assert len(written) == 8
    # In order within a file of bronze; files of the same millisecond come in any order.
    for stream, count in (("b", 5), ("a", 3)):
        assert [row["index"] for row in written if row["stream"] == stream] == list(range(count))
    assert {row["landed_at"].timestamp() * 1000 for row in written} == {end["time_ms"]}


@pytest.mark.needs("streamr")
def test_rows_whose_keys_do_not_come_back_are_left_out(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    for batch in range(3):
        builder = BatchBuilder()
        # None of them is a message, but each may come again.
        texts = [b"%d" % at for at in range(batch * 5, batch * 5 + 5)]
        block = make_block(batch * 5, texts, kind=EntryKind.STREAMR)
        builder.add_block("s", 0, block, batch * 5, batch * 5 + 5)
        chain.bronze.run(batch, builder.finish())
    reader, writer = chain.reader(), chain.writer()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    (task,) = reader.partitions(start, end)
    keys = pa.Table.from_batches(list(reader.read(task)))
    assert keys.schema.equals(KEY_SCHEMA)
    (chain.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}\n")
    # They come back in parts, in any order, and those of the rows with even numbers alone.
    even = keys.filter(pa.array([row % 2 == 0 for row in keys.column("row").to_pylist()]))
    parts = [even.slice(4), even.slice(0, 4), even.slice(0, 0)]
    messages = [writer.write(iter(part.to_batches())) for part in parts]
    writer.commit([*messages, None], 0)
    assert chain.indexes() == [0, 2, 4, 6, 8, 10, 12, 14]
    (file,) = live_files(DeltaTable(chain.silver))
    assert file.rows == 8
    assert [path.name for path in chain.silver.glob("*.parquet")] == [file.path]


def test_rows_that_cannot_repeat_share_a_key(tmp_path: Path) -> None:
    kinds = ["bytes"] * 3 + ["streamr"] * 2 + ["bytes"] + ["gap"] + ["bytes"] * 2
    documents = [{"kind": kind, "event_id": f"#{at}"} for at, kind in enumerate(kinds)]
    batches = [
        pa.RecordBatch.from_pylist(some, schema=SILVER_SCHEMA)
        for some in (documents[:8], documents[8:])
    ]
    keys = pa.Table.from_batches(list(write_candidates(str(tmp_path), batches)))
    assert list(zip(*(keys.column(one).to_pylist() for one in ("row", "rows")), strict=True)) == [
        (0, 3), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1),
    ]  # fmt: skip
    assert keys.column("event_id").to_pylist() == ["#0", "#3", "#4", "#5", "#6", "#7", "#8"]
    ((name, found),) = kept_rows(keys.slice(0, 2).to_batches()).rows.items()
    assert found.tolist() == [0, 1, 2, 3]
    (file,) = settle(str(tmp_path), [kept_rows(keys.to_batches())])
    assert (file.name, file.rows) == (name, 9)


def test_files_of_a_batch_that_failed_are_removed(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 5))
    reader, writer = chain.reader(), chain.writer()
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(9)))
    message = writer.write(reader.read(task))
    assert len(list(chain.silver.glob("*.parquet"))) == 1
    writer.abort([message, None], 0)
    assert not list(chain.silver.glob("*.parquet"))


def test_an_event_is_told_by_what_it_says_and_one_without_a_name_by_when_it_came(
    tmp_path: Path,
) -> None:
    def said(**row: Any) -> int:
        document = {"kind": "streamr", "received_at": 5, "event_id": "#0", **row}
        batch = pa.RecordBatch.from_pylist([document], schema=SILVER_SCHEMA)
        (keys,) = write_candidates(str(tmp_path), [batch])
        number: int = keys.column("_said").to_pylist()[0]
        return number

    assert said(content="a") == said(content="a", received_at=6) == said(data=b"a")
    assert said(content="a") != said(content="b")
    assert said() == said(content="")
    assert said(kind="bytes", content="a") == said(kind="bytes", content="a")
    assert said(kind="bytes", content="a") != said(kind="bytes", content="a", received_at=6)


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="target"):
        Silver({"path": "b"}).streamReader(SILVER_STRUCT)
    with pytest.raises(ConfigError, match="`checkpointLocation`"):
        Silver({"path": "s"}).streamWriter(KEY_STRUCT, overwrite=False)
    with pytest.raises(ConfigError, match="only writes what it has read"):
        Silver({"path": "s"}).streamWriter(SILVER_STRUCT, overwrite=False)


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
