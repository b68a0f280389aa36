"""Entries that were erased: gold is calculated anew, a replay keeps them gone, and Spark agrees."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from chained_tables import Pipeline, in_process
from pipeline_samples import TIME
from rillnode.node.spark.derived import replay
from rillnode.node.spark.erasing import Lake, held, sweep_all
from rillnode.node.spark.erasure import PLACES, Erasures, ranges_of
from rillnode.node.spark.tables import CHAINS, MINUTES, PUBLISHERS
from streamr_samples import make_message
from table_readers import plain_rows

pytestmark = pytest.mark.spark

MINUTE = 60_000


@pytest.mark.long
def test_gold_is_counted_anew_and_a_replay_keeps_them_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.land(*(make_message(at) for at in range(5)))
    pipeline.land(*(make_message(at) for at in range(5, 7)), received_at=TIME + MINUTE)
    pipeline.land(*(make_message(at) for at in range(7, 9)), received_at=TIME + 2 * MINUTE)
    pipeline.run()
    pipeline.run_gold()
    assert [row["messages"] for row in pipeline.gold_rows(MINUTES)] == [5, 2, 2]

    lake = Lake(
        bronze=str(pipeline.bronze.table),
        derived=pipeline.config(),
        typed=(),
    )
    rows = plain_rows(lake.bronze)
    erased = rows.filter(pc.is_in(rows.column("index"), value_set=pa.array([1, 5, 6], pa.int64())))
    erasures = Erasures(lake.bronze)
    erasures.note(ranges_of(erased.select(PLACES.names).to_batches()), table="t", predicate="p")
    assert pipeline.run_gold() == 0  # silver still has them
    sweep_all(lake, erasures)
    states = {one.table: one.is_swept for one in held(lake, erasures.erased())}
    assert [states[place] for place in lake.gold(followers=True)] == [False] * 3
    pipeline.run()
    assert pipeline.run_gold() > 0

    def check() -> None:
        assert [row["messages"] for row in pipeline.gold_rows(MINUTES)] == [4, 2]
        assert [row["messages"] for row in pipeline.gold_rows(PUBLISHERS)] == [4, 2]
        assert [row["messages"] for row in pipeline.gold_rows(CHAINS)] == [4, 2]
        assert sum(row["duplicates"] for row in pipeline.gold_rows(MINUTES)) == 0
        assert pipeline.indexes() == [0, 2, 3, 4, 7, 8]
        for place in (lake.bronze, str(pipeline.silver)):
            frame = spark.read.parquet(*DeltaTable(place).file_uris())
            found = sorted(row[0] for row in frame.select("index").collect())
            assert found == [0, 2, 3, 4, 7, 8]
        assert all(one.is_swept for one in held(lake, erasures.erased()))

    check()
    assert pipeline.run_gold() == 0
    replay(pipeline.config(), in_process, lambda _: None)
    pipeline.run_gold()
    check()
    pipeline.land(make_message(9), received_at=TIME + 2 * MINUTE)
    pipeline.run()
    pipeline.run_gold()
    assert [row["messages"] for row in pipeline.gold_rows(MINUTES)] == [4, 3]
